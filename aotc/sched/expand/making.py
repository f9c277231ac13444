"""What expanding one kernel needs: facts of its target, what it stores itself, fresh names."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aotc.ir.plan import Contract, Nest
from aotc.ir.schedule import Writing, writing_of
from aotc.ir.statements import OWN
from aotc.target.base import VectorFacts
from aotc.target.tuning import Tuning

Choice = TypeVar("Choice", int, str)


@dataclass
class Making:
    """``own``: buffers that the kernel stores itself; ``count``: names made so far; ``asked``: what
    was chosen for the stage that is expanded."""

    vectors: VectorFacts
    tuning: Tuning
    own: Collection[str]
    count: int = 0
    asked: dict[str, int | str] = field(default_factory=dict)

    def how(self, stage: Contract | Nest, key: str, rule: Choice) -> Choice:
        """The Schedule's choice for a stage's statements; else ``rule``, what is usual for it."""
        found: Any = dict(stage.writing).get(key, rule)
        self.asked[key] = found
        return found

    def written(self) -> Writing:
        """What was chosen since it was last asked."""
        found, self.asked = writing_of(self.asked), {}
        return found

    def fresh(self, stem: str) -> str:
        """A name that no other statement of the kernel binds."""
        self.count += 1
        return f"{OWN}{stem}{self.count}"


__all__ = ["Making"]

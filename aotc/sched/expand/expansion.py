"""What expanding one kernel needs: facts of its target, what it stores itself, fresh names."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.kernel.plan_stages import Contract, Nest, Stage, Stream
from aotc.ir.schedule import Group
from aotc.ir.statements import OWN
from aotc.target.base import VectorFacts


@dataclass
class Expansion:
    """``line``: f32 elements of a cache line; ``own``: buffers that the kernel stores itself;
    ``count``: names made so far; ``where``: the stage that is expanded, for messages."""

    vectors: VectorFacts
    line: int
    own: Collection[str]
    count: int = 0
    where: str = ""

    def how(self, stage: Contract | Nest, key: str) -> Any:
        """The Schedule's choice for a stage's statements.  ScheduleError where it has none."""
        return find_choice(stage, key, self.where)

    def fresh(self, stem: str) -> str:
        """A name that no other statement of the kernel binds."""
        self.count += 1
        return f"{OWN}{stem}{self.count}"


def find_choice(stage: Contract | Nest, key: str, where: str) -> Any:
    """The choice ``key`` of how the statements of a stage (``where``, for messages) are written.
    ScheduleError where its Schedule lacks it: whoever makes one ends with ``choose_writing``."""
    found = getattr(stage.writing, key)
    if found is None:
        raise ScheduleError([f"{where} ({stage.row}) has no choice of {key!r}: the schedule was "
                             "not completed (sched.complete fills in what is left out)"])
    return found


def with_writing(stage: Stage, owner: str, group: Group) -> Stage:
    """A stage of a group's kernel with what the group says of how its statements are written."""
    if isinstance(stage, Stream):
        return replace(stage, scores=replace(
            stage.scores, writing=group.choice(stage.owner).text), values=replace(
                stage.values, writing=group.choice(owner).text))
    return replace(stage, writing=group.choice(owner).text) if isinstance(
        stage, (Contract, Nest)) else stage


__all__ = ["Expansion", "find_choice", "with_writing"]

"""What expanding one kernel needs: facts of vectors, what the kernel stores itself, fresh names."""

from collections.abc import Collection
from dataclasses import dataclass

from aotc.ir.statements import OWN
from aotc.target.base import VectorFacts


@dataclass
class Making:
    """``own``: buffers that the kernel stores itself; ``count``: names made so far."""

    vectors: VectorFacts
    own: Collection[str]
    count: int = 0

    def fresh(self, stem: str) -> str:
        """A name that no other statement of the kernel binds."""
        self.count += 1
        return f"{OWN}{stem}{self.count}"


__all__ = ["Making"]

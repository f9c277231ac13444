"""Operands of a lowered product: how each is read, and where sums and results wait."""

from dataclasses import dataclass
from typing import ClassVar

from aotc.ir.expr import Expr, show
from aotc.ir.statements import Body, Range


@dataclass(frozen=True)
class Operand:
    """How a contraction reads one operand.

    mode ``rows`` (A): element (m, tap, k) is ``buffer[offset + k*stride]``; where ``guard`` is
    false the row reads zeros.  mode ``panel`` (B): packed panels, ``offset`` is the panel's first
    element, k-step ``stride`` elements.  mode ``direct`` (B): ``buffer[offset + k*stride + n]``.
    mode ``columns`` (B): ``buffer[offset + n*stride + k]``, zeros behind the last up to 16 bytes.
    mode ``packed`` (A or B): ``value`` is evaluated into scratch ``buffer`` first.
    ``tap`` is the step of direct B from one tap to the next (None: taps lie side by side).
    ``pad`` (8-bit rows): a row in scratch, filled with ``value``, that is read instead of zeros.
    """

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer", "pad")
    mode: str
    buffer: str
    offset: Expr
    stride: Expr
    guard: Expr | None = None
    value: Expr | None = None
    tap: Expr | None = None
    pad: str = ""

    @property
    def packed(self) -> Expr:
        """What an operand with a value is made of."""
        assert self.value is not None, f"{self.mode} {self.buffer} has no value"
        return self.value

    def __str__(self) -> str:
        value = f" = {show(self.value)}" if self.value is not None else ""
        guard = f" if {show(self.guard)}" if self.guard is not None else ""
        return (f"{self.mode} {self.buffer}[{show(self.offset)}] by {show(self.stride)}"
                f"{value}{guard}")


@dataclass(frozen=True)
class Turned:
    """Results that lie across the lanes in memory: they are gathered in ``scratch`` of so many
    ``rows`` and stored from there by transposed blocks."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("scratch",)
    scratch: str
    rows: int


@dataclass(frozen=True)
class Slices:
    """Sums that run ``steps`` of k at a time, kept in ``scratch`` between, in one tap of ``taps``,
    which the Contract has no more.  fed: what engines copy for each slice, and waits for it."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("scratch",)
    scratch: str
    steps: int
    taps: tuple[Range, ...] = ()
    fed: Body = ()


__all__ = ["Operand", "Slices", "Turned"]

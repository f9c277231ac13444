"""Which tensors of a Program are exact up to a quantum: what is rounded to 8 bits can go one step
the other way where the value lies within float errors of a tie."""

from collections.abc import Iterable, Mapping

from aotc.ir.dtypes import is_float
from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Where, walk
from aotc.ir.numbers.fixed_point import is_fixed
from aotc.ir.program import Compute, Program, Step

Quanta = Mapping[str, float | None]

BYTES = ("u8", "i8")
_KEEPS = ("none", "max", "min")  # folds whose result is one of the values


def rounds_to_bytes(step: Step) -> bool:
    """True for a Compute that rounds floats to 8 bits, or integers times a fraction."""
    if not isinstance(step, Compute) or not isinstance(step.body, Cast):
        return False
    return is_fixed(step.body) or step.body.dtype in BYTES and (
        step.body.x.dtype in ("f32", "f64")) and any(
            isinstance(n, Unary) and n.op == "round" for n in walk(step.body.x))


def quanta(program: Program, steps: Iterable[Step] | None = None) -> dict[str, float | None]:
    """{buffer: its quantum} of every buffer that ``steps`` (None: all of the Program) compute from
    numbers that they round to 8 bits.

    The quantum is the step between neighbouring values, 1.0 for the 8-bit numbers themselves and
    the scale of what only scales, moves, clips or selects such; None for all else, to which a
    step of an 8-bit number may do anything.
    """
    found: dict[str, float | None] = {}
    for step in program.steps if steps is None else steps:
        if rounds_to_bytes(step):
            found |= dict.fromkeys(step.outs, 1.0)
        elif any(b in found for b in step.inputs):
            found |= dict.fromkeys(step.outs, _step_of(step, found))
    return found


def _step_of(step: Step, found: Quanta) -> float | None:
    if not isinstance(step, Compute) or step.fold not in _KEEPS:
        return None
    return _slope(step.body, found)


def _slope(e: Expr, found: Quanta) -> float | None:
    """How far ``e`` moves when the one number of ``found`` in it moves by its quantum; None if it
    holds several, or is no such scaling."""
    if isinstance(e, Load):
        read = [n for i in e.index for n in walk(i) if isinstance(n, Load)]
        return None if any(n.buffer in found for n in read) else found.get(e.buffer)
    if isinstance(e, Cast):
        exact = e.dtype != "bool" and (is_float(e.dtype) or not is_float(e.x.dtype))
        return _slope(e.x, found) if exact else None
    if isinstance(e, Where) and isinstance(e.b, Const):
        return _slope(e.a, found)
    if not (isinstance(e, Binary) and isinstance(e.b, Const)):
        return None
    inner = _slope(e.a, found)
    if inner is None or e.op in ("add", "sub", "max", "min"):
        return inner
    factor = {"mul": e.b.value, "div": e.b.value and 1 / e.b.value}.get(e.op, 0)
    return inner * abs(factor) if factor else None


__all__ = ["BYTES", "quanta", "rounds_to_bytes"]

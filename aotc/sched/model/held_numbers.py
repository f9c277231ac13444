"""Which values of a Program surely are numbers of a narrower float, whatever they are stored as."""

from aotc.ir.dtypes import BF16, TF32, Array, holds
from aotc.ir.expr import Cast, Const, Expr, Load, Unary, Where
from aotc.ir.numbers.narrow import is_tf32, stored_half, upper_half
from aotc.ir.program import Compute, Program


def is_held(program: Program, e: Expr, dtype: str) -> bool:
    """True if every value of an expression surely is a number of ``dtype``, f16, bf16 or tf32."""
    if e.dtype == dtype:
        return True
    if isinstance(e, Cast):
        return e.x.dtype == dtype
    if isinstance(e, Unary):
        return dtype == BF16 and (stored_half(e) is not None or upper_half(e) is not None)
    if isinstance(e, Where) and is_tf32(e):
        return dtype == TF32
    if isinstance(e, Where):
        return is_held(program, e.a, dtype) and is_held(program, e.b, dtype)
    if isinstance(e, Const):
        return bool(e.value == 0)
    return isinstance(e, Load) and e.dtype == "f32" and _is_held_buffer(program, e.buffer, dtype)


def _is_held_buffer(program: Program, buffer: str, dtype: str) -> bool:
    known: dict[str, bool] = program.known(f"{dtype} values")
    if buffer not in known:
        array: Array | None = program.consts.get(buffer)
        step = program.producer.get(buffer)
        known[buffer] = holds(dtype, array) if array is not None else (
            isinstance(step, Compute) and step.fold == "none" and len(step.outs) == 1
            and is_held(program, step.body, dtype))
    return known[buffer]


__all__ = ["is_held"]

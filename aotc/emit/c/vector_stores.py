"""C text of stores of vectors: contiguous, with a stride, or lane by lane."""

from collections.abc import Mapping, Sequence

from aotc.emit.c import half_lanes as halves
from aotc.emit.c.arrays import address, element
from aotc.emit.c.loop_text import INDENT
from aotc.emit.c.narrow_lanes import store, stored_lanes, width
from aotc.emit.c.scalars import LocalNames
from aotc.emit.c.vectors import Vectors, is_scalar
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.dialect import Dialect, OperandText
from aotc.emit.text.env import KernelEnv
from aotc.ir.access import stride
from aotc.ir.dtypes import DTYPES, HALVES
from aotc.ir.expr import Axis, Const, Expr, Var, axes_of, substitute
from aotc.ir.simplify import simplify
from aotc.ir.statements import Put


def store_lines(puts: Sequence[Put], lane: Axis, say: Dialect, count: str, env: KernelEnv,
                names: LocalNames, acc: Mapping[Var, str],
                known: Mapping[Expr, OperandText] | None = None, summed: bool = False) -> list[str]:
    """Evaluate the puts at the lane axis and store: contiguous, with a stride, or lane by lane.
    ``known``: {expression: Operand} evaluated before.  ``summed``: accumulators hold sums."""
    block = Vectors(env, names, lane, say, count, [p.value for p in puts], acc)
    block.known.update(known or {})
    block.summed = summed
    values = [(p, _value(block, p.value)) for p in puts]
    lines, block.lines = block.lines, []
    for p, (v, converts) in values:
        step = stride(p.offset, lane)
        at = address(env, p.buffer, p.offset, c_index)
        writes = env.get("writes")
        if step == Const(1) and writes:
            at = writes(p.buffer, at, count or str(say.lanes))
        if p.value.dtype in HALVES:
            lines += _half_stores(p, (v, converts), lane, step, say, count, env, names, at)
        elif step == Const(1) and p.value.dtype != "f32":
            lines.append(store(say, p, v, count, at))
        elif is_scalar(say) and p.value.dtype == "f32" and not (count or env.get("put")):
            lines.append(f"{element(env, p.buffer, p.offset, c_index)} = {v};")
        elif step == Const(1):
            lines.append(say.store_n(at, v, count) if count else say.store(at, v))
        elif step is not None and say.facts.strided:
            there = c_index(step, 13)
            lines.append(say.store_strided(at, there, v) if p.value.dtype == "f32" else
                         say.int_store_apart(width(p), at, there, v))
        else:
            lines += _scattered(p, v, lane, say, count, env, names)
    return lines


def _value(block: Vectors, e: Expr) -> tuple[str, bool]:
    """(what a put of ``e`` stores, in lanes: floats, i32 or half precision, True if it is floats
    that the store converts)."""
    if e.dtype in HALVES:
        return halves.put(block, e)
    return block.text(e) if e.dtype == "f32" else stored_lanes(block, e), False


def _half_stores(put: Put, value: tuple[str, bool], lane: Axis, step: Expr | None, say: Dialect,
                 count: str, env: KernelEnv, names: LocalNames, at: str) -> list[str]:
    """Store half precision: contiguous, with a stride, or lane by lane."""
    if step == Const(1):
        return [halves.store(say, put.value.dtype, at, value, count)]
    lanes = halves.convert_to_bits(say, put.value.dtype, value)
    if step is not None and say.facts.strided:
        return [say.half_put_apart(at, c_index(step, 13), lanes)]
    return _scattered(put, lanes, lane, say, count, env, names)


def _scattered(put: Put, value: str, lane: Axis, say: Dialect, count: str, env: KernelEnv,
               names: LocalNames) -> list[str]:
    """Store a vector lane by lane."""
    spill = names.fresh("g")
    one = Axis(f"{lane.name}_l", lane.extent)
    at = simplify(substitute(put.offset, {lane: one}))
    kept = f"{spill}[l]"
    if put.value.dtype in HALVES:
        lines = [say.array("uint16_t", spill), say.half_put(spill, value), say.each(count)]
    elif put.value.dtype == "f32":
        lines = [say.array("float", spill), say.spill_result(spill, value), say.each(count)]
    else:
        lines = [say.array("int32_t", spill), say.int_store(32, spill, value), say.each(count)]
        kept = f"({DTYPES[put.value.dtype].c}){kept}"
    if one in axes_of(at):  # an axis of extent one is in no offset
        lines.append(f"{INDENT}const int64_t {one.name} = {lane.name} + l;")
    to = env.get("put")
    if to is not None:
        return [*lines, INDENT + to(put.buffer, c_index(at, 0), kept, put.value.dtype), "}"]
    return lines + [f"{INDENT}{element(env, put.buffer, at, c_index)} = {kept};", "}"]

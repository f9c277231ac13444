"""How far a stream has to go for a row: keys behind that are masked, as causal masks do it.

A score is masked that a condition makes -inf, or the lowest number of a half or of f32, or that
such a number is added to; it is taken to be a number before.  Where the mask is the lowest number,
each row must surely have a key that is not masked, of which the condition alone decides: then what
is masked has no weight.  Conditions are index comparisons, wherever the mask was made, and
constants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotc.ir.dtypes import BF16, HALF, Array, to_bf16
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Where,
    axes_of,
    depends_on_data,
    substitute,
)
from aotc.ir.numbers.narrow import stored_half
from aotc.ir.program import Compute, Program
from aotc.ir.read_boxes import conditions
from aotc.ir.simplify import lower, simplify, split_linear
from aotc.sched.rows.stream_stages import Streamed

LOWEST = -65504.0  # of f16; those of other floats lie below
_DEEP = 8  # maps that a mask is followed through


@dataclass(frozen=True)
class _Mask:
    """What is not masked obeys ``facts``, each >= 0; whole: nothing else is masked; endless: what
    is masked is -inf; sure: each row has something that is not."""

    facts: tuple[Expr, ...]
    whole: bool
    endless: bool
    sure: bool = False


def key_bound(program: Program, found: Streamed) -> Expr | None:
    """The number of the first key from which on all are masked for a row, as an expression that
    grows with the row; None where nothing is known."""
    masks = list(_masks(program, found.element, _DEEP))
    for mask in masks:
        for end in _ends(mask.facts, found):
            sure = mask.sure or mask.whole and (lower(end + found.start) or 0) >= 1
            if mask.endless or sure and len(masks) == 1:
                return end
    return None


def _ends(facts: Sequence[Expr], found: Streamed) -> Iterator[Expr]:
    """Where keys end for which one of some facts holds, if that grows with the row."""
    rows = {a for a in found.valued.m if a.extent != Const(1)}
    for fact in facts:
        of_key = split_linear(simplify(fact), found.key)
        if of_key is None or of_key[0] != Const(-1):
            continue
        end = simplify(of_key[1] + 1)
        whole = simplify(end + found.start)
        row = axes_of(whole)
        of_row = split_linear(whole, next(iter(row))) if len(row) == 1 and row <= rows else None
        if of_row is not None and (lower(of_row[0]) or 0) >= 1 and not depends_on_data(end):
            yield end


def _masks(program: Program, e: Expr, deep: int) -> Iterator[_Mask]:
    """The masks of a score: of all of it, or what is added to it."""
    half = stored_half(e)
    if half is not None:
        yield from _rounded(program, half, deep)
    elif isinstance(e, Binary) and e.op == "add":
        yield from _masks(program, e.a, deep)
        yield from _masks(program, e.b, deep)
    elif isinstance(e, Where):
        for low, holds, other in ((e.b, True, e.a), (e.a, False, e.b)):
            if isinstance(low, Const) and float(low.value) <= LOWEST:
                facts, whole = _facts(program, e.cond, holds, deep)
                yield _Mask(facts, whole, low.value == -np.inf)
                yield from _masks(program, other, deep)
    elif isinstance(e, Load) and e.buffer in program.consts:
        array = np.asarray(program.consts[e.buffer])
        if array.dtype == np.float32 and array.ndim > 1:
            kept = ~(array <= LOWEST)
            yield _Mask(_of_truths(kept, e), False, bool(np.isinf(array[~kept]).all()),
                        bool(kept.any(axis=-1).all()))
    elif isinstance(e, Load):
        made = _made(program, e) if deep else None
        if made is not None:
            yield from _masks(program, made, deep - 1)


def _rounded(program: Program, e: Expr, deep: int) -> Iterator[_Mask]:
    """The masks of what is rounded to halves: the lowest f32 is -inf then."""
    dtype = e.dtype
    while deep and isinstance(e, Load):
        made = _made(program, e)
        if made is None:
            return
        e, deep = made, deep - 1
    inner = e.x if isinstance(e, Cast) else e
    for mask in _masks(program, inner, deep):
        low = np.float32(-3.4028234663852886e38)
        with np.errstate(over="ignore"):
            endless = dtype == HALF and np.isinf(low.astype(np.float16)) or (
                dtype == BF16 and bool(to_bf16(np.array([low]))[0] == 0xFF80))
        yield replace(mask, endless=mask.endless or endless and _is_lowest(inner))


def _is_lowest(e: Expr) -> bool:
    """True for what is masked by a number that no half holds."""
    return isinstance(e, Where) and any(
        isinstance(x, Const) and float(x.value) < -3e38 for x in (e.a, e.b))


def _made(program: Program, e: Load) -> Expr | None:
    """What a map makes where it is loaded."""
    step = program.producer.get(e.buffer)
    if not isinstance(step, Compute) or step.fold != "none" or len(step.outs) != 1:
        return None
    return simplify(substitute(step.body, dict(zip(step.axes, e.index))))


def _facts(program: Program, cond: Expr, holds: bool, deep: int) -> tuple[tuple[Expr, ...], bool]:
    """(Index expressions that are >= 0 where a condition is ``holds``; whether it is nothing but
    those)."""
    if isinstance(cond, Unary) and cond.op == "not":
        return _facts(program, cond.x, not holds, deep)
    if isinstance(cond, Binary) and cond.op == ("and" if holds else "or"):
        (a, whole), (b, also) = (_facts(program, x, holds, deep) for x in (cond.a, cond.b))
        return a + b, whole and also
    if isinstance(cond, Load) and cond.buffer in program.consts:
        array = np.asarray(program.consts[cond.buffer])
        return (_of_truths(array, cond) if holds else ()), False
    if isinstance(cond, Load) and deep:
        made = _made(program, cond)
        return ((), False) if made is None else _facts(program, made, holds, deep - 1)
    facts = conditions(cond, holds)
    return facts, bool(facts) and not any(map(depends_on_data, facts))


def _of_truths(array: Array, at: Load) -> tuple[Expr, ...]:
    """The fact that a constant of truths says: no key is kept that lies more than so many behind
    its row; none where the first row keeps the last key, as all that masks nothing does."""
    if array.ndim < 2 or array.dtype != np.bool_:
        return ()
    rows, keys = np.nonzero(array.reshape(-1, *array.shape[-2:]).any(axis=0))
    behind = int((keys - rows).max(initial=-array.shape[-2]))
    if not len(rows) or behind >= array.shape[-1] - 1:
        return ()
    row, key = at.index[-2:]
    return (simplify(row + behind - key),)


__all__ = ["LOWEST", "key_bound"]

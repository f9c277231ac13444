"""Rewrite rule ``narrow``: operands of a product are rounded to bf16, f16 or tf32, its sums stay
f32.

    ["narrow", "matmul_sum", {"dtype": "bf16", "stored": "bf16"}]

    c[m, n] = sum(k) x[m, k] * w[k, n]

becomes, with the weights rounded while compiling,

    x_bf16[m, k] = bf16(x[m, k])
    c[m, n]      = sum(k) f32(x_bf16[m, k]) * f32(w_bf16[k, n])

Of two computed tensors both are rounded so, of weights in groups the rows alone.  Products that
read the same tensor share its copy.
With "stored": "f32" the copies hold the rounded numbers as f32: the same sums for a target whose
rows read no bf16, and all that there is for tf32.  With "stored": "bits" they are bf16 that is told
by its bits, as tensors of models in bf16 are (``ir/numbers/narrow.py``): for rows that read the
elements of one operand in any order.  So are those of f16 ("stored": "f16"), of which weights must
be in its range; what is computed beyond it becomes an infinity.  Everything else, sums included,
stays as it is: the conversion is a map like any other, part of the kernel that makes the tensor
where that pays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aotc.ir.access import is_multiple, stride
from aotc.ir.category import (
    Factors,
    dot_dtypes,
    factor_pairs,
    is_grouped,
    zero_filled,
    zero_outside,
)
from aotc.ir.dtypes import (
    BF16,
    HALF,
    LARGEST_HALF,
    TF32,
    Array,
    exceeds_half,
    from_bf16,
    to_bf16,
    to_tf32,
)
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, axes_of, substitute
from aotc.ir.numbers.grouped import grouped_weights
from aotc.ir.numbers.narrow import round_tf32, widen_half
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update, with_constant
from aotc.passes.compute_rule import ComputeRule

RULE = "narrow"
BITS = "bits"
_ROUNDED: Mapping[str, Callable[[Array], Array]] = {
    BF16: to_bf16, TF32: to_tf32, HALF: lambda x: x.astype(np.float16)}
STORED = (BF16, "f32", BITS, HALF)  # what the rounded operands are stored as


@dataclass(frozen=True)
class SumOfProducts:
    """A sum of products: its factors, the Load of its rows, the condition under which they exist
    (outside it they are zero; None: everywhere), the Load of its weights, or of the columns that
    another compute makes (``computed``).  paired: rows can lie in memory so that pairs of
    neighbours along the sum are side by side.  grouped: the value of weights in groups, which stay
    as they are."""

    factors: Factors
    rows: Load
    guard: Expr | None
    weights: Load
    computed: bool = False
    paired: bool = True
    grouped: Expr | None = None


def match_product(program: Program, c: Compute) -> SumOfProducts | None:
    """The Product of a compute whose operands may be narrowed, or None.  Of one with constant
    weights those are its columns, of two computed tensors the one whose axis comes later in the
    result, of rows that can be paired if there are some."""
    narrow = dot_dtypes(c.body)
    if narrow is not None and not is_grouped(narrow) or c.body.dtype != "f32":
        return None
    found = []
    for f in factor_pairs(c.axes, c.raxes, c.fold, c.body):
        rows, guard = zero_filled(f.a)
        if not isinstance(f.b, Load) or rows is None or rows.buffer in program.consts or (
                rows.dtype != "f32" or narrow is None and f.b.dtype != "f32"):
            continue
        if narrow is not None:
            assert isinstance(c.body, Binary), c  # a product
            value = c.body.b if grouped_weights(c.body.b) is not None else c.body.a
            found.append(SumOfProducts(f, rows, guard, f.b, False, _runs(f, rows), value))
            continue
        weights = program.consts.get(f.b.buffer)
        if is_whole(f, f.b, weights.shape) if weights is not None else are_columns(f, f.b):
            found.append(SumOfProducts(f, rows, guard, f.b, weights is None, _runs(f, rows)))
    return max(found, key=lambda m: (m.paired, not m.computed, c.axes.index(m.factors.n[0])),
               default=None)


def are_columns(f: Factors, columns: Load) -> bool:
    """True for computed columns that a work item can pack: of one reduction axis."""
    return len(f.k) == 1 and len(f.n) == 1 and {f.k[0], f.n[0]} <= axes_of(columns)


def _runs(f: Factors, rows: Load) -> bool:
    """True if rows can lie in memory so that pairs of neighbours along a sum are side by side."""
    long = [r for r in f.k if r.extent != Const(1)]
    if len(long) == 1 and _is_run(rows, long[0]):
        return True
    return any(is_multiple(r.extent, 2) and r in rows.index or _is_unfolded(rows, r) for r in long)


def _is_run(rows: Load, k: Axis) -> bool:
    """True if one index counts along the sum, or two count its digits."""
    held = [i for i in rows.index if k in axes_of(i)]
    if len(held) == 1:
        return stride(held[0], k) == Const(1)
    return len(held) == 2 and all(isinstance(i, Binary) and i.a == k for i in held) and (
        {i.op for i in held if isinstance(i, Binary)} == {"floordiv", "mod"}) and (
        len({i.b for i in held if isinstance(i, Binary)}) == 1)


def _is_unfolded(rows: Load, k: Axis) -> bool:
    """True if the last two indices count the digits of an axis, the upper ones from where a window
    begins: the rows of an unfolded copy."""
    upper, lower = rows.index[-2:] if len(rows.index) > 1 else (Const(0), Const(0))
    if not isinstance(lower, Binary) or lower.op != "mod" or lower.a != k:
        return False
    first = substitute(upper, {Binary("floordiv", k, lower.b): Const(0)})
    return first != upper and all(k not in axes_of(i) for i in (first, *rows.index[:-2]))


def is_whole(f: Factors, weights: Load, shape: tuple[int, ...]) -> bool:
    """True if the weights hold the lane axis and the reduction axes, each once, and no more than
    other axes that are whole, too: of a matrix for every value of them."""
    plain = [i for i in weights.index if i != Const(0)]
    return len(set(plain)) == len(plain) and set(f.n) <= set(plain) and (
        all(isinstance(i, Axis) and i.extent == Const(d) or i == Const(0) and d == 1
            for i, d in zip(weights.index, shape)))


FITS = ComputeRule(RULE, match_product,
                   "product of f32 rows with constant weights, or with columns along one axis",
                   {"dtype": (BF16, TF32, HALF), "stored": STORED})
# what each dtype may be stored as
_LEGAL = {BF16: (BF16, "f32", BITS), TF32: ("f32",), HALF: (HALF,)}


def multiplies_pairs(parameters: Mapping[str, Any]) -> bool:
    """True for what is multiplied two neighbours along the sum at a time, as they lie in memory."""
    return bool(parameters["dtype"] == BF16 and parameters["stored"] != BITS)


candidates = FITS.candidates


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for the compute that writes ``name``."""
    faults = FITS.faults_of(program, name, parameters)
    if faults:
        return faults
    dtype, where = parameters["dtype"], f"rewrites: {RULE} {name}"
    if parameters["stored"] not in _LEGAL[dtype]:
        return [f"{where}: stored {parameters['stored']!r}; {dtype} is stored as "
                f"{' or '.join(map(repr, _LEGAL[dtype]))}"]
    m = FITS.matched(program, name, parameters)[1]
    if multiplies_pairs(parameters) and not m.paired:
        return [f"{where}: its rows cannot lie in pairs along the sum; choose stored {BITS!r}"]
    return [f"{where}: weights {m.weights.buffer} are beyond {LARGEST_HALF:g}, the largest f16; "
            "choose another dtype"] if exceeds(program, m, dtype) else []


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, m = FITS.matched(program, name, parameters)
    dtype, bits = parameters["dtype"], parameters["stored"] in (BITS, HALF)
    stored = BF16 if parameters["stored"] == BITS else parameters["stored"]
    program, rows = _rounded_copy(program, m.rows, dtype, stored)
    weights = m.weights
    if m.computed:
        program, weights = _rounded_copy(program, m.weights, dtype, stored)
    elif m.grouped is None:
        array = _ROUNDED[dtype](program.consts[m.weights.buffer])
        program, name = with_constant(
            program, f"{m.weights.buffer}_{dtype}",
            from_bf16(array) if (dtype, stored) == (BF16, "f32") else array, stored)
        weights = Load(name, m.weights.index, stored)
    a = zero_outside(widen_half(rows), m.guard) if bits else _as_float(
        zero_outside(rows, m.guard))
    b = m.grouped or (widen_half(weights) if bits else _as_float(weights))
    new = replace(c, body=Binary("mul", a, b))
    return update(program, steps=tuple(new if s is c else s for s in program.steps))


def exceeds(program: Program, m: SumOfProducts, dtype: str) -> bool:
    """True if the weights are beyond the range of f16, should that be the dtype."""
    return dtype == HALF and not m.computed and m.grouped is None and exceeds_half(
        program.consts[m.weights.buffer])


def _as_float(e: Expr) -> Expr:
    return e if e.dtype == "f32" else Cast("f32", e)


def _rounded_copy(program: Program, load: Load, dtype: str,
                  stored: str) -> tuple[Program, Load]:
    """(the Program with a rounded copy of a tensor, the Load of that)."""
    old = program.buffers[load.buffer]
    axes = tuple(Axis(f"i{d}", e) for d, e in enumerate(old.shape))
    whole = Load(load.buffer, axes, "f32")
    value = round_tf32(whole) if dtype == TF32 else Cast(dtype, whole)
    body = value if value.dtype == stored else Cast("f32", value)
    for s in program.consumers.get(load.buffer, ()):
        if isinstance(s, Compute) and s.axes == axes and s.body == body:
            return program, Load(s.out, load.index, stored)
    name = free_name(program.buffers, f"{load.buffer}_{dtype}")
    made = program.producer.get(load.buffer)
    reader = program.consumers[load.buffer][0]
    copy = Compute((name,), axes, (), "none", body, origin=(made or reader).origin)
    steps: list[Step] = [] if made is not None else [copy]
    for s in program.steps:
        steps += [s, copy] if s is made else [s]
    buffers = {**program.buffers, name: Buffer(name, old.shape, stored)}
    return replace(program, steps=tuple(steps), buffers=buffers), Load(name, load.index, stored)


__all__ = ["RULE", "SumOfProducts", "are_columns", "candidates", "exceeds", "faults_of",
           "multiplies_pairs", "is_whole", "match_product", "rewrite"]

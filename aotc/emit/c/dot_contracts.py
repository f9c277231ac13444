"""C text of Contract stages over u8 and s8, and which texts need the header of narrow lanes."""

import re
from collections.abc import Collection, Sequence

from aotc.emit.c.contracts import (
    contract_lines,
    epilogue_lines,
    flat_index,
    row_axes,
    row_counters,
    row_table,
    ukernel_name,
)
from aotc.emit.c.nests import indent, loops
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.text.cexpr import c_index, constant
from aotc.emit.text.env import KernelEnv
from aotc.ir.access import stride
from aotc.ir.conditions import conjuncts
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, all_of, as_expr, axes_of, substitute, walk
from aotc.ir.plan import Contract, Range
from aotc.ir.rows import row_source
from aotc.ir.simplify import simplify
from aotc.target.base import DOT_STEP

SHORTEST_RUN = 4  # bytes side by side that are worth a copy
HEADER = "aotc_narrow.h"
SIGNATURE = ("(int64_t taps, int64_t fours, const uint8_t *const *a, const int8_t *b,\n"
             "    int32_t *acc);\n")
_CALLS = re.compile(r"\baotc_(i(splat|add|sub|mul)|from_i32|to_i32|as_[ui]8|load_([ui]8|i32)(_n)?"
                    r"|store_(8|i32)(_n)?|s?dot)\(")


def uses_narrow(text: str) -> bool:
    """True if C text calls functions of ``HEADER``."""
    return _CALLS.search(text) is not None


def is_dots(c: Contract) -> bool:
    """True for a Contract over 8-bit integers."""
    return c.dtypes[0] == "u8"


def product_lines(c: Contract, env: KernelEnv, names: Names) -> list[str]:
    """C lines of a Contract of any type."""
    return _dot_lines(c, env, names) if is_dots(c) else contract_lines(c, env, names)


def _dot_lines(c: Contract, env: KernelEnv, names: Names) -> list[str]:
    nr = c.nv * c.lanes
    head, step = row_counters(c)
    prepare = row_table(c, env, names, step, "uint8_t", _outside(c, env)) \
        if c.a.mode == "rows" else _packed_rows(c, env, names, step)
    rows = [f"for (int64_t m0 = 0; m0 < rows; m0 += {c.mr}) {{"] + indent(prepare)
    panel, call = _panel(c, env), _call(c, env, names, nr)
    n_loop = f"for (int64_t n0 = {c_index(c.n.lo, 0)}; n0 < {c_index(c.n.hi, 11)}; n0 += {nr}) {{"
    if c.a.mode == "packed":
        body = head + rows + indent([n_loop] + indent(panel + call) + ["}"]) + ["}"]
    else:
        body = [n_loop] + indent(panel + head + rows + indent(call) + ["}"]) + ["}"]
    first = [f"const int64_t rows = {c_index(c.row_count, 0)};"]
    if c.a.pad:
        first.append(f"memset({env['buffer'](c.a.pad)}, {constant(c.a.packed)}, "
                     f"{c_index(c.k.axis.extent, 0)});")
    return loops(c.outer, first + body)


def _outside(c: Contract, env: KernelEnv) -> str:
    return env["buffer"](c.a.pad) if c.a.pad else ""


def _depth(c: Contract) -> tuple[int, int]:
    """(products per column, the same up to a whole step)."""
    n = constant(c.k.axis.extent)
    for t in c.taps:
        n *= constant(t.axis.extent)
    return n, -(-n // DOT_STEP) * DOT_STEP


def _packed_rows(c: Contract, env: KernelEnv, names: Names, step: Sequence[str]) -> list[str]:
    """Evaluate the rows of one register tile into scratch, zeros behind the last product."""
    (live, depth), packed = _depth(c), env["buffer"](c.a.buffer)
    body = row_axes(c) + _copied_runs(c, env, names, f"{packed} + i * {depth}")
    if depth > live:
        body.append(f"memset({packed} + i * {depth} + {live}, 0, {depth - live});")
    body += [f"a_row[i] = {packed} + i * {depth};", "if (m0 + i + 1 < rows) {"]
    body += indent(step or [";"]) + ["}"]
    return [f"int64_t {r.axis.name}_at[{c.mr}];" for r in c.m] + [
        f"const uint8_t *a_row[{c.mr}];", f"for (int i = 0; i < {c.mr}; ++i) {{"] + indent(
        body) + ["}"]


def _copied_runs(c: Contract, env: KernelEnv, names: Names, row: str) -> list[str]:
    """One row of the sum, run by run: what lies side by side in memory is copied at once, unless
    the padding cuts it."""
    inner, value = c.taps + (c.k,), c.a.packed
    load, guard, _ = row_source(value)
    at = len(inner)
    size = 1
    cond = [] if guard is None else conjuncts(guard)
    while load is not None and at and stride(load.index[0], inner[at - 1].axis) == Const(size) and (
            all(_decided_at_ends(x, [r.axis for r in inner[at - 1:]]) for x in cond)):
        at -= 1
        size *= constant(inner[at].axis.extent)
    one = _element(c, env, names, row, inner[at:])
    if load is None or size < SHORTEST_RUN:
        return loops(inner[:at], one)
    ends = [{r.axis: Const(e) for r, e in zip(inner[at:], end)}
            for end in ([0] * len(inner[at:]), [constant(r.axis.extent) - 1 for r in inner[at:]])]
    block = Scalars(env, names)
    first = simplify(substitute(load.index[0], ends[0]))
    to = simplify(substitute(flat_index(inner), ends[0]))
    copy = [f"memcpy({row} + {c_index(to, 13)}, {env['buffer'](load.buffer)} + "
            f"{block.text(first, 13)}, {size});"]
    if guard is None:
        return loops(inner[:at], block.lines + copy)
    inside = all_of(dict.fromkeys(x for e in ends for x in conjuncts(
        simplify(substitute(guard, e)))))
    assert inside is not None  # a guard has a condition at least
    test = block.text(inside, 4)
    return loops(inner[:at], block.lines + [f"if ({test}) {{"] + indent(copy) + ["} else {"]
                 + indent(one) + ["}"])


def _decided_at_ends(cond: Expr, axes: Collection[Axis]) -> bool:
    """True if a condition holds all along ``axes`` where it holds at their two ends: it is a
    comparison of index arithmetic that is linear in one of them and free of the others."""
    found = axes_of(cond) & set(axes)
    if not found:
        return True
    return len(found) == 1 and isinstance(cond, Binary) and cond.op in (
        "lt", "le", "gt", "ge") and cond.a.dtype == INDEX and not any(
            isinstance(n, Load) for n in walk(cond)) and stride(
                simplify(cond.a - cond.b), next(iter(found))) is not None


def _element(c: Contract, env: KernelEnv, names: Names, row: str,
             axes: Sequence[Range]) -> list[str]:
    """Loops over ``axes`` around one element of a packed row."""
    block = Scalars(env, names, (c.a.packed,))
    value = block.text(c.a.packed)
    at = c_index(flat_index(c.taps + (c.k,)), 13)
    return loops(axes, block.lines + [f"({row})[{at}] = {value};"])


def _panel(c: Contract, env: KernelEnv) -> list[str]:
    lane = c.n.axis
    at = simplify(substitute(c.b.offset, {lane: Axis("n0", lane.extent)}))
    return [f"const int8_t *const b_col = {env['buffer'](c.b.buffer)} + {c_index(at, 13)};"]


def _call(c: Contract, env: KernelEnv, names: Names, nr: int) -> list[str]:
    name, _ = ukernel_name(c, env["dialect"])
    _, depth = _depth(c)
    taps = as_expr(1)
    if c.a.mode == "rows":
        for t in c.taps:
            taps = taps * t.axis.extent
    per_tap = depth // constant(simplify(taps)) // DOT_STEP
    aligned = " __attribute__((aligned(64)));" if c.lanes > 1 else ";"
    return [f"int32_t acc_tile[{c.mr * nr}]{aligned}",
            f"{env['prefix']}_{name}({c_index(simplify(taps), 0)}, {per_tap}, a_row, b_col, "
            "acc_tile);"] + epilogue_lines(c, env, names, nr)


__all__ = ["HEADER", "SIGNATURE", "is_dots", "product_lines", "uses_narrow"]

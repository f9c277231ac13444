"""CUDA text of Contract stages: what the templates of the rows are filled with.

A template is the whole loop of one block: operands to shared memory step by step, multiply-adds in
registers, the epilogue from there.  Here is said where each operand's elements come from.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Template

from aotc.emit.c.half_lanes import KIND
from aotc.emit.c.loop_text import indent, loops
from aotc.emit.c.scalar_writer import ScalarWriter
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.simt.simt_writer import flat_count, unflatten
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.env import BlockEnv
from aotc.errors import UnsupportedError
from aotc.ir.category import zero_filled, zero_outside
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Load, as_expr, substitute
from aotc.ir.kernel.plan_stages import Contract, Operand
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import Range, Store
from aotc.target.kernel_rows import ProductRow

_INT32 = 1 << 31
# (flat position, ranges it counts through, C texts of their extents)
Digit = tuple[str, Sequence[Range], Sequence[str] | None]


@dataclass(frozen=True)
class Source:
    """How one element (or ``vector`` = 4 neighbours) of an operand's tile is made.

    rule: C condition for it to exist (else zero).  binds: lines before it is used.  guard: further
    condition ("" = none) after them, lines: after that.  value: the element; copy: cp.async fetches
    it, from ``pointer`` + ``at`` in global memory.  along_k: neighbouring threads take neighbouring
    steps of the sum (else neighbouring rows or columns).
    """

    rule: str
    binds: tuple[str, ...]
    guard: str
    pointer: str
    at: str
    value: str
    copy: bool
    vector: int
    along_k: bool
    lines: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Of what is fetched at once."""
        return DTYPES["f32"].size * self.vector


def contract_lines(c: Contract, env: BlockEnv, names: Names, template: Template,
                   row: ProductRow, threads: int, base: int) -> list[str]:
    """CUDA lines of a Contract on a row: ``template`` (a Jinja template) rendered for it.

    base: byte offset of the block's memory for steps of sums.
    """
    assert row.shared is not None, row.name
    kc, taps = c.k.axis.extent, as_expr(1)
    for t in c.taps:
        taps = taps * t.axis.extent
    flat = c.a.mode == "packed"  # taps and k in one: the sum's steps are counted through
    if flat:
        kc, taps = simplify(taps * kc), Const(1)
    if (upper(kc) or 0) >= _INT32:
        raise UnsupportedError(f"{c.row}: a sum over {kc} terms; at most 2^31 fit")
    row_before, rows, _, row_extents = flat_count(c.m, names)
    tm, tn = row.shared.thread
    single = c.writing.a_fetch is None  # a row whose threads read both operands in place
    text = template.render(
        **c.writing.said, mr=row.tile.mr, nr=row.tile.nr, tm=tm, tn=tn, bk=row.steps,
        teams=row.shared.teams, operand=row.a, kind=KIND.get(row.a, ""), threads=threads,
        part=c.micro.part // row.steps, base=base, rows=_signed(rows),
        row_before=row_before, again=c.again, last_stage=(c.writing.stages or 1) - 1,
        n_lo=c_index(c.n.lo, 0), n_hi=c_index(c.n.hi, 12), kc=_int(kc), taps=_int(simplify(taps)),
        lane=c.n.axis.name, table=_table(c, env, names, row_extents) if not flat else None,
        tap_rows=_times(str(upper(simplify(taps)))),
        a=None if single else _row_source(c, env, names, row_extents),
        b=None if single else _lane_source(c, env, names, kc),
        single=_single(c, env, names, row_extents) if single else None,
        epilogue=lambda acc, row: _epilogue(c, env, names, row_extents, acc, row))
    return loops(c.outer, text.splitlines(), names_in(replace(c, outer=())))


def _signed(count: str) -> str:
    """C text of type int32_t of what ``flat_count`` says."""
    if count.removesuffix("u").isdigit():
        return count.removesuffix("u")
    return f"(int32_t){count if count.isidentifier() else f'({count})'}"


def _int(e: Expr) -> str:
    """An extent as C text of type int32_t."""
    return str(e.value) if isinstance(e, Const) else f"(int32_t){c_index(e)}"


def _times(taps: str) -> str:
    """C text of the row starts of so many taps."""
    return "MR" if taps == "1" else f"{taps} * MR"


def _several_taps(c: Contract) -> bool:
    """True if rows start elsewhere for every tap."""
    return any(t.axis.extent != Const(1) for t in c.taps)


def _bind(ranges: Sequence[Range], at: str, names: Names, uses: Collection[str],
          extents: Sequence[str] | None = None) -> list[str]:
    """Lines that bind the axes of ``ranges`` named in ``uses`` at the flat position ``at``."""
    before, _, kind, counted = flat_count(ranges, names)
    texts: Sequence[str] = counted
    if extents is not None:
        before, texts = [], extents
    at = at if at.isidentifier() else f"({at})"
    return before + unflatten(ranges, texts, f"({kind}){at}", kind, names, uses)


def _table(c: Contract, env: BlockEnv, names: Names, row_extents: Sequence[str]) -> dict[str, Any]:
    """(lines, guard, offset): where row ``row`` starts at tap ``tap``."""
    block = Scalars(env, names, (c.a.offset,))
    offset = block.text(c.a.offset)
    if (env["elements"](c.a.buffer) or 0) >= _INT32:  # without a bound each call is checked
        raise UnsupportedError(f"{c.row}: {c.a.buffer} may have 2^31 elements or more; use a "
                               "packed")
    guard = "" if c.a.guard is None else Scalars(env, names).text(c.a.guard, 0)
    uses = names_in((c.a.offset, c.a.guard))
    binds = _bind(c.m, "row", names, uses, row_extents) + _bind(c.taps, "tap", names, uses)
    count = as_expr(1)
    for t in c.taps:
        count = count * t.axis.extent
    taps = any(t.axis.name in uses and t.axis.extent != Const(1) for t in c.taps)
    return {"taps": taps, "rows": _times(_int(simplify(count))), "binds": tuple(binds),
            "guard": guard, "lines": tuple(block.lines), "offset": offset}


def _row_source(c: Contract, env: BlockEnv, names: Names, row_extents: Sequence[str]) -> Source:
    """A's element (row m0 + m, step k0 + k)."""
    if c.a.mode == "rows":
        pointer, step = env["buffer"](c.a.buffer), c_index(c.a.stride, 13)
        unit = c.a.stride == Const(1)
        at = "start + k0 + k" if unit else f"start + (int64_t)(k0 + k) * {step}"
        start = f"const int32_t start = a_at[{'tap * MR + ' * _several_taps(c)}m];"
        return Source("k0 + k < kc", (start,), "start >= 0", pointer, at, f"{pointer}[{at}]",
                      **_fetched(c, "a"))
    return _expression(c, "a", c.a.packed, "m0 + m < rows && k0 + k < kc",
                       (("m0 + m", c.m, row_extents), ("k0 + k", (*c.taps, c.k), None)), env, names)


def _lane_source(c: Contract, env: BlockEnv, names: Names, kc: Expr) -> Source:
    """B's element (step k0 + k, column n0 + n)."""
    lane = c.n.axis
    if c.b.mode == "packed":
        steps = (("tap", c.taps, None), ("k0 + k", (c.k,), None)) if c.a.mode == "rows" else (
            ("k0 + k", (*c.taps, c.k), None),)
        column = Range(lane, Axis("n0", lane.extent), lane.extent)
        return _expression(c, "b", c.b.packed, f"k0 + k < kc && n0 + n < {c_index(c.n.hi, 11)}",
                           (*steps, ("n", (column,), ("n_left",))), env, names)
    pointer = env["buffer"](c.b.buffer)
    first = simplify(substitute(c.b.offset, {lane: Axis("n0", lane.extent)}))
    block = Scalars(env, names)
    start = "" if first == Const(0) else f"{block.text(first, 12)} + "
    if c.b.mode == "panel":
        tap = "(int64_t)tap * kc + " if c.a.mode == "rows" and _several_taps(c) else ""
        at = f"{start}(int64_t)({tap}k0 + k) * NR + n"
        return Source("k0 + k < kc", tuple(block.lines), "", pointer, at, f"{pointer}[{at}]",
                      **_fetched(c, "b"))
    at = f"{start}(int64_t)(k0 + k) * {c_index(c.b.stride, 13)} + n0 + n"
    return Source(f"k0 + k < kc && n0 + n < {c_index(c.n.hi, 11)}", tuple(block.lines), "",
                  pointer, at, f"{pointer}[{at}]", **_fetched(c, "b"))


def _expression(c: Contract, which: str, value: Expr, rule: str, digits: Sequence[Digit],
                env: BlockEnv, names: Names) -> Source:
    """A Source that evaluates an expression, or copies the element that it loads.  digits: (flat
    position, ranges it counts through, C texts of their extents) of the axes it uses."""
    binds: list[str] = []
    for name, ranges, extents in digits:
        binds += _bind(ranges, name, names, names_in(value), extents)
    fetched = _fetched(c, which)
    if not fetched["copy"]:
        block = Scalars(env, names, (value,))
        text = block.text(value)
        return Source(rule, (*binds, *block.lines), "", "", "", text, **fetched)
    load, guard = zero_filled(value)
    assert load is not None, value  # the Plan copies nothing else
    block = Scalars(env, names, (load.index[0],))
    pointer, at = env["buffer"](load.buffer), block.text(load.index[0])
    test = "" if guard is None else Scalars(env, names).text(guard, 0)
    # what the offset shares may be evaluated under the guard only
    before, inside = (binds, block.lines) if test else ([*binds, *block.lines], [])
    return Source(rule, tuple(before), test, pointer, at, f"{pointer}[{at}]",
                  lines=tuple(inside), **fetched)


def _fetched(c: Contract, which: str) -> dict[str, Any]:
    """How operand ``which``, "a" or "b", is fetched, as the Plan says."""
    said = c.writing.said
    return {"copy": said[f"{which}_fetch"] == "copy", "vector": said[f"{which}_width"],
            "along_k": said[f"{which}_along"] == "sum"}


def _single(c: Contract, env: BlockEnv, names: Names,
            row_extents: Sequence[str]) -> dict[str, list[str]]:
    """A row of its own: lines that bind it, that sum every SLICES-th term, and that store."""
    values: list[str] = []
    lines: list[str] = []
    used: list[Expr] = []
    for o in (c.a, c.b):
        value = o.packed if o.mode == "packed" else zero_outside(
            Load(o.buffer, (simplify(_offset(c, o)),), "f32"), o.guard)
        used.append(value)
        block = Scalars(env, names, (value,))
        values.append(block.text(value, 13))
        lines += block.lines
    k = c.k.axis.name
    inner = [f"for (int64_t {k} = slice; {k} < {c_index(c.k.axis.extent, 11)}; {k} += SLICES) {{"]
    inner += indent(lines + [f"sum += {values[0]} * {values[1]};"]) + ["}"]
    total = loops(c.taps, inner, names_in(tuple(used)))
    store = _epilogue(c, env, names, row_extents, "total", "row")["lines"]
    uses = names_in((*used, c.puts))
    return {"row": _bind(c.m, "row", names, uses, row_extents), "sum": total,
            "store": store}


def _offset(c: Contract, o: Operand) -> Expr:
    """Element offset of a row operand, a panel or direct columns at the loops' axes."""
    if o.mode == "rows":
        return o.offset + c.k.axis * o.stride
    if o.mode == "direct":
        return o.offset + c.k.axis * o.stride + c.n.axis
    flat = as_expr(0)
    for r in (*c.taps, c.k):
        flat = flat * r.axis.extent + r.axis
    nr = c.micro.nr
    return o.offset + flat * nr + c.n.axis % nr


def _epilogue(c: Contract, env: BlockEnv, names: Names, row_extents: Sequence[str], acc: str,
              row: str) -> dict[str, list[str]]:
    """(row's lines, lines) that store one element: ``acc`` is its sum, ``row`` its row."""
    value = names.fresh("acc")
    named: BlockEnv = {**env, "vars": {**env["vars"], c.acc: value}}
    inner = ScalarWriter(named, names).store(Store(c.puts))
    inner = [f"const float {value} = {acc};"] + inner
    return {"row": _bind(c.m, row, names, names_in(c.puts), row_extents), "lines": inner}

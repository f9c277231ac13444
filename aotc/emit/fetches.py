"""What the epilogue of a register tile reads, such as a residual, fetched before the tile's sums.

Its rows lie far apart: no hardware fetches them ahead, and each would be waited for after the sums.
"""

from aotc.emit.ahead import LINE
from aotc.emit.cexpr import c_index
from aotc.emit.nests import indent
from aotc.emit.slices import more
from aotc.emit.tiles import terms
from aotc.emit.values import Scalars
from aotc.ir.access import stride
from aotc.ir.expr import Axis, Const, Load, Where, axes_of, children, minimum, substitute, walk
from aotc.ir.simplify import simplify

SHORTEST_SUM = 64  # terms; with 16, nafnet, whose residuals follow such sums, takes the same time


def fetch_lines(c, env, names, plain):
    """C lines that fetch what the epilogue of the Contract's next tile reads.  plain: a row axis is
    known from the row's number, else from a table."""
    loads = _fetched(c, env)
    if not loads:
        return []
    block, columns = Scalars(env, names), c.nv * c.lanes
    lines = [f"const int64_t {r.axis.name} = {_row(r, plain)};" for r in c.m
             if any(r.axis in axes_of(x) for x in loads)]
    for x in loads:
        for column in _columns(c, x, columns):
            at = block.text(simplify(substitute(x.index[0], {c.n.axis: column})), 13)
            lines.append(f"AOTC_PREFETCH({env['buffer'](x.buffer)} + {at});")
    loop = [f"for (int64_t i = 0; i < {c.mr}; ++i) {{ /* read after the sums */"]
    lines = block.lines + loop + indent(lines) + ["}"]
    if c.slices:  # after the last one
        lines = [f"if (!({more(c)})) {{", *indent(lines), "}"]
    return lines


def _row(r, plain):
    """C text of a row axis's value in row ``i``, the last one's in those past the end."""
    if not plain:
        return f"{r.axis.name}_at[i]"
    first = [] if r.lo == Const(0) else [c_index(r.lo, 12)]
    return " + ".join([*first, "aotc_min(m0 + i, rows - 1)"])


def _fetched(c, env):
    """The epilogue's loads that differ from row to row, run along the columns and come from what
    other kernels wrote."""
    if not env["dialect"].prefetches or c.turned or terms(c) < SHORTEST_SUM:
        return []
    rows = {r.axis for r in c.m}
    found = dict.fromkeys(x for p in c.puts for x in unguarded_loads(p.value))
    return [x for x in found if x.buffer not in env["scratch"] and axes_of(x) & rows
            and stride(x.index[0], c.n.axis) == Const(1)
            and not any(isinstance(n, Load) for n in walk(x.index[0]))]


def unguarded_loads(e):
    """The f32 loads of an expression that happen whatever the conditions in it say."""
    if isinstance(e, Load):
        return [e] if e.dtype == "f32" else []
    kids = (e.cond,) if isinstance(e, Where) else children(e)
    return [x for k in kids for x in unguarded_loads(k)]


def _columns(c, load, columns):
    """Columns of a tile, one in each cache line that the load touches, none that does not exist."""
    steps = [stride(load.index[0], r.axis) for r in c.m]
    aligned = columns % (LINE // 2) == 0 and all(
        s is not None and simplify(s % LINE) == Const(0) for s in steps)
    first = Axis("n0", c.n.axis.extent)
    whole = simplify(c.n.axis.extent % columns) == Const(0)
    return [first + j if whole or not j else minimum(first + j, c.n.hi - 1)
            for j in [*range(0, columns, LINE)] + [columns - 1] * (not aligned)]

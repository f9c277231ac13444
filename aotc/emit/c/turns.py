"""Results of a contraction that lie across the lanes in memory: gathered, then transposed."""

from dataclasses import replace

from aotc.emit.c.nests import indent
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.env import KernelEnv
from aotc.ir.access import affine_stride
from aotc.ir.expr import Axis, Const, Var, minimum, substitute
from aotc.ir.plan import Contract, Put
from aotc.ir.simplify import simplify

_FIRST = "turn0"  # C variable: the first row that scratch holds


def turn_lines(c: Contract, env: KernelEnv) -> tuple[Contract, list[str], list[str]]:
    """(Contract that stores to its scratch, lines before the loop over rows, lines at the end of a
    register tile, which store what scratch holds once it is full)."""
    if not c.turned:
        return c, [], []
    put, lane, nr = c.puts[0], c.n.axis, c.nv * c.lanes
    first, i, m0 = (Var(n, "i64") for n in (_FIRST, "i", "m0"))
    inside = simplify((m0 - first + i) * nr + lane - Axis("n0", lane.extent))
    ends = [m0 + c.mr, Var("rows", "i64")]
    start = simplify(substitute(put.offset, {lane: Axis("n0", lane.extent),
                                             **{r.axis: r.lo for r in c.m}}) + first)
    columns = simplify(minimum(c.n.hi - Axis("n0", lane.extent), Const(nr)))
    store = env["dialect"].lines(
        "transposed", env["buffer"](c.turned), str(nr),
        f"{env['buffer'](put.buffer)} + {c_index(start, 13)}",
        c_index(affine_stride(put.offset, lane), 0),
        f"{c_index(simplify(minimum(*ends)), 12)} - {_FIRST}", c_index(columns, 0))
    full = f"m0 + {c.mr} >= rows || m0 + {c.mr} - {_FIRST} == {c.turned_rows}"
    flush = [f"if ({full}) {{"] + indent(store + [f"{_FIRST} = m0 + {c.mr};"]) + ["}"]
    return replace(c, puts=(Put(c.turned, inside, put.value),)), [
        f"int64_t {_FIRST} = 0;"], flush

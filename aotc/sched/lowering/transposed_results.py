"""Contractions whose results lie across the lanes in memory (channels of an image that is stored
channel by channel): rows are gathered in scratch and stored by transposed blocks.
"""

from collections.abc import Sequence
from dataclasses import replace

from aotc.ir.access import stride
from aotc.ir.expr import Const, Expr
from aotc.ir.kernel.plan_stages import Contract, Turned
from aotc.ir.simplify import same, simplify
from aotc.ir.statements import Range
from aotc.sched.items.context import Context
from aotc.sched.rows.exchange import exchange_row


def turned(ctx: Context, contract: Contract) -> Contract:
    """The Contract with scratch for its results where that pays: one output of f32, lanes that do
    not lie side by side in it, rows that do; not in memory that has no room for it."""
    if exchange_row(ctx.target) is None or ctx.target.lanes == 1 or contract.micro.mr == 1 or (
            contract.slices):
        return contract
    if contract.writing.order == "rows" or (
            contract.a.mode == "packed" and contract.b.mode != "packed"):
        return contract  # its panels run inside the loop over rows
    if len(contract.puts) != 1 or contract.puts[0].value.dtype != "f32":
        return contract
    at = contract.puts[0].offset
    step = stride(at, contract.n.axis)
    if step is None or same(step, Const(1)) or not _side_by_side(contract.m, at):
        return contract
    machine = ctx.target.machine
    rows = -(-machine.tuning.turned_rows // contract.micro.mr) * contract.micro.mr
    size = rows * contract.micro.nr
    if machine.managed and isinstance(ctx.slab, int) and (
            ctx.slab + 4 * size > machine.near.capacity):
        return contract
    name = ctx.add_scratch("turned", "f32", size)
    return replace(contract, turned=Turned(name, rows))


def _side_by_side(ranges: Sequence[Range], offset: Expr) -> bool:
    """True if neighbouring rows, counted through ``ranges``, are neighbours at ``offset``."""
    step: Expr = Const(1)
    for r in reversed(ranges):
        count = simplify(r.hi - r.lo)
        found = stride(offset, r.axis)
        if count != Const(1) and (found is None or not same(found, step)):
            return False
        step = simplify(step * count)
    return True

"""How the products of streams are written: blocks of both come to a block's memory together."""

from collections.abc import Collection
from dataclasses import replace

from aotc.ir.kernel.plan_stages import Stream
from aotc.ir.schedule import Group
from aotc.sched.cost.block_cost import pick_cheapest
from aotc.sched.expand.expansion import with_writing
from aotc.sched.lowering.group_to_stages import Staged
from aotc.sched.lowering.operand_ways import scratch_room, ways_left
from aotc.sched.text_choices.block_writing import way_cost
from aotc.target.base import Target


def stream_writing(group: Group, target: Target, found: Staged, lined: Collection[str]) -> Group:
    """A group that streams, staged, with the choices of both products filled in: as many stages as
    their rows usually have.  lined: buffers that begin at a multiple of 16 bytes outside the
    block's memory."""
    (stage,), (name,) = found.kernel.stages, found.owners
    stream = with_writing(stage, name, group)
    assert isinstance(stream, Stream), stream
    said = next((n for c in stream.products if (n := c.writing.stages)), None)
    scratch, choices = scratch_room(found.kernel), dict(group.choices)
    for owner, c, sides in zip((stream.owner, name), stream.products, ("ab", "b")):
        row, chosen = target.product_row(c.row), dict[str, int | str]()
        assert row.staging is not None, row.name
        for which in sides:
            ways = ways_left(c, which, row, scratch, lined)
            costs = [way_cost(c, which, w, target) for w in ways]
            chosen |= pick_cheapest(ways, costs, 0).said(which)
        chosen |= {"stages": said or row.staging.usual} | c.writing.said
        choices[owner] = group.choice(owner).with_said(chosen)
    return replace(group, choices=choices)


__all__ = ["stream_writing"]

"""Results that lie across the lanes, planes of an image, are stored few at a time."""

import pytest
from te_programs import Maker, ax

from aotc.ir.expr import Sym
from aotc.ir.layout import Layout, Reorder
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.choose.stores_across_lanes import lanes_across
from aotc.sched.model.stages import group_stages
from aotc.target import get_target

FREE, LAST = Sym("w", 8, 512), Layout((Reorder((1, 2, 0)),))


@pytest.mark.parametrize("channels, width, loops, layout, parts", [
    (21, FREE, {"lanes": "c"}, None, {"c": (7,)}), (64, FREE, {"lanes": "c"}, None, {"c": (7,)}),
    (10, FREE, {"lanes": "c"}, None, {"c": (5,)}), (7, FREE, {"lanes": "c"}, None, {}),
    (21, 384, {"lanes": "c"}, None, {}),  # a stride that the cost knows
    (21, FREE, {"lanes": "c"}, LAST, {}), (21, FREE, {"lanes": "j"}, None, {}),
    (21, FREE, {"lanes": "c", "block": "j"}, None, {}), (21, FREE, {}, None, {})])
def test_planes_a_free_number_of_elements_apart(channels, width, loops, layout, parts):
    m = Maker()
    c, i, j = ax("c", channels), ax("i", 256), ax("j", width)
    m.input("x", 256, width, channels)
    m.step("y", (c, i, j), m.ref("x", i, j, c) * 2.0)
    p = m.done("y")
    group = Group("g", ("y",), ("y",), "y", choices={"y": StageChoice(**loops)})
    anchor, = group_stages(p, group)
    assert lanes_across(p, get_target("x86-64-v4"), group, anchor, {
        "y": layout} if layout else {}) == parts

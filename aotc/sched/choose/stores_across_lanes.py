"""Lanes that a work item stores across: whose results lie in lines of their own."""

from collections.abc import Mapping

from aotc.ir.access import offset_of, stride
from aotc.ir.expr import Sym, walk
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage
from aotc.target.base import Target


def lanes_across(program: Program, target: Target, group: Group, anchor: Stage,
                 layouts: Mapping[str, Layout]) -> dict[str, tuple[int]]:
    """{lane axis of a group's anchor: its extent in a work item} where elementwise results lie a
    free number of elements apart along it, as planes of an image do: that may be a multiple of a
    page, which puts all their lines into one set of a cache.  Nearly equal parts, of fewer lines
    than a set holds; {} where all of them are."""
    choice = group.choice(anchor.name)
    axis = next((a for a in anchor.axes if a.name == choice.lanes), None)
    if axis is None or anchor.fold != "none" or choice.block:
        return {}  # blocks are stored by lines
    steps = [stride(offset_of(o.index, program.shape(o.buffer), layouts.get(o.buffer)), axis)
             for o in anchor.outputs if o.buffer in group.outputs]
    if not any(isinstance(n, Sym) for s in steps if s is not None for n in walk(s)):
        return {}
    extent, most = estimate(axis.extent), target.tuning.lines_across
    parts = -(-extent // most)
    return {axis.name: (-(-extent // parts),)} if parts > 1 else {}

"""Moves of what a stage that slides keeps, as nests."""

from collections.abc import Iterable
from dataclasses import replace

from aotc.ir.expr import Axis, Const, Load, as_expr
from aotc.ir.kernel.plan_stages import Nest
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import StageChoice
from aotc.sched.items.context import Context, scratch_order
from aotc.sched.lowering.lower_nest import lower_nest
from aotc.sched.model.boxes import Box
from aotc.sched.model.slide import Kept
from aotc.sched.model.stages import Output, Stage


def lower_kept(ctx: Context, kept: Iterable[Kept]) -> list[Nest]:
    """The nests that move what a stage keeps to the front of its scratch, rows in order."""
    nests = []
    for k in kept:
        dims = ctx.local[k.buffer]
        axes = tuple(Axis(f"r{d}", as_expr(n)) for d, (_, n) in enumerate(dims))
        here = tuple(simplify(lo + a) for a, (lo, _) in zip(axes, dims))
        there = here[:k.dim] + (simplify(here[k.dim] + k.shift),) + here[k.dim + 1:]
        value = Load(k.buffer, there, ctx.program.dtype(k.buffer))
        stage = Stage(f"{k.buffer}_kept", axes, (), "none", value, (),
                      (Output(k.buffer, here, value),), ())
        lane = axes[scratch_order(ctx.schedule.layouts.get(k.buffer), len(dims))[-1]]
        rows = tuple(u for u in ctx.target.rows("move") if value.dtype in u.stored)
        row = (rows or ctx.target.rows("loops"))[0]
        # whole rows are simpler, where nobody asks what else lies there
        exact = ctx.target.machine.on_copies
        box: Box = {a: (Const(0), last if exact else simplify(a.extent - 1))
                    for a, last in zip(axes, k.last)}
        box[axes[k.dim]] = (Const(0), simplify(k.count - 1))
        choices = ctx.group.choices | ({stage.name: StageChoice(lanes=lane.name)} if rows else {})
        nests += lower_nest(replace(ctx, group=replace(ctx.group, choices=choices)), stage, row,
                            box)
    return nests


__all__ = ["lower_kept"]

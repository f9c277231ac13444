"""A map whose loops run over the digits of an axis, where its loads take that axis apart.

A channel shuffle into the caller's channels-first tensor reads ``x[h, w, c % 2 * 58 + c // 2]``:
along ``c`` nothing lies side by side.  With ``c = 2*c_0 + c_1`` it reads
``x[h, w, c_1 * 58 + c_0]`` and stores to ``y[2*c_0 + c_1, h, w]``, the same place as before:
neighbours along ``c_0`` are neighbours in memory.  The loops change; the axes of the stage, of
which tiles and boxes speak, do not.
"""

from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.expr import Const, Expr, substitute
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import StageChoice
from aotc.passes.digits import Digits, axis_digits
from aotc.sched.model.boxes import Box
from aotc.sched.model.stages import Output, Stage


def digit_axes(stage: Stage) -> dict[str, Digits]:
    """{name of an axis: ((digit, weight), ...) outermost first} of the axes that the loads of a map
    with one output take apart; {} for other stages."""
    if stage.fold != "none" or len(stage.outputs) != 1:
        return {}
    names = [a.name for a in stage.axes]
    found = ((a.name, axis_digits(stage.outputs[0].value, a, names)) for a in stage.axes)
    return {name: digits for name, digits in found if digits}


def split_axis(stage: Stage, name: str) -> Stage:
    """The Stage with the axis ``name`` of ``digit_axes`` replaced by its digits."""
    digits = digit_axes(stage)[name]
    at = next(i for i, a in enumerate(stage.axes) if a.name == name)
    value: dict[Expr, Expr] = {stage.axes[at]: simplify(sum((a * w for a, w in digits), Const(0)))}

    def here(e: Expr) -> Expr:
        return simplify(substitute(e, value))

    axes = stage.axes[:at] + tuple(a for a, _ in digits) + stage.axes[at + 1:]
    outputs = tuple(Output(o.buffer, tuple(map(here, o.index)), here(o.value))
                    for o in stage.outputs)
    return replace(stage, axes=axes, body=here(stage.body), outputs=outputs)


def loop_stage(stage: Stage, choice: StageChoice) -> Stage:
    """The Stage over the axes that its loops run over: what a Group's ``loops`` say of it."""
    return split_axis(stage, choice.digits) if choice.digits else stage


def loop_box(stage: Stage, box: Box, choice: StageChoice) -> Box:
    """The box of ``stage`` over the axes of ``loop_stage``.  ScheduleError if the axis with digits
    is not whole in it: its digits do not count through a part."""
    if not choice.digits:
        return box
    out: Box = {}
    for a, ends in box.items():
        if a.name != choice.digits:
            out[a] = ends
            continue
        if tuple(map(simplify, ends)) != (Const(0), simplify(a.extent - 1)):
            raise ScheduleError([f"stage {stage.name}: digits {a.name!r} in a box that has a part "
                                 "of the axis; leave it out of the group's tile and run"])
        out |= {x: (Const(0), simplify(x.extent - 1)) for x, _ in digit_axes(stage)[a.name]}
    return out


__all__ = ["split_axis", "digit_axes", "loop_box", "loop_stage"]

"""Rewrites of a Program that a Schedule names: ``(rule, compute, parameters)``, applied in order.

    ("winograd", "conv_sum", {"oh": 4, "ow": 4})

A rule keeps what the Program computes (up to roundings) and its inputs and outputs; groups, tiles
and layouts of the Schedule speak of the rewritten Program.  ``Program.rewrites`` remembers what
has been applied, so that applying a Schedule's rewrites twice changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.program import Branch, Loop, Program
from aotc.ir.schedule import Schedule
from aotc.passes import inline_rule, layout_rule, recompute, winograd
from aotc.passes.images import polyphase, unfold
from aotc.passes.precision import (
    group_weights,
    half_columns,
    integer_rows,
    narrow_operands,
    store_halves,
)
from aotc.passes.precision.rounding_table import ROUNDING
from aotc.passes.regions import with_bodies
from aotc.passes.sums import join_columns, split_k, split_keys

# rule -> (faults of (program, compute, parameters), Program with it applied)
Parameters = Mapping[str, Any]
RULES: dict[str, tuple[Callable[[Program, str, Parameters], list[str]],
                       Callable[[Program, str, Parameters], Program]]] = {
    "winograd": (winograd.faults_of, winograd.rewrite),
    "polyphase": (polyphase.faults_of, polyphase.rewrite_resampling),
    "unfold": (unfold.faults_of, unfold.rewrite),
    "layout": (layout_rule.faults_of, layout_rule.rewrite_layout),
    "recompute": (recompute.faults_of, recompute.rewrite_readers),
    inline_rule.RULE: (inline_rule.faults_of, inline_rule.rewrite),
    half_columns.RULE: (half_columns.faults_of, half_columns.rewrite),
    narrow_operands.RULE: (narrow_operands.faults_of, narrow_operands.rewrite),
    group_weights.RULE: (group_weights.faults_of, group_weights.rewrite),
    integer_rows.RULE: (integer_rows.faults_of, integer_rows.rewrite),
    store_halves.RULE: (store_halves.faults_of, store_halves.rewrite),
    split_k.RULE: (split_k.faults_of, split_k.rewrite),
    split_keys.RULE: (split_keys.faults_of, split_keys.rewrite_weighed),
    join_columns.RULE: (join_columns.faults_of, join_columns.rewrite_products)}


def apply_rewrites(program: Program, rewrites: Sequence[Any]) -> Program:
    """The Program with ``rewrites`` applied; of those it has already, which come first, only the
    rest.  What it became last is kept with it (``forget_rewritten``).  ScheduleError lists what
    cannot be applied, with the legal choices."""
    wanted, done = tuple(map(_key, rewrites)), len(program.rewrites)
    if program.rewrites == wanted:
        return program
    known = program.known("rewritten")
    for first, made in known.items():
        if first == wanted[:len(first)]:
            return apply_rewrites(made, rewrites)
    if program.rewrites != wanted[:done]:
        raise ScheduleError(["rewrites: the program has others applied: "
                             + ", ".join(f"{r} of {c}" for r, c, _ in program.rewrites)])
    faults: list[str] = []
    staged = winograd.stages_of_forms(program)
    for item in rewrites[done:]:
        wrong = _faults(program, item, staged)
        faults += wrong
        if not wrong:
            rule, compute, parameters = item
            program = RULES[rule][1](program, compute, parameters)
            if rule == "winograd":
                staged |= {s.out: compute for s in winograd.stages_of(program, compute)}
    if faults:
        raise ScheduleError(faults)
    known.clear()
    rewritten: Program = replace(program, rewrites=wanted)
    known[wanted] = rewritten
    return rewritten


def forget_rewritten(program: Program) -> None:
    """Keep no longer what ``apply_rewrites`` made of a Program: its weights take memory."""
    program.known("rewritten").clear()


def apply_schedule_rewrites(program: Program, schedule: Schedule) -> Program:
    """The Program with the rewrites of a Schedule applied, in bodies of regions too."""
    program = apply_rewrites(program, schedule.rewrites)
    steps = tuple(with_bodies(s, [apply_schedule_rewrites(b, own) for b, own in zip(
        s.bodies, schedule.regions[s.name])]) if isinstance(s, (Loop, Branch)) else s
        for s in program.steps)
    return replace(program, steps=steps)


def _key(item: Any) -> Any:
    """A rewrite as a hashable value."""
    if not _is_item(item):
        return repr(item)
    return item[0], item[1], tuple((k, _frozen(v)) for k, v in sorted(item[2].items()))


def _is_item(item: Any) -> bool:
    return isinstance(item, (tuple, list)) and tuple(map(type, item)) == (str, str, dict)


def _frozen(value: Any) -> Any:
    """Lists, as JSON gives them, as tuples; an object, which no parameter is, as its text."""
    if isinstance(value, dict):
        return repr(value)
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _faults(program: Program, item: Any, staged: Mapping[str, str]) -> list[str]:
    """What speaks against an item.  staged: {stage of a Winograd form: its convolution}; its
    transforms would magnify what is rounded between them."""
    if not _is_item(item):
        return [f"rewrites: {item!r}; an item is [rule, compute, parameters]"]
    rule, compute, parameters = item
    if rule not in RULES:
        return [f"rewrites: rule {rule!r}; choose from {', '.join(RULES)}"]
    if rule in ROUNDING and compute in staged:
        direct = staged[compute]
        return [f"rewrites: {rule} {compute}: a stage of the Winograd form of {direct}, which is "
                f"f32; remove this item, or the form's and name {direct} here"]
    return RULES[rule][0](program, compute, parameters)


__all__ = ["RULES", "apply_rewrites", "forget_rewritten", "apply_schedule_rewrites"]

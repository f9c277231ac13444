"""Stages as statements: the last step of lowering, after which a kernel is one small program."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aotc.ir.expr import Binary, Const, Expr
from aotc.ir.kernel.plan_kernels import Ahead, Kernel, LoweredKernel, Steps
from aotc.ir.kernel.plan_stages import Call, Contract, HeldRows, Nest, Stage, Stream, Unrolled
from aotc.ir.plan import Place
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    NEXT,
    STEP,
    Barrier,
    Body,
    Declare,
    For,
    If,
    Let,
    Scope,
    Section,
    Stmt,
    Update,
)
from aotc.sched.expand.block.block_products import block_product
from aotc.sched.expand.block.block_steps import BlockSteps
from aotc.sched.expand.block.block_streams import stream_product
from aotc.sched.expand.block.few_rows import plain_contract
from aotc.sched.expand.block.row_teams import held_rows
from aotc.sched.expand.blocks import shared_nest
from aotc.sched.expand.contracts import expand_contract
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import expand_nest, expand_unrolled
from aotc.sched.expand.prune import prune_body
from aotc.target.base import Target


def expand_kernel(kernel: LoweredKernel, target: Target, places: Mapping[str, Place]) -> Kernel:
    """The Kernel with the statements of a lowered one's stages.  places: of what lies outside its
    scratch."""
    expansion = expansion_of(kernel, target)
    out: list[Stmt] = []
    around = dict(kernel.around)
    barriers = kernel.block.barriers if kernel.block is not None else ()
    for number, s in enumerate(kernel.stages):
        out += [Barrier()] if number in barriers else []
        out += around.get(number, ())
        says = kernel.about.says[number] if number < len(kernel.about.says) else ()
        expansion.where = f"kernel {kernel.name}, stage {number}"
        out.append(replace(_section(s, expansion, kernel, target, places), says=says))
    body: Body = (*out, *around.get(len(kernel.stages), ()))
    if kernel.steps is not None:
        body = _stepped(kernel.steps, body)
    return Kernel(kernel, prune_body((*(Let(v, e) for v, e in kernel.let), *body)))


def expansion_of(kernel: LoweredKernel, target: Target) -> Expansion:
    """What expanding the stages of a kernel needs."""
    return Expansion(target.vectors, target.tuning.line_floats, {s.name for s in kernel.scratch} | {
        p.buffer for s in kernel.stages for p in s.puts})


def _stepped(steps: Steps, body: Body) -> Body:
    """The body of a work item in its steps.  What a step leaves to the next is 0 in the first one;
    or kept from the item before, unless this one's ``start`` is 0."""
    carried = tuple(v for v, _ in steps.carried)
    first: Body = tuple(Declare(v, Const(0)) for v in carried)
    if steps.start is not None:
        first = (If(Binary("eq", steps.start, Const(0)),
                    tuple(Update((v,), (Const(0),)) for v in carried)),)
    after = tuple(Update((v,), (e,)) for v, e in steps.carried)
    lets: Body = tuple(Let(v, e) for v, e in steps.let)
    if steps.ahead is not None:
        first = (*first, *steps.ahead.once, Scope(_next(steps.ahead, Const(0), (0,))))
        more = simplify(STEP + 1)
        lets = (*lets, If(Binary("lt", more, steps.count), _next(steps.ahead, more, (0, 1))))
    return (*first, For(STEP, Const(0), steps.count, (*lets, *body, *after)))


def _next(ahead: Ahead, number: Expr, places: Sequence[int]) -> Body:
    """Copies of the boxes of step ``number``, which has one of ``places``."""
    lets = (Let(NEXT, number), *(Let(v, e) for v, e in ahead.lets))
    if len(places) == 1:
        return (*lets, *ahead.copies[places[0]])
    return (*lets, If(Binary("eq", NEXT % 2, Const(0)), *ahead.copies))


def _section(stage: Stage, expansion: Expansion, kernel: LoweredKernel, target: Target,
             places: Mapping[str, Place]) -> Section:
    """The statements of one stage."""
    if not kernel.threads:
        apart = len(kernel.stages) > 1 and isinstance(stage, Contract) and bool(
            expansion.how(stage, "apart"))
        return Section(_title(stage, "lanes"), _EXPAND[type(stage)](stage, expansion), apart)
    base = kernel.slab_bytes
    assert isinstance(base, int), base  # lowering makes no other scratch for blocks of threads
    followed = stage is not kernel.stages[-1]
    if isinstance(stage, Nest):
        return Section(_title(stage, "columns"), shared_nest(
            stage, expansion, target.lanes, base, followed))
    if isinstance(stage, HeldRows):
        return Section(f"rows in registers of {stage.size} threads each", held_rows(
            stage, expansion, target.lanes, followed))
    if isinstance(stage, Call):
        return Section(stage.row, (stage,))
    if isinstance(stage, Stream):
        rows = target.product_row(stage.row), target.product_row(stage.values.row)
        return Section(_title(stage, "columns"), stream_product(stage, rows, kernel.threads, base))
    assert isinstance(stage, Contract), stage  # its target has no rows of other kinds
    block = BlockSteps(plain_contract(stage), target.product_row(stage.row), kernel.threads, base)
    sizes = {s.name: s.elements for s in kernel.scratch} | {
        b: p.elements for b, p in places.items()}
    lined = {b for b, p in places.items() if p.storage in ("arena", "weights") or (
        target.aligned and p.onnx and p.storage in ("input", "output"))}
    return Section(_title(stage, "columns"), block_product(
        expansion, block, sizes, lined, followed))


def _alone(stage: Call, expansion: Expansion) -> Body:
    return (stage,)


_EXPAND: dict[type[Stage], Callable[[Any, Expansion], Body]] = {
    Nest: expand_nest, Unrolled: expand_unrolled, Contract: expand_contract, Call: _alone}


def _title(stage: Stage, columns: str) -> str:
    if isinstance(stage, Stream):
        keys = f"{stage.scores.micro.nr} of {stage.values.k.axis.name} at a time"
        return f"{_title(stage.scores, columns)}; {keys}; {_title(stage.values, columns)}"
    if isinstance(stage, Contract):
        rows = ", ".join(r.axis.name for r in stage.m) or "one row"
        return f"{stage.row}: rows {rows}, {columns} {stage.n.axis.name}, sum over " + ", ".join(
            r.axis.name for r in stage.taps + (stage.k,))
    vector = getattr(stage, "vector", "")
    if not vector or columns == "columns" and not (isinstance(stage, Nest) and stage.folds_lanes):
        return stage.row
    return f"{stage.row}: {'lanes' if columns == 'lanes' else 'threads'} along {vector}"

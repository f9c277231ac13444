"""A Program as the plain graph that instances are decided on.

A node is a stage of the groups connected at register level: what runs in one loop nest in any case.
"""

from collections.abc import Mapping, Sequence
from math import prod

from aotc.ir.category import category
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Binary, Const, Expr, axes_of, depends_on_data
from aotc.ir.program import Program
from aotc.ir.read_boxes import interval
from aotc.ir.schedule import Group
from aotc.ir.simplify import simplify, to_poly
from aotc.sched.accelerator.instances.cost import LOOKUP
from aotc.sched.accelerator.instances.tensor_graph import (
    INPUT,
    Read,
    ReadWindow,
    TensorGraph,
    TensorNode,
    whole_window,
)
from aotc.sched.choose.connect import register_groups
from aotc.sched.model.flops_and_bytes import group_flops
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.tilegraph import order_groups

CALL = "call"  # kind of nodes that are no tensor expression
Dims = Mapping[Axis, tuple[int, int]]  # axis -> (dimension of the output, what it is divided by)


def from_program(program: Program, sizes: Mapping[str, int] | None = None,
                 groups: Sequence[Group] | None = None) -> TensorGraph:
    """The Graph of a Program; symbolic extents have their typical value.

    sizes: bytes per element of dtypes that are stored in another width, as {"f32": 2}.  groups:
    of the Program (None: those connected at register level)."""
    width = {name: row.size for name, row in DTYPES.items()} | dict(sizes or {})
    found = order_groups(program, groups if groups is not None else register_groups(program))
    nodes = [TensorNode(b, _extents(program, b), width[program.dtype(b)], kind=INPUT)
             for b in program.inputs]
    for g in found:
        stages = group_stages(program, g)
        for s in stages:
            nodes += _stage_nodes(program, s, width)
        if not stages:
            nodes += _call_nodes(program, g, width)
    return TensorGraph(tuple(nodes))


def _extents(program: Program, buffer: str) -> tuple[int, ...]:
    return tuple(estimate(n) for n in program.shape(buffer)) or (1,)


def _stage_nodes(program: Program, stage: Stage, width: Mapping[str, int]) -> list[TensorNode]:
    """One Node per output of a stage; the first one does the work."""
    nodes: list[TensorNode] = []
    for i, o in enumerate(stage.outputs):
        dims = dict(filter(None, (_axis_of(e, d) for d, e in enumerate(o.index))))
        reads, weights, shared, lookup = _reads(program, stage, dims, width)
        kind = category(stage.axes, stage.raxes, stage.fold, stage.body,
                        tuple(x.value for x in stage.outputs))
        products = kind in ("contraction", "dot") or (
            kind == "window" and isinstance(stage.body, Binary) and stage.body.op == "mul")
        nodes.append(TensorNode(
            o.buffer, _extents(program, o.buffer), width[program.dtype(o.buffer)], reads,
            0 if i else weights, 0 if i else estimate(group_flops([stage])),
            LOOKUP if lookup else kind, 1 if i else len(stage.computes),
            int(products and not i), o.buffer in program.results, shared=shared))
    return nodes


def _axis_of(index: Expr, dimension: int) -> tuple[Axis, tuple[int, int]] | None:
    """(axis, (dimension, c)) where the axis is the dimension of the output divided by c: of an
    index that is the axis (c is 1), or that is c times the axis and another one below c."""
    poly = to_poly(index)
    names = {m[0]: c for m, c in poly.items() if len(m) == 1 and isinstance(m[0], Axis)}
    if len(names) != len(poly):
        return None
    if len(names) == 1 and 1 in names.values():
        return next(iter(names)), (dimension, 1)
    if len(names) == 2:
        (inner, one), (outer, c) = sorted(names.items(), key=lambda x: x[1])
        if one == 1 and c > 1 and inner.extent == Const(c):
            return outer, (dimension, c)
    return None


def _reads(program: Program, stage: Stage, dims: Dims, width: Mapping[str, int]
           ) -> tuple[tuple[Read, ...], int, tuple[int, ...], bool]:
    """(Reads of tensors, bytes of constants read, dimensions that the largest constant has, whether
    data name rows of constants)."""
    reads: dict[Read, None] = {}
    largest: tuple[int, tuple[int, ...]] = 0, ()
    weights, lookup = 0, False
    axes = (*stage.axes, *stage.raxes)
    ranges = {a: (a, a) for a in dims}
    for load in stage.loads():
        shape = _extents(program, load.buffer)
        if program.buffers[load.buffer].role == "const":
            touched = estimate_volume(a.extent for a in axes if a in axes_of(load))
            size = min(prod(shape), touched) * width[program.dtype(load.buffer)]
            weights += size
            own = tuple(sorted({dims[i][0] for i in load.index
                                if isinstance(i, Axis) and dims.get(i, (0, 0))[1] == 1}))
            largest = max(largest, (size, own))
            lookup = lookup or any(depends_on_data(i) for i in load.index)
            continue
        windows = tuple(_window(i, ranges, dims, n) for i, n in zip(load.index, shape))
        reads[Read(load.buffer, windows or (whole_window(1),))] = None
    return tuple(reads), weights, largest[1], lookup


def _window(index: Expr, ranges: Mapping[Axis, tuple[Expr, Expr]], dims: Dims,
            extent: int) -> ReadWindow:
    """The Window of one index: exact where it is affine in the output's axes, or such divided by
    a number; else the whole dimension."""
    low, high = interval(index, ranges)
    if low is None or high is None:
        return whole_window(extent)
    first, last = _affine(low, dims), _affine(high, dims)
    if first is not None and last is not None and first[0] == last[0] and first[2] == last[2]:
        by = max([dims[a][1] for a, _ in first[0]], default=1)
        terms = tuple(sorted((dims[a][0], c) for a, c in first[0]))
        if by == 1:
            return ReadWindow(terms, first[1], last[1], first[2])
        if len(terms) == 1 and terms[0][1] == 1 and first[2] == 1:
            return ReadWindow(terms, first[1] * by, last[1] * by, by)
    return whole_window(extent)


def _affine(e: Expr, dims: Dims
            ) -> tuple[tuple[tuple[Axis, int], ...], int, int] | None:
    """(terms, constant, divisor) of (sum of terms + constant) // divisor; None if it is not."""
    e = simplify(e)
    if isinstance(e, Binary) and e.op == "floordiv" and isinstance(e.b, Const):
        inner = _affine(e.a, dims)
        return (inner[0], inner[1], e.b.value) if inner and inner[2] == 1 else None
    terms: dict[Axis, int] = {}
    constant = 0
    for mono, c in to_poly(e).items():
        if not mono:
            constant = c
        elif len(mono) == 1 and isinstance(mono[0], Axis) and mono[0] in dims:
            terms[mono[0]] = c
        else:
            return None
    return tuple(sorted(terms.items(), key=lambda x: x[0].name)), constant, 1


def _call_nodes(program: Program, group: Group, width: Mapping[str, int]) -> list[TensorNode]:
    """Nodes of a library call or a region, which reads all of its inputs."""
    step = program.producer[group.computes[0]]
    tensors = [b for b in dict.fromkeys(step.inputs) if program.buffers[b].role != "const"]
    reads = tuple(Read(b, tuple(whole_window(n) for n in _extents(program, b))) for b in tensors)
    weights = sum(prod(_extents(program, b)) * width[program.dtype(b)] for b in step.inputs
                  if b not in tensors)
    return [TensorNode(o, _extents(program, o), width[program.dtype(o)], reads, 0 if i else weights,
                       kind=CALL, output=o in program.results)
            for i, o in enumerate(step.outs)]

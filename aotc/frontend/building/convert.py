"""Graph -> Program: every node's function is called with a Builder, then outputs are bound."""

import math
from collections import abc
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import reduce

from aotc.errors import AotcError, ModelError, UnsupportedError
from aotc.frontend.building import stored
from aotc.frontend.building.bodies import attempt
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.counted import evaluate_constants
from aotc.frontend.building.data_axes import choose_axes
from aotc.frontend.building.extents import check_extents
from aotc.frontend.building.half import call
from aotc.frontend.building.registry import Build, lookup
from aotc.frontend.building.rules import OUTSIDE
from aotc.frontend.building.values import Absent, Result, Sequence, Val, Value
from aotc.frontend.counted.counted_axes import EXACT, build_along_axes, has_numbers
from aotc.frontend.counted.counted_forms import build_by_form
from aotc.frontend.counted_rows import build_along_rows, meet_rows
from aotc.frontend.counted_sizes import expect_declared, with_numbers
from aotc.frontend.embedding_bag import folds_of_bags
from aotc.frontend.fold_norm import fold_batch_norm
from aotc.frontend.graph import Graph, Node, shorten, show_type
from aotc.frontend.loops.repeats import look_ups_of_repeats
from aotc.frontend.masked import choices_by_mask
from aotc.frontend.read.definitions import build_by_definition
from aotc.frontend.read.identifiers import Names
from aotc.frontend.read.validate import LARGEST
from aotc.frontend.refusals import UNKNOWN, is_unknown, parts_of, raise_refused, refuse_unknown
from aotc.frontend.row_values import Found
from aotc.frontend.shape_inputs import enter_settled
from aotc.ir.bundle import Part
from aotc.ir.dtypes import CHARS, DTYPES, TEXT
from aotc.ir.expr import Binary, Const, Expr, compare
from aotc.ir.library import HOSTED
from aotc.ir.program import Buffer, Check, Program, update
from aotc.ir.simplify import lower, proves, simplify, upper
from aotc.passes.regions import all_steps

EARLY = 8  # a trial build may end in this part of the nodes


def to_program(graph: Graph, library: Collection[str] = HOSTED,
               built: Builder | None = None) -> Program:
    """The Program of a Graph.  ``library``: kernels of ``ir/library.py`` that the target has;
    without, all is tensor expressions.  ``built``: a trial build of the same Graph, which is used
    up where it is what another build would be.

    Every Program output is written by a step of its own.  Raises UnsupportedError, listing every
    node that is refused, ModelError for the first that contradicts the model.
    """
    folded = fold_batch_norm(graph)
    b = built if built and folded is graph and not (
        built.partial or {*library} ^ {*HOSTED}) else build(folded, library=library)
    graph = folded
    outputs = _bind_outputs(graph, b) + _bind_counts(graph, b)
    _check_sizes(b)
    check_extents(all_steps(b.steps), b.buffers, b.checks)
    b.checks.update(_listed(graph))
    program = Program(Names().claim(graph.name or "model"), tuple(b.preset[t.name]
                                                       for t in graph.inputs), outputs,
                      b.buffers, b.consts, tuple(b.steps), graph.syms,
                      tuple(Check(c, why) for c, why in b.checks.items()), halves=b.halves,
                      texts=_texts(b), lists=_parts(graph, b))
    return update(program)


def _listed(graph: Graph) -> dict[Expr, str]:
    """{condition: what it says} of dimensions that have some extents of their range only."""
    out: dict[Expr, str] = {}
    for r in graph.dims:
        tests = [compare("eq", r.sym, Const(n)) for n in r.only]
        if tests:
            any_of = reduce(lambda a, b: Binary("or", a, b), tests)
            out[any_of] = f"{r.sym.name} is one of {r.extents}"
    return out


def _texts(b: Builder) -> tuple[str, ...]:
    """The texts, where the caller sees strings."""
    return tuple(b.texts) if any(v.stored == TEXT for v in b.buffers.values()) else ()


def build(graph: Graph, trial: bool = False, library: Collection[str] = HOSTED,
          enough: Callable[[Builder], bool] | None = None, strict: bool = False) -> Builder:
    """A Builder that has run over every node; ``env`` holds the Val of every tensor.  ``enough``:
    asked in the first nodes of a trial build where there is a new limit; it ends there if so.
    ``strict``: it ends at the first node that is refused, or contradicts ``graph.ranks``."""
    graph = folds_of_bags(look_ups_of_repeats(choices_by_mask(graph)))
    b = Builder(graph, trial, library)
    b.run_node = _run_node
    for t in graph.inputs:
        name = b.preset[t.name]
        b.buffers[name] = Buffer(name, t.shape, t.dtype, "input", t.name, t.stored,
                                 scale=graph.scales.get(t.name))
        b.env[t.name] = Val(t.shape, t.dtype, buffer=name, name=t.name, stored=t.stored)
    for name, array in graph.initializers.items():
        b.env[name] = b.constant(array, name, graph.stored.get(name, ""))
    enter_settled(b)
    _run_nodes(graph, b, enough, strict)
    b.node = OUTSIDE
    return b


def _run_nodes(graph: Graph, b: Builder, enough: Callable[[Builder], bool] | None,
               strict: bool) -> None:
    """Build all nodes, or the first of them if they are ``enough``; UnsupportedError for those that
    are refused, all of them but what only depends on them."""
    refusals = refuse_unknown(graph, graph.nodes)
    lost: set[str] = set()  # tensors that refused nodes would make
    limits = 0
    for k, node in enumerate(graph.nodes):
        if enough and len(b.limits) > limits and k * EARLY < len(graph.nodes):
            limits = len(b.limits)
            if enough(b):
                return
        outer = b.env, b.inner, b.rows
        if is_unknown(node) or lost.intersection((*node.inputs, *node.captures)):
            lost.update(o for o in node.outputs if o)
            continue
        try:
            _run_node(node, b)
        except UnsupportedError as err:
            if strict:
                raise
            new = [r for r in parts_of(err) if str(r) not in {str(k) for k in refusals}]
            refusals += new
            lost.update(o for o in node.outputs if o)
            b.env, b.inner, b.rows = outer
            b.unrounded = frozenset()
    raise_refused(graph, refusals)


def _run_node(node: Node, b: Builder) -> None:
    """Build one node and enter the Vals of its outputs."""
    b.node = node
    out = _followed(node, b)
    vals = out if isinstance(out, tuple) else (out,)
    made = {name: v for name, v in zip(node.outputs, vals) if name and v is not None}
    if any(name not in made for name in node.outputs if name):
        raise b.unsupported(f"{len(node.outputs)} outputs, of which {len(vals)} can be made",
                            "remove the use of the others")
    b.env.update(made)
    for name in filter(b.graph.ranks.__contains__, made):
        _check_rank(b, made[name], b.graph.ranks[name])


def _followed(node: Node, b: Builder) -> Result:
    """The node's Vals, by a rule of its operator for rows that data counts; or whatever it is, with
    symbols for their numbers of elements."""
    def by_rule() -> Result | None:
        met = meet_rows(node, b)
        if met is None:
            return None
        b.met = met
        out = _call(node, b)
        for row in b.met.rows:
            b.rows[row.tensor] = (*b.rows.get(row.tensor, ()), row)
        b.met = Found()
        return out

    def by_symbols() -> Result:
        b.met = Found()
        out = build_by_form(node, b, _call)
        return build_along_axes(node, b, _call) if out is None else out
    node = b.node = with_numbers(node, b)
    if not b.counts or not has_numbers(b, node):
        out = by_rule()
        return by_symbols() if out is None else out
    if node.op in EXACT and not node.domain:
        symbolic = attempt(b, by_symbols)
        if not isinstance(symbolic, AotcError):
            return symbolic
    ruled = attempt(b, by_rule)
    if not isinstance(ruled, AotcError):
        return by_symbols() if ruled is None else ruled
    try:
        return by_symbols()
    except UnsupportedError:
        raise ruled from None


def _check_rank(b: Builder, v: Value, declared: abc.Sequence[int | str | None]) -> None:
    """ModelError for a tensor of another rank than the model states, or other fixed extents."""
    if isinstance(v, Val) and (v.rank != len(declared) or any(
            isinstance(n, int) and isinstance(d, Const) and d.value != n
            for d, n in zip(v.shape, declared))):
        raise b.bad(f"{v} is declared with extents {list(declared)}")


def _call(node: Node, b: Builder) -> Result:
    """The node's Vals.  Ranks and dtypes that an operator's function does not expect surface as
    Python errors; a user needs to know the node."""
    if node.proto is not None:
        return build_by_definition(node, b)
    try:
        found = lookup(node.domain, node.op, node.opset)
        if found is None:
            raise b.unsupported(UNKNOWN, "")
        build = found.build
        if found.spelt:
            return build(node, b)
        return stored.call(node, b, lambda n: _made(n, b, build))
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as err:
        raise ModelError(f"{b.where()}: its inputs or attributes do not fit the operator "
                         f"({type(err).__name__}: {err}); if onnx.checker accepts the model with "
                         "full_check, this is a fault of aotc") from err


def _made(node: Node, b: Builder, build: Build) -> Result:
    b.node = node
    known = evaluate_constants(node, b)
    if known is not None:
        return known
    picked = choose_axes(node, b, lambda n, _: call(n, b, build))
    if picked is not None:
        return picked
    return build_along_rows(node, b, lambda n, _: call(n, b, build))


def _bind_outputs(graph: Graph, b: Builder) -> tuple[str, ...]:
    """Output buffer names.  An output that is an input, a constant, a shape value, an alias or a
    tensor that is an output already gets a move of its own."""
    names = []
    for tensor in _tensors(graph, b):
        b.node = _output_node(tensor)
        v = expect_declared(b, tensor)
        b.node = OUTSIDE
        made, kind = v.stored or v.dtype, v.stored
        stated = graph.elements.get(tensor, made)
        if stated != (TEXT if made == CHARS else made):
            raise ModelError(f"output {shorten(tensor)!r} is declared as {stated}, its node makes "
                             f"{show_type((made, v.shape))}: change one of them")
        buf = b.buffers.get(v.buffer)
        if buf is None or buf.role != "temp" or buf.onnx != tensor:
            axes = b.axes(v.shape)
            b.node = _output_node(tensor)
            v = b.compute(axes, b.at(v, axes))
            b.node = OUTSIDE
        b.buffers[v.buffer] = replace(b.buffers[v.buffer], role="output", onnx=tensor,
                                      stored=kind, scale=graph.scales.get(tensor))
        names.append(v.buffer)
    return tuple(names)


def _tensors(graph: Graph, b: Builder) -> list[str]:
    """Names of the tensors that the outputs hold: those of a list are entered as NAME_0, .."""
    out: list[str] = []
    for tensor in graph.outputs:
        if tensor not in b.env:
            raise ModelError(f"output {shorten(tensor)!r} is produced by no node")
        v = b.env[tensor]
        if not isinstance(v, Sequence):
            out.append(tensor)
            continue
        names: list[str] = []
        for k, part in enumerate(v.vals):
            name = f"{tensor}_{k}"
            while name in b.env:
                name += "_"
            b.env[name] = part
            names.append(name)
        b.made[tensor] = None if isinstance(v, Absent) else tuple(names)
        out += names
    if not out:
        raise UnsupportedError("no output holds a tensor: there is nothing to compute")
    return out


def _parts(graph: Graph, b: Builder) -> tuple[Part, ...]:
    """The outputs with their tensors, where one is a list."""
    return tuple((o, b.made.get(o, o)) for o in graph.outputs) if b.made else ()


def _bind_counts(graph: Graph, b: Builder) -> tuple[str, ...]:
    """Output buffers that say how many elements there are of outputs with room for more."""
    names: list[str] = []
    taken: set[str] = set()
    for start, (total, *_) in enumerate(b.counts):
        outputs = tuple((o, r.axis) for o in graph.outputs for r in b.rows.get(o, ())
                        if r.start == start)
        if not outputs:
            continue
        tensor = f"{outputs[0][0]}_count"
        while tensor in b.env or tensor in taken:
            tensor += "_"
        taken.add(tensor)
        b.node = _output_node(tensor)
        v = b.compute((), b.load(total, ()))
        b.node = OUTSIDE
        b.buffers[v.buffer] = replace(b.buffers[v.buffer], role="output", onnx=tensor,
                                      counts=outputs)
        names.append(v.buffer)
    return tuple(names)


def _check_sizes(b: Builder) -> None:
    """ModelError for a tensor of a negative extent, or one that no machine holds even at the
    smallest extents.  An extent that some dimensions make negative becomes a Check."""
    for step in all_steps(b.steps):
        for out in step.outs:
            kind = (b.buffers[out].dtype, b.buffers[out].shape)
            for cond in (compare("ge", d, Const(0)) for d in kind[1]):
                if not proves(cond):
                    b.checks.setdefault(simplify(cond), ", ".join(map(shorten, step.origin))
                                        + ": no extent is negative")
            size = DTYPES[kind[0]].size
            for d in kind[1]:
                size *= max(1, lower(d) or 0)
            negative = any((upper(d) or 0) < 0 for d in kind[1])
            if negative or size > LARGEST:
                raise ModelError(f"node {', '.join(map(shorten, step.origin)) or out!r} makes a "
                                 f"tensor {show_type(kind)}: " + (
                                     "a negative extent" if negative else
                                     f"more than {LARGEST >> 40} TB, no machine holds it"))
        rounds = math.prod(max(1, lower(a.extent) or 0) for a in getattr(step, "raxes", ()))
        if rounds > LARGEST:
            raise ModelError(f"node {', '.join(map(shorten, step.origin)) or step.outs[0]!r} adds "
                             f"up {rounds} elements for each result: no machine does")


def _output_node(tensor: str) -> Node:
    return Node("Identity", "", (), (tensor,), {}, name=f"output_{tensor}")

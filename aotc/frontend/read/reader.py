"""ModelProto -> Graph: nodes and constants as plain data, and every extent named and bounded."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.building.broadcast import Learnt
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.convert import build
from aotc.frontend.building.stored import carrier
from aotc.frontend.building.stored_type_operators import makes_texts, moves_texts
from aotc.frontend.graph import Graph, Node, Settings, TensorType, all_nodes, limit_lines
from aotc.frontend.read.byte_ends import ByteEnds, find_byte_ends
from aotc.frontend.read.count_bounds import refuse_idle_bounds, with_bounds
from aotc.frontend.read.dims import Dims, Given, Input
from aotc.frontend.read.lists import Held, interface
from aotc.frontend.read.maps import maps_of
from aotc.frontend.read.old_opsets import modernise_opset
from aotc.frontend.read.read_nodes import Reader, contents, order_nodes, reader_of, used_names
from aotc.frontend.read.read_types import dtype_name, extent_of, stored_name
from aotc.frontend.read.settings import SEED, choices, needs_seed, pins
from aotc.frontend.read.shapes import Extents, find_only_ranks, list_shapeless, with_shapes
from aotc.frontend.readings import Ranks, decide_readings
from aotc.frontend.shape_inputs import settle_inputs
from aotc.ir.dtypes import CHARS, DTYPES, STORED, TEXT, Array, dtype_of
from aotc.ir.expr import Const, Expr, Shape

_ROUNDS = 6  # trial builds until the ranges of symbols stand still
_SHORT = 2  # of those before them, which may end as soon as a range is narrower


@dataclass(frozen=True)
class _Raw:
    """``declared``: the shapes that the model states, dimensions being numbers and names;
    ``ranks``: also where some are None, any; of all tensors, and of its outputs alone."""

    graph: Graph
    inputs: tuple[Input, ...]
    declared: dict[str, tuple[int | str, ...]]
    ranks: tuple[Ranks, Ranks]


def read_graph(model: onnx.ModelProto, dims: Given | None = None, name: str | None = None,
               fix: Mapping[str, Any] | None = None, input_default: Collection[str] | None = None,
               lists: Mapping[str, Held] | None = None, bounds: Mapping[str, int] | None = None,
               shapes: Mapping[str, Extents] | None = None, byte_ends: bool = False) -> Graph:
    """The Graph of ``read_built`` alone."""
    return read_built(model, dims, name, fix, input_default, lists, bounds, shapes, byte_ends)[0]


def read_built(model: onnx.ModelProto, dims: Given | None = None, name: str | None = None,
               fix: Mapping[str, Any] | None = None, input_default: Collection[str] | None = None,
               lists: Mapping[str, Held] | None = None, bounds: Mapping[str, int] | None = None,
               shapes: Mapping[str, Extents] | None = None,
               byte_ends: bool = False) -> tuple[Graph, Builder]:
    """(The Graph, the last trial build of it) of an ``onnx.ModelProto``.

    dims: {dimension name, or "input:axis": extent | (lo, hi)}; an extent makes the dimension
    static.  Ranges that are not given start at 1 (what is concatenated: at 0) and have no end,
    narrowed by what the model does with them; ``Graph.dims`` says which is which.  fix: {input:
    value} held as constants; input_default: initializers that become inputs with a default
    (``settings.choices``); lists: what the inputs hold that are sequences or optionals
    (``lists.interface``); bounds: {node, or a result of it: the most elements that data may give
    it}; shapes: {input: extents, numbers or names} of inputs that the model leaves open
    (``shapes.with_shapes``); byte_ends: inputs and outputs are 8 bits where the model rounds them
    so (``find_byte_ends``).  Raises ModelError for a model that contradicts itself or ``dims``,
    UnsupportedError for operators and dtypes aotc does not compile.
    """
    given, model = model, modernise_opset(model)
    reader = reader_of(model)
    nodes, constants = contents(model.graph, reader)
    ends = find_byte_ends(model.graph, nodes, constants, reader.stored, fix or ()) if (
        byte_ends) else ByteEnds(nodes)
    names = used_names(nodes, model.graph)
    used = {k: a for k, a in constants.items() if k in names}
    for chosen in choices(given, used, fix or {}, input_default or ()):
        def read(stated: Mapping[str, Extents], chosen: Settings = chosen) -> _Raw:
            found = _read(model, name, ends, constants, chosen,
                          replace(reader, faults=[*reader.faults]), lists or {}, stated)
            return replace(found, graph=with_bounds(found.graph, bounds or {}))
        raw = read({**(shapes or {}), **_only_ranks(model.graph, shapes or {}, fix or {}, read,
                                                    dims or {})})
        try:
            return _bounded(raw, pins(raw.inputs, chosen, dims or {}))
        except (ModelError, UnsupportedError) as err:
            fault = err  # as inputs some of the initializers do not compile
    raise fault


def _only_ranks(graph: onnx.GraphProto, shapes: Mapping[str, Extents], fix: Collection[str],
                read: Callable[[Mapping[str, Extents]], _Raw], dims: Given) -> dict[str, Extents]:
    """Ranks of the inputs without shapes, where the model compiles with one alone."""
    names = [n for n in list_shapeless(graph, shapes) if n not in fix]
    for level in range(3):  # what the model states of all tensors, of its outputs, nothing
        def builds(found: Mapping[str, Extents], level: int = level) -> bool:
            try:
                raw = read({**shapes, **found})
                inputs = tuple(i for i in raw.inputs if i[0] not in raw.graph.settings.fixed)
                made = _typed_inputs(raw.graph, inputs, Dims(inputs, {
                    k: n for k, n in dims.items() if ":" not in k}))
                build(replace(made, ranks=dict((*raw.ranks, {})[level])), trial=True, strict=True)
            except (UnsupportedError, ModelError, ValueError):
                return False
            return True
        if ranks := find_only_ranks(names, builds):
            return ranks
    return {}


def _bounded(raw: _Raw, given: Given) -> tuple[Graph, Builder]:
    """The Graph with every symbol's range, found by trial builds, and the last of these."""
    inputs = tuple(i for i in raw.inputs if i[0] not in raw.graph.settings.fixed)
    table, known = Dims(inputs, given), Learnt()
    elements: dict[str, tuple[Expr | None, ...]] = {}
    readings: dict[str, tuple[int, ...]] = {}
    for k in range(_SHORT + _ROUNDS):
        graph = replace(_typed_inputs(raw.graph, inputs, table), learnt=known,
                        declared=_extents(raw.declared, inputs, table))
        graph = replace(graph, settled=elements, readings=readings)

        def narrower(b: Builder, table: Dims = table) -> bool:
            return table.narrow(b.limits, {}) != table
        graph, trial = _trial(raw, graph, narrower if k < _SHORT else None)
        elements, readings = graph.settled, graph.readings
        narrowed = table.narrow(trial.limits, trial.equal, trial.may_be_empty)
        if narrowed == table and not trial.joins.would_tell(trial.joins.learnt()):
            break
        table, known = narrowed, trial.joins.learnt()
    refuse_idle_bounds(graph, trial.bounded)
    types = {k: (v.dtype, v.shape) for k, v in trial.env.items()}
    return replace(graph, types=types), trial


def _trial(raw: _Raw, graph: Graph,
           enough: Callable[[Builder], bool] | None) -> tuple[Graph, Builder]:
    """(The Graph with what only trials say of it, a trial build of it)."""
    def read(graph: Graph) -> Builder:  # a trial build, with readings that it lacks
        try:
            return build(graph, trial=True)
        except UnsupportedError as err:
            found = decide_readings(graph, err, partial(build, trial=True, strict=True), raw.ranks)
            if found.readings == graph.readings:
                raise
            return read(found)
    while True:
        try:
            made = build(graph, trial=True, enough=enough)
            found = settle_inputs(graph, read) if made.guessed else graph
            if found.settled == graph.settled:
                return graph, made
            graph, enough = found, None  # declared outputs say what was guessed
        except UnsupportedError as err:
            found = settle_inputs(graph, read)
            if found.settled == graph.settled:
                found = decide_readings(graph, err, partial(build, trial=True, strict=True),
                                        raw.ranks)
            if (found.settled, found.readings) == (graph.settled, graph.readings):
                raise
            graph, enough = found, None


def _typed_inputs(graph: Graph, inputs: Sequence[Input], table: Dims) -> Graph:
    def stored(dtype: str) -> str:  # bf16 is a dtype, too: of what is rounded inside a Program
        return dtype if dtype in STORED or dtype not in DTYPES else ""
    typed = tuple(TensorType(n, carrier(dtype) if stored(dtype) else dtype, table.shape(n),
                             stored(dtype)) for n, dtype, _ in inputs)
    return replace(graph, inputs=typed, dims=table.ranges,
                   types={t.name: (t.dtype, t.shape) for t in typed} | {
                       k: (dtype_of(a), tuple(map(Const, a.shape)))
                       for k, a in graph.initializers.items()})


def _read(model: onnx.ModelProto, name: str | None, ends: ByteEnds,
          constants: dict[str, Array], settings: Settings, reader: Reader,
          lists: Mapping[str, Held], shapes: Mapping[str, Extents]) -> _Raw:
    g, own = model.graph, {**settings.fixed, **settings.defaults}
    infos = with_shapes([i for i in g.input if i.name not in constants or i.name in own], shapes)
    maps = maps_of(infos, ends.nodes, reader.faults)
    nodes: Sequence[Node] = maps.nodes
    read = interface(infos, lists, {o for n in nodes for o in n.outputs}
                     | {i.name for i in g.input} | set(constants), maps.inputs, reader.faults)
    inputs = _as_characters(read.inputs, nodes)
    if needs_seed(nodes, constants) and SEED not in {i[0] for i in inputs}:
        inputs = (*inputs, (SEED, "i64", ()))
        settings = replace(settings, defaults={**settings.defaults, SEED: np.array(0, np.int64)})
    nodes, settings = [*read.nodes, *nodes], replace(
        settings, given=read.parts, keys=maps.keys)
    if reader.faults:
        raise UnsupportedError("this model holds what aotc does not compile:\n"
                               + limit_lines(reader.faults))
    dtypes = {n: s.dtype for n, s in ends.scales.items()}
    inputs = tuple((n, dtypes.get(n, t), settings.defaults[n].shape
                    if n in settings.defaults else dims) for n, t, dims in inputs)
    used = used_names(nodes, g)
    constants = {k: a for k, a in (constants | settings.fixed).items()
                 if k in used and k not in settings.defaults}
    outputs = tuple(o.name for o in g.output)
    nodes = order_nodes(nodes, {i[0] for i in inputs} | set(constants), outputs)
    graph = Graph(name or g.name or "model", nodes, (), outputs, constants, reader.opset,
                  elements=_elements(g) | dtypes,
                  settings=settings, stored=reader.stored, texts=reader.texts, scales=ends.scales)
    stated = _ranks((*reader.infos, *g.value_info, *g.output))
    return _Raw(graph, inputs, _declared(stated), (stated, _ranks(g.output)))


def _as_characters(inputs: Sequence[Input], nodes: Iterable[Node]) -> tuple[Input, ...]:
    """The inputs, those strings that operators look into as their bytes: NAME_bytes of each."""
    read: set[str] = set()
    for n in reversed(list(all_nodes(nodes))):
        if makes_texts(n) or moves_texts(n) and not read.isdisjoint(n.outputs):
            read.update(n.inputs)
    named = {d for _, _, dims in inputs for d in dims}

    def width(name: str) -> str:
        name += "_bytes"
        while name in named:
            name += "_"
        return name
    return tuple((n, CHARS, (*dims, width(n))) if dtype == TEXT and n in read else (n, dtype, dims)
                 for n, dtype, dims in inputs)


def _extents(declared: Mapping[str, tuple[int | str, ...]], inputs: Sequence[Input],
             table: Dims) -> dict[str, Shape]:
    """The declared shapes whose names are all dimensions of inputs, and of one extent each."""
    found: dict[str, set[Expr]] = {}
    for name, _, dims in inputs:
        for d, e in zip(dims, table.shape(name)):
            if isinstance(d, str):
                found.setdefault(d, set()).add(e)
    of: dict[int | str, Expr] = {d: next(iter(e)) for d, e in found.items() if len(e) == 1}
    return {name: tuple(Const(d) if isinstance(d, int) else of[d] for d in dims)
            for name, dims in declared.items()
            if all(isinstance(d, int) or d in of for d in dims)}


def _declared(stated: Ranks) -> dict[str, tuple[int | str, ...]]:
    """{tensor: extents} where the model states all of them."""
    return {name: tuple(d for d in dims if d is not None) for name, dims in stated.items()
            if None not in dims}


def _ranks(infos: Iterable[onnx.ValueInfoProto]) -> Ranks:
    """{tensor: its extents} where the model states its rank, and only once (branches may give their
    tensors the same names)."""
    out: dict[str, tuple[int | str | None, ...]] = {}
    twice: set[str] = set()
    for info in infos:
        kind = info.type.tensor_type
        if kind.HasField("shape"):
            dims = tuple(map(extent_of, kind.shape.dim))
            if out.setdefault(info.name, dims) != dims:
                twice.add(info.name)
    return {name: dims for name, dims in out.items() if name not in twice}


def _elements(g: onnx.GraphProto) -> dict[str, str]:
    """{output: dtype} where the model states one that aotc has."""
    kinds = {o.name: o.type.tensor_type.elem_type for o in g.output}
    stated = {name: dtype_name(k) or stored_name(k) for name, k in kinds.items()}
    return {name: dtype for name, dtype in stated.items() if dtype}

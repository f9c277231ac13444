"""Builder: what an operator's function works with while a Program is made from a Graph.

The central method is ``map``: it says what an output element is, as an expression of elements of
the sources.  If every source is a shape value the result is one too and nothing is computed at
run time; otherwise it is a Compute.
"""

import math
from collections import abc
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from weakref import proxy

import numpy as np

from aotc.frontend.building import symbolic
from aotc.frontend.building.broadcast import WHY as BROADCAST
from aotc.frontend.building.declared import expected_shape, reads_data, rows_given, rows_left
from aotc.frontend.building.known import Known, without_loads
from aotc.frontend.building.rules import Rules
from aotc.frontend.building.stored import hold_stored
from aotc.frontend.building.values import (
    SMALL,
    Absent,
    Affine,
    Element,
    Index,
    Sequence,
    Val,
    Value,
    const_at,
)
from aotc.frontend.graph import Body, Graph, Node
from aotc.frontend.read.identifiers import Names
from aotc.ir.dtypes import DTYPES, INDEX, Array, dtype_of, is_float
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    ExprLike,
    Load,
    Shape,
    Sym,
    as_expr,
    int_of,
    walk,
)
from aotc.ir.library import HOSTED, LIBRARY
from aotc.ir.program import Buffer, Compute, Fold, LibCall, Step, make_const, static_shape
from aotc.ir.simplify import simplify

MOST_INLINED = 1 << 13  # nodes of sub-graphs: nested loops and branches multiply
LAZY_NODES = 96  # size of a shape value's expression beyond which it gets a buffer of its own
_OF_A_BODY = ("outside", "rounds", "steps", "_held", "wide", "exact", "in_body", "assumed", "ends")
LAZY_FLOATS = 16  # float shape values (scales, sizes): only small ones stay expressions


class Builder(Rules):
    """Program under construction.  ``trial``: only shapes and limits are wanted; ``library``:
    the library kernels that the target has."""

    def __init__(self, graph: Graph, trial: bool = False,
                 library: abc.Collection[str] = HOSTED) -> None:
        super().__init__(graph, trial)
        self._library = library
        self.names, self.affine = Names(), Affine()
        self.buffers: dict[str, Buffer] = {}
        self.consts: dict[str, Array] = {}
        self.steps: list[Step] = []
        self.outside: tuple[Step, ...] = ()  # steps around the body that is being built
        self._held: dict[int, tuple[str, Val]] = {}  # id of a Val without a buffer -> its buffer
        self.preset: dict[str, str] = {}  # tensor of the model's interface -> its buffer
        # (id of a constant of indices, extent) -> the same counted from the start; the constant
        self.wrapped: dict[tuple[int, Expr], tuple[Val, Val]] = {}
        self._bodies: dict[Body, dict[str, Val]] = {}  # constants of sub-graphs
        # enters the Vals of a node; who makes the Builder says how
        self.run_node: Callable[[Node, Builder], None] | None = None
        self._inlined = 0  # nodes of sub-graphs built so far
        self.known = Known(proxy(self))  # what can be had of a Val while building; no circle
        self.inner: tuple[Node, ...] = ()  # nodes of the sub-graphs that are being built
        # outputs that are lists -> their tensors, None of an optional that is not there
        self.made: dict[str, tuple[str, ...] | None] = {}
        self.may_be_empty: set[str] = set()  # extents of inputs that something is appended to
        # outputs that will be rounded to another dtype at the end
        self.unrounded: abc.Set[int] = frozenset()
        # f16 Val -> the f32 Val that it was rounded from; -> the same numbers as f32
        self.wide: dict[Val, Val] = {}
        self.exact: dict[Val, Val] = {}
        self.halves = ""
        # stored types of the inputs of the node being built, by their number
        self.kinds: dict[int, str] = {}
        self.texts = dict(graph.texts)  # of the model's strings -> their places
        for s in graph.syms:
            self.names.claim(s.name, keep_case=True, extent=True)
        for t in graph.inputs:
            self.preset[t.name] = self.names.claim(t.name)
        for name in graph.outputs:
            if name not in self.preset:
                self.preset[name] = self.names.claim(name)

    # ------------------------------------------------------------ inputs and parameters

    def arg(self, k: int) -> Val | None:
        """Input ``k`` of the node, None if it is missing."""
        ins = self.node.inputs
        return self._given(self.tensor(ins[k])) if k < len(ins) and ins[k] else None

    def input(self, k: int) -> Val:
        """Input ``k`` of the node, which it must have: ModelError where it is missing."""
        v = self.arg(k)
        if v is None:
            raise self.bad(f"input {k} is missing")
        return v

    def inputs(self) -> list[Val]:
        """All inputs of the node, none of which may be missing."""
        return [self.input(k) for k in range(len(self.node.inputs))]

    def tensor(self, name: str) -> Val:
        """The tensor of that name; UnsupportedError for a sequence."""
        return self.as_tensor(self.env[name])

    def as_tensor(self, v: Value) -> Val:
        """``v`` itself; UnsupportedError for a sequence."""
        if isinstance(v, Absent):
            raise self.bad("its input is an optional without an element")
        if isinstance(v, Sequence):
            raise self.unsupported("a sequence", "take its tensors out first (SequenceAt, "
                                   "ConcatFromSequence)")
        return v

    def args(self) -> list[Val | None]:
        """All inputs of the node, None for those that are missing."""
        return [self._given(self.tensor(i)) if i else None for i in self.node.inputs]

    def _given(self, v: Val) -> Val:
        """Parameters are small integers and bools: known ones come as such."""
        small = v.buffer and not is_float(v.dtype) and v.size is not None and v.size <= SMALL
        return self.known(v) if small else v

    def elements(self, v: Val) -> list[Expr]:
        """The elements of a small integer tensor (rank 0 or 1), which may come from data."""
        v = self.known(v)
        n = v.size
        if n is None or n > 4 * SMALL and v.array is None or v.rank > 1:
            raise self.bad(f"expected a short list of integers, got {v}")
        points = [()] if v.rank == 0 else [(Const(k),) for k in range(n)]
        return [self.whole(without_loads(self, self.index_at(v, p))) for p in points]

    def from_data(self, v: Val) -> bool:
        """True if elements of a small integer tensor are known at run time only."""
        return any(map(reads_data, self.elements(v)))

    def declared(self, out: int = 0, rank: int | None = None) -> Shape:
        """The extents that the model declares for output ``out`` (of ``rank`` dimensions, if that
        is known), as numbers and extents of inputs; UnsupportedError if it does not.  Shapes that
        come from data must be declared."""
        dims = expected_shape(self, self.node.outputs[out], rank)
        if dims is None:
            raise self.unsupported(*self.known.reason(self.args()[1:] or self.args(), True))
        return dims

    def ints(self, v: Val) -> list[Expr]:
        """``elements`` as index expressions: UnsupportedError for data."""
        out = self.elements(v)
        if any(map(reads_data, out)):
            raise self.unsupported(*self.known.reason([v]))
        return out

    def static_ints(self, v: Val) -> list[int]:
        """``ints`` as Python ints; UnsupportedError if one depends on a symbol."""
        return list(map(self.fixed, self.ints(v)))

    def fixed(self, e: Expr) -> int:
        """An index expression as a Python int; UnsupportedError if it depends on a symbol."""
        if not isinstance(e, Const):
            raise self.unsupported("a parameter that depends on an input's shape",
                                   "make it constant, or pin the dimensions that it depends on")
        return int_of(e)

    def param(self, attr: str, k: int | None, default: list[int] | None = None) -> list[int] | None:
        """Static ints from an attribute (older opsets) or from input ``k`` (newer ones)."""
        if attr in self.node.attrs:
            value = self.node.attrs[attr]
            return list(value) if isinstance(value, (tuple, list)) else [value]
        v = self.arg(k) if k is not None else None
        return default if v is None else self.static_ints(v)

    def scalar(self, v: Val | None) -> float | None:
        """The one element of a constant tensor as a Python number; None if it is not constant."""
        v = self.known(v) if v is not None and v.size == 1 else v
        if v is not None and v.array is not None and v.array.size == 1:
            value: float = v.array.reshape(-1)[0].item()
            return value
        if v is not None and v.fn is not None and v.size == 1:
            e = self.at(v, (Const(0),) * v.rank)
            return e.value if isinstance(e, Const) else None
        return None

    def axis(self, value: int, rank: int) -> int:
        """A non-negative axis number; ModelError if it is outside -rank .. rank-1."""
        if not -rank <= value < rank:
            raise self.bad(f"axis {value} is out of range for rank {rank}")
        return value % rank

    def may_call(self, kernel: str) -> bool:
        """True if the node may call a library kernel; on a few known elements none is needed."""
        vals = [self.env[i] for i in self.node.inputs if i]
        return kernel in self._library and not (vals and all(
            isinstance(v, Val) and v.size is not None and v.size <= SMALL
            and not self.known.is_data(v) for v in vals))

    # ------------------------------------------------------------ elements

    def at(self, v: Val, index: abc.Iterable[ExprLike]) -> Expr:
        """Element ``index`` of a Val as an expression."""
        place: Index = tuple(simplify(as_expr(i)) for i in index)
        if _outside(place, v.shape):  # in a branch that is not taken: no element is known there
            return self.load(v, place)
        if v.fn is not None:
            return v.fn(place)
        if v.array is not None:
            known = const_at(self.affine, v.array, v.dtype, place)
            if known is not None:
                return known
        return self.load(v, place)

    def index_at(self, v: Val, index: abc.Iterable[ExprLike]) -> Expr:
        """``at`` as an index expression (64-bit)."""
        return symbolic.cast(INDEX, self.at(v, index))

    def load(self, v: Val, index: abc.Iterable[ExprLike]) -> Load:
        """A Load of element ``index``, whatever the Val is; a shape value gets a buffer."""
        return Load(self.buffer(v), tuple(as_expr(i) for i in index), v.dtype)

    def buffer(self, v: Val) -> str:
        """Name of a buffer that holds the Val."""
        if v.buffer:
            return v.buffer
        if id(v) not in self._held:
            name = self._const(v.array, v.name) if v.array is not None else self._materialise(v)
            self._held[id(v)] = (name, v)
        return self._held[id(v)][0]

    def _const(self, array: Array, onnx: str) -> str:
        name = self.names.claim(onnx or f"{self.node.label}_const")
        self.buffers[name] = make_const(name, array, onnx)
        self.consts[name] = array
        return name

    def _materialise(self, v: Val) -> str:
        axes = self.axes(v.shape)
        return self.compute(axes, self.at(v, axes), tag="" if not v.name else "shape").buffer

    # ------------------------------------------------------------ bodies of regions

    @contextmanager
    def body(self, turn: Sym | None = None) -> abc.Iterator[list[Step]]:
        """Steps that are appended inside are those of a region's body: the list, once it is
        done.  ``turn``: the symbol that counts its rounds."""
        gathered: list[Step] = []
        outer = {k: getattr(self, k) for k in _OF_A_BODY}
        # what a body has stored for itself is not there outside of it
        self._held, self.wide, self.exact = dict(self._held), dict(self.wide), dict(self.exact)
        self.outside, self.steps = (*self.outside, *self.steps), []
        self.rounds = self.rounds if turn is None else (*self.rounds, turn)
        self.in_body, self.ends = True, []
        try:
            yield gathered
        finally:
            gathered += self.steps
            self.left = self.ends
            vars(self).update(outer)

    def body_input(self, shape: Shape, dtype: str, tag: str) -> Val:
        """A buffer that a body is given."""
        name = self.names.claim(f"{self.node.label}_{tag}")
        self.buffers[name] = Buffer(name, tuple(map(simplify, shape)), dtype, "input")
        return Val(self.buffers[name].shape, dtype, buffer=name)

    def body_output(self, v: Val, tag: str, taken: abc.Container[str] = ()) -> Val:
        """The Val in a buffer that the body being built writes, none of ``taken``."""
        if v.buffer not in taken and any(v.buffer in s.outs for s in self.steps):
            return v
        axes = self.axes(v.shape)
        return self.compute(axes, self.at(v, axes), tag=tag)

    def room(self, shape: abc.Iterable[ExprLike], dtype: str, tag: str, out: int | None) -> Val:
        """A buffer that a region will write: the node's output ``out``, or one called after
        ``tag``."""
        name = self._new_buffer(self.axes(tuple(map(as_expr, shape))), dtype,
                                tag if out is None else "", out or 0)
        return Val(self.buffers[name].shape, dtype, buffer=name)

    # ------------------------------------------------------------ results

    def axes(self, shape: abc.Collection[ExprLike], names: abc.Sequence[str] | None = None,
             prefix: str = "i") -> tuple[Axis, ...]:
        """One Axis per extent."""
        names = names or [f"{prefix}{k}" for k in range(len(shape))]
        return tuple(Axis(n, simplify(as_expr(d))) for n, d in zip(names, shape, strict=True))

    def compute(self, axes: abc.Sequence[Axis], body: Expr, raxes: abc.Sequence[Axis] = (),
                fold: str = "none", tag: str = "", out: int = 0, acc: str = "") -> Val:
        """Append a Compute; its Val.  ``tag`` "" is the node's output ``out``, else a temporary
        called after it.  Without raxes a fold is the body itself."""
        body = simplify(body)
        fold = fold if raxes else "none"
        name = self._new_buffer(axes, body.dtype, tag, out)
        self.append(Compute((name,), tuple(axes), tuple(raxes), fold, body, acc, self.origin))
        return Val(self.buffers[name].shape, body.dtype, buffer=name)

    def compute_fold(self, axes: abc.Sequence[Axis], raxes: abc.Sequence[Axis], fold: Fold,
                     body: Expr, tags: abc.Sequence[str],
                     outs: abc.Sequence[int] | None = None) -> tuple[Val, ...]:
        """Append a Compute with a multi-state Fold; one Val per state."""
        outs = outs or (0,) * len(tags)
        names = tuple(self._new_buffer(axes, dtype, tag, out)
                      for (_, dtype), tag, out in zip(fold.states, tags, outs, strict=True))
        self.append(Compute(names, tuple(axes), tuple(raxes), fold, simplify(body), "",
                             self.origin))
        return tuple(Val(self.buffers[n].shape, self.buffers[n].dtype, buffer=n) for n in names)

    def call(self, kernel: str, inputs: abc.Sequence[Val], shapes: abc.Iterable[Shape],
             tags: abc.Sequence[str] = (), **attrs: int) -> tuple[Val, ...]:
        """Append a LibCall of a kernel in ``ir/library.py`` on Vals; one Val per output, of the
        ``shapes`` given.  ``tags``: as for ``compute``, instead of the outputs' names."""
        row = LIBRARY[kernel]
        tags = tags or [tag for tag, _ in row.outs]
        dtypes = row.out_dtypes(inputs[0].dtype)
        names = tuple(self._new_buffer(self.axes(shape), dtype, tag, 0)
                      for tag, dtype, shape in zip(tags, dtypes, shapes, strict=True))
        attributes = tuple((k, attrs[k]) for k in row.attrs)
        self.append(LibCall(kernel, attributes, tuple(map(self.buffer, inputs)), names,
                             self.origin))
        return tuple(Val(self.buffers[n].shape, self.buffers[n].dtype, buffer=n) for n in names)

    def append(self, step: Step) -> None:
        """Append a step whose outputs have buffers."""
        self.steps.append(step)
        self.known.enter(step)

    def _new_buffer(self, axes: abc.Sequence[Axis], dtype: str, tag: str, out: int) -> str:
        tensor = self.node.outputs[out] if out < len(self.node.outputs) else self.node.label
        tag = tag or ("wide" if out in self.unrounded else "")
        if not tag and not self.outside and tensor in self.preset and (
                self.preset[tensor] not in self.buffers):
            name = self.preset[tensor]
        else:
            name = self.names.claim(f"{tensor}_{tag}" if tag else tensor)
        self.buffers[name] = Buffer(name, tuple(a.extent for a in axes), dtype, "temp",
                                    "" if tag else tensor)
        return name

    def map(self, shape: abc.Iterable[ExprLike], fn: Element, sources: abc.Collection[Val],
            tag: str = "", out: int = 0, names: abc.Sequence[str] | None = None) -> Val:
        """The tensor whose element ``index`` is ``fn(index)``, an expression of elements (``at``)
        of ``sources``.  A shape value if all sources are, else a Compute."""
        extents: Shape = tuple(simplify(as_expr(d)) for d in shape)
        if sources and all(self.symbolic(s) for s in sources):
            value = self._lazy(extents, fn, sources)
            if value is not None:
                return value
        axes = self.axes(extents, names)
        return self.compute(axes, fn(axes), tag=tag, out=out)

    def value(self, shape: abc.Iterable[ExprLike], fn: Element) -> Val:
        """A shape value: ``fn(index)`` may use symbols and indices only."""
        return self.map(shape, fn, [Val((), INDEX, fn=lambda index: Const(0))])

    def const(self, array: Array, name: str = "") -> Val:
        """A constant Val."""
        array = np.ascontiguousarray(array) if array.ndim else array
        return Val(tuple(Const(d) for d in array.shape), dtype_of(array), array=array, name=name)

    def constant(self, array: Array, name: str, stored: str) -> Val:
        """A constant of the model; ``stored``: the type whose bits it is, "" for numbers."""
        return hold_stored(self, array, stored, name) if stored else self.const(array, name)

    def text(self, text: str) -> int:
        """The place of a text in the Program's table."""
        return self.texts.setdefault(text, len(self.texts))

    def scalar_val(self, value: float, dtype: str) -> Val:
        """A constant Val of rank 0."""
        return self.const(np.array(value, DTYPES[dtype].numpy))

    def symbolic(self, v: Val) -> bool:
        """True if elements are known while building: shape values, small or regular integers."""
        if v.fn is not None:
            return True
        if v.array is None:
            return False
        if is_float(v.dtype):
            return v.array.size <= LAZY_FLOATS
        return v.array.size <= SMALL or self.affine.row(
            v.array, (slice(None),) * v.array.ndim) is not None

    def _lazy(self, shape: Shape, fn: Element, sources: abc.Collection[Val]) -> Val | None:
        dims = static_shape(shape)
        size = None if dims is None else math.prod(dims)
        body = symbolic.tidy(fn(self.axes(shape)))
        if is_float(body.dtype) and (size is None or size > LAZY_FLOATS
                                     or all(s.array is not None for s in sources)):
            return None
        nodes, few = list(walk(body)), size is not None and size <= SMALL
        if len(nodes) > LAZY_NODES or not few and any(isinstance(n, Load) for n in nodes):
            return None
        if not isinstance(body, Const) and symbolic.leaves_64_bits(nodes):
            raise self.unsupported("shape arithmetic beyond 64 bits", "use smaller numbers")
        at = lru_cache(maxsize=None)(lambda index: symbolic.tidy(fn(index)))
        if dims is not None and few:
            values = [at(tuple(map(Const, p))) for p in np.ndindex(*dims)]
            known = [symbolic.wrap_to_64_bits(e.value) if e.dtype == INDEX else e.value
                     for e in values if isinstance(e, Const)]
            if len(known) == len(values):
                return self.const(np.array(known).astype(DTYPES[body.dtype].numpy).reshape(dims))
        return Val(shape, body.dtype, fn=at)

    def inline(self, body: Body, vals: abc.Sequence[Value], tag: str = "",
               made: abc.Sequence[str] | None = None, given: abc.Sequence[str] = ()
               ) -> tuple[Value, ...]:
        """The Vals of a sub-graph's outputs, its inputs being ``vals`` with the rows of ``given``;
        ``tag``: of its copies; ``made``: gets the outputs' rows, else there may be none."""
        self._inlined += len(body.nodes)
        if self._inlined > MOST_INLINED:
            raise self.unsupported(f"sub-graphs that unroll to over {MOST_INLINED} nodes",
                                   "shorten the loops or nest them less")
        if len(vals) != len(body.inputs):
            raise self.bad(f"a sub-graph with {len(body.inputs)} inputs is given {len(vals)}")
        outer, env, inner, rows = (self.node, self.met), self.env, self.inner, self.rows
        self.inner = (*inner, *body.nodes)
        self.rows = rows_given(rows, body, given)
        if body not in self._bodies:
            self._bodies[body] = {k: self.constant(a, k, body.stored.get(k, ""))
                                  for k, a in body.constants.items()}
        self.env = {**env, **self._bodies[body], **dict(zip(body.inputs, vals))}
        for n in body.nodes:
            name = f"{n.label}_{tag}" if tag else n.name
            assert self.run_node is not None, n
            self.run_node(replace(n, name=name, origin=n.origin or (n.label,)), self)
        outs = tuple(self.env[o] for o in body.outputs)
        left = rows_left(self, body, made)
        (self.node, self.met), self.env, self.inner, self.rows = outer, env, inner, {**rows, **left}
        return outs

    # ------------------------------------------------------------ shapes

    def broadcast(self, *shapes: Shape) -> Shape:
        """The broadcast shape; what cannot be proved to broadcast becomes Checks."""
        rank = max(map(len, shapes))
        return tuple(self.joins.extent([s[k - rank + len(s)] for s in shapes
                                        if k - rank + len(s) >= 0]) for k in range(rank))

    def broadcast_to(self, shape: Shape, target: Shape) -> None:
        """Demand that a shape broadcasts to ``target`` and leaves it as it is."""
        if len(shape) > len(target):
            raise self.bad(f"{BROADCAST}: rank {len(shape)} does not go into rank {len(target)}")
        for d, n in zip(shape, target[len(target) - len(shape):]):
            self.joins.fits(d, n)

    def pick(self, v: Val, index: Index, shape: Shape) -> Index:
        """Indices into ``v`` for element ``index`` of the broadcast ``shape``."""
        skip = len(shape) - v.rank
        return tuple(self.joins.at(d, shape[skip + k], index[skip + k])
                     for k, d in enumerate(v.shape))

    def elementwise(self, fn: Callable[..., Expr], *vals: Val, tag: str = "", out: int = 0) -> Val:
        """``fn(elements...)`` over the broadcast shape."""
        shape = self.broadcast(*(v.shape for v in vals))
        return self.map(shape, lambda index: fn(*(self.at(v, self.pick(v, index, shape))
                                                  for v in vals)), vals, tag, out)

    def same_dtype(self, *vals: Val) -> None:
        """ModelError unless all Vals have one dtype."""
        if len({v.dtype for v in vals}) > 1:
            raise self.bad("inputs must have one dtype")

    def need(self, v: Val, kinds: str, instead: str = "cast to a supported dtype first") -> None:
        """UnsupportedError unless the dtype's kind (f, i, u, b) is among ``kinds``."""
        if DTYPES[v.dtype].kind not in kinds:
            raise self.unsupported(f"dtype {v.dtype}", instead)

    def move(self, v: Val, shape: abc.Iterable[ExprLike],
             source: Callable[[Index], abc.Iterable[ExprLike]], tag: str = "", out: int = 0,
             names: abc.Sequence[str] | None = None) -> Val:
        """The tensor whose element ``index`` is ``v[source(index)]``."""
        return self.map(shape, lambda index: self.at(v, source(index)), [v], tag, out, names)


def _outside(index: Index, shape: Shape) -> bool:
    """True for an index that is known to lie outside."""
    return any(isinstance(i, Const) and isinstance(d, Const) and not 0 <= i.value < d.value
               for i, d in zip(index, shape))

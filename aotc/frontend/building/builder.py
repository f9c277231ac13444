"""Builder: what an operator's function works with while a Program is made from a Graph.

The central method is ``map``: it says what an output element is, as an expression of elements of
the sources.  If every source is a shape value the result is one too and nothing is computed at
run time; otherwise it is a Compute.
"""

from dataclasses import replace
from functools import lru_cache
from weakref import proxy

import numpy as np

from aotc.errors import ModelError
from aotc.frontend.building import symbolic
from aotc.frontend.building.declared import expected_shape, loaded
from aotc.frontend.building.joins import WHY as BROADCAST
from aotc.frontend.building.joins import Joins
from aotc.frontend.building.known import Known, without_loads
from aotc.frontend.building.values import SMALL, Affine, Sequence, Val, const_at
from aotc.frontend.graph import shorten
from aotc.frontend.read.identifiers import Names
from aotc.frontend.refusals import Refusal
from aotc.ir.dtypes import DTYPES, INDEX, dtype_of, is_float
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Load,
    Sym,
    Where,
    as_expr,
    axes_of,
    checked,
    compare,
    walk,
)
from aotc.ir.library import LIBRARY
from aotc.ir.program import Buffer, Compute, LibCall, make_const, static_shape
from aotc.ir.simplify import proves, simplify

MOST_INLINED = 1 << 13  # nodes of sub-graphs: nested loops and branches multiply
LAZY_NODES = 96  # size of a shape value's expression beyond which it gets a buffer of its own
INSIDE = "index must lie inside the table"
LAZY_FLOATS = 16  # float shape values (scales, sizes): only small ones stay expressions


class Builder:
    """Program under construction.  ``trial``: only shapes and limits are wanted; ``library``: the
    target has library kernels."""

    def __init__(self, graph, trial=False, library=True):
        self.graph, self.trial, self._library, self.node = graph, trial, library, None
        self.names, self.affine = Names(), Affine()
        self.buffers, self.consts, self.steps, self.checks = {}, {}, [], {}
        self.env, self.limits, self.equal = {}, [], {}
        self._held, self.preset, self.wrapped, self._bodies = {}, {}, {}, {}
        self.run_node = None  # function (node, builder) that enters the node's Vals
        self._inlined = 0  # nodes of sub-graphs built so far
        own = proxy(self)  # without a circle: the constants are let go with the Builder
        self.known = Known(own)  # what can be had of a Val while building
        self.inner = ()  # nodes of the sub-graphs that are being built
        self.joins = Joins(own, graph.learnt)
        self.may_be_empty = set()  # names of extents of inputs that something is appended to
        self.unrounded = frozenset()  # outputs that will be rounded to another dtype at the end
        # f16 Val -> the f32 Val that it was rounded from; -> the same numbers as f32
        self.wide, self.exact, self.halves = {}, {}, False
        for s in graph.syms:
            self.names.claim(s.name, keep_case=True, extent=True)
        for t in graph.inputs:
            self.preset[t.name] = self.names.claim(t.name)
        for name in graph.outputs:
            if name not in self.preset:
                self.preset[name] = self.names.claim(name)

    # ------------------------------------------------------------ messages

    def where(self):
        """The node being built, for messages: label, operator, opset, input types."""
        n = self.node
        return f"node {shorten(n.label)!r} ({n.domain + '.' if n.domain else ''}{n.op}, " \
               f"opset {n.opset}, inputs {self._types() or 'none'})"

    def _types(self):
        return ", ".join("none" if not i else str(self.env[i]) for i in self.node.inputs)

    def unsupported(self, what, instead):
        """UnsupportedError for the current node: what, and what to do instead."""
        return Refusal(self.node, self._types(), what, instead)

    def bad(self, what):
        """ModelError for the current node."""
        return ModelError(f"{self.where()}: {what}")

    @property
    def origin(self):
        return (self.node.origin or (self.node.label,)) if self.node else ()

    # ------------------------------------------------------------ inputs and parameters

    def arg(self, k):
        """Input ``k`` of the node as a Val, None if it is missing."""
        ins = self.node.inputs
        return self._given(self.env[ins[k]]) if k < len(ins) and ins[k] else None

    def args(self):
        return [self._given(self.env[i]) if i else None for i in self.node.inputs]

    def _given(self, v):
        """Parameters are small integers and bools: known ones come as such."""
        if isinstance(v, Sequence):
            self.buffer(v)
        small = v.buffer and not is_float(v.dtype) and v.size is not None and v.size <= SMALL
        return self.known(v) if small else v

    def elements(self, v):
        """The elements of a small integer tensor (rank 0 or 1), which may come from data."""
        v = self.known(v)
        n = v.size
        if n is None or n > 4 * SMALL and v.array is None or v.rank > 1:
            raise self.bad(f"expected a short list of integers, got {v}")
        points = [()] if v.rank == 0 else [(Const(k),) for k in range(n)]
        out = [without_loads(self, self.index_at(v, p)) for p in points]
        if any(is_float(n.dtype) for e in out if not loaded(e) for n in walk(e)):
            raise self.unsupported("a shape, axis or size whose float arithmetic on extents rounds "
                                   "where integers do not", "pin the dimensions that it depends on")
        return out

    def from_data(self, v):
        """True if elements of a small integer tensor are known at run time only."""
        return any(map(loaded, self.elements(v)))

    def declared(self, out=0, rank=None):
        """The extents that the model declares for output ``out`` (of ``rank`` dimensions, if that
        is known), if they are all numbers; UnsupportedError if not.  Shapes that come from data
        must be declared."""
        dims = expected_shape(self, self.node.outputs[out], rank)
        if dims is None:
            raise self.unsupported(*self.known.reason(self.args()[1:] or self.args(), True))
        return tuple(map(Const, dims))

    def ints(self, v):
        """``elements`` as index expressions: UnsupportedError for data."""
        out = self.elements(v)
        if any(map(loaded, out)):
            raise self.unsupported(*self.known.reason([v]))
        return out

    def static_ints(self, v):
        """``ints`` as Python ints; UnsupportedError if one depends on a symbol."""
        out = self.ints(v)
        if not all(isinstance(e, Const) for e in out):
            raise self.unsupported("a parameter that depends on an input's shape",
                                   "make it constant, or pin the dimensions that it depends on")
        return [e.value for e in out]

    def param(self, attr, k, default=None):
        """Static ints from an attribute (older opsets) or from input ``k`` (newer ones)."""
        if attr in self.node.attrs:
            value = self.node.attrs[attr]
            return list(value) if isinstance(value, (tuple, list)) else [value]
        v = self.arg(k) if k is not None else None
        return default if v is None else self.static_ints(v)

    def scalar(self, v):
        """The one element of a constant tensor as a Python number; None if it is not constant."""
        v = self.known(v) if v is not None and v.size == 1 else v
        if v is not None and v.array is not None and v.array.size == 1:
            return v.array.reshape(-1)[0].item()
        if v is not None and v.fn is not None and v.size == 1:
            e = self.at(v, (Const(0),) * v.rank)
            return e.value if isinstance(e, Const) else None
        return None

    def axis(self, value, rank):
        """A non-negative axis number; ModelError if it is outside -rank .. rank-1."""
        if not -rank <= value < rank:
            raise self.bad(f"axis {value} is out of range for rank {rank}")
        return value % rank

    @property
    def library(self):
        """True if the node may call library kernels; on a few known elements none is needed."""
        vals = [self.env[i] for i in self.node.inputs if i]
        return self._library and not (vals and all(
            v.size is not None and v.size <= SMALL and not self.known.is_data(v) for v in vals))

    # ------------------------------------------------------------ elements

    def at(self, v, index):
        """Element ``index`` of a Val as an expression."""
        index = tuple(simplify(as_expr(i)) for i in index)
        if v.fn is not None:
            return v.fn(index)
        if v.array is not None:
            known = const_at(self.affine, v.array, v.dtype, index)
            if known is not None:
                return known
        return self.load(v, index)

    def index_at(self, v, index):
        """``at`` as an index expression (64-bit)."""
        return symbolic.cast(INDEX, self.at(v, index))

    def load(self, v, index):
        """A Load of element ``index``, whatever the Val is; a shape value gets a buffer."""
        return Load(self.buffer(v), tuple(as_expr(i) for i in index), v.dtype)

    def buffer(self, v):
        """Name of a buffer that holds the Val; UnsupportedError for a sequence, which has none."""
        if isinstance(v, Sequence):
            raise self.unsupported("a sequence", "take its tensors out first (SequenceAt, "
                                   "ConcatFromSequence)")
        if v.buffer:
            return v.buffer
        if id(v) not in self._held:
            name = self._const(v) if v.array is not None else self._materialise(v)
            self._held[id(v)] = (name, v)
        return self._held[id(v)][0]

    def _const(self, v):
        name = self.names.claim(v.name or f"{self.node.label}_const")
        self.buffers[name] = make_const(name, v.array, v.name)
        self.consts[name] = v.array
        return name

    def _materialise(self, v):
        axes = self.axes(v.shape)
        return self.compute(axes, self.at(v, axes), tag="" if not v.name else "shape").buffer

    # ------------------------------------------------------------ results

    def axes(self, shape, names=None, prefix="i"):
        """One Axis per extent."""
        names = names or [f"{prefix}{k}" for k in range(len(shape))]
        return tuple(Axis(n, simplify(as_expr(d))) for n, d in zip(names, shape, strict=True))

    def compute(self, axes, body, raxes=(), fold="none", tag="", out=0, acc=""):
        """Append a Compute; its Val.  ``tag`` "" is the node's output ``out``, else a temporary
        called after it.  Without raxes a fold is the body itself."""
        body = simplify(body)
        fold = fold if raxes else "none"
        name = self._new_buffer(axes, body.dtype, tag, out)
        self._append(Compute((name,), tuple(axes), tuple(raxes), fold, body, acc, self.origin))
        return Val(self.buffers[name].shape, body.dtype, buffer=name)

    def compute_fold(self, axes, raxes, fold, body, tags, outs=None):
        """Append a Compute with a multi-state Fold; one Val per state."""
        outs = outs or (0,) * len(tags)
        names = tuple(self._new_buffer(axes, dtype, tag, out)
                      for (_, dtype), tag, out in zip(fold.states, tags, outs, strict=True))
        self._append(Compute(names, tuple(axes), tuple(raxes), fold, simplify(body), "",
                             self.origin))
        return tuple(Val(self.buffers[n].shape, self.buffers[n].dtype, buffer=n) for n in names)

    def call(self, kernel, inputs, shapes, tags=(), **attrs):
        """Append a LibCall of a kernel in ``ir/library.py`` on Vals; one Val per output, of the
        ``shapes`` given.  ``tags``: as for ``compute``, instead of the outputs' names."""
        row = LIBRARY[kernel]
        tags = tags or [tag for tag, _ in row.outs]
        dtypes = row.out_dtypes(inputs[0].dtype)
        names = tuple(self._new_buffer(self.axes(shape), dtype, tag, 0)
                      for tag, dtype, shape in zip(tags, dtypes, shapes, strict=True))
        attributes = tuple((k, attrs[k]) for k in row.attrs)
        self._append(LibCall(kernel, attributes, tuple(map(self.buffer, inputs)), names,
                             self.origin))
        return tuple(Val(self.buffers[n].shape, self.buffers[n].dtype, buffer=n) for n in names)

    def _append(self, step):
        self.steps.append(step)
        self.known.enter(step)

    def _new_buffer(self, axes, dtype, tag, out):
        tensor = self.node.outputs[out] if out < len(self.node.outputs) else self.node.label
        tag = tag or ("wide" if out in self.unrounded else "")
        if not tag and tensor in self.preset and self.preset[tensor] not in self.buffers:
            name = self.preset[tensor]
        else:
            name = self.names.claim(f"{tensor}_{tag}" if tag else tensor)
        self.buffers[name] = Buffer(name, tuple(a.extent for a in axes), dtype, "temp",
                                    "" if tag else tensor)
        return name

    def map(self, shape, fn, sources, tag="", out=0, names=None):
        """The tensor whose element ``index`` is ``fn(index)``, an expression of elements (``at``)
        of ``sources``.  A shape value if all sources are, else a Compute."""
        shape = tuple(simplify(as_expr(d)) for d in shape)
        if sources and all(self.symbolic(s) for s in sources):
            value = self._lazy(shape, fn, sources)
            if value is not None:
                return value
        axes = self.axes(shape, names)
        return self.compute(axes, fn(axes), tag=tag, out=out)

    def value(self, shape, fn):
        """A shape value: ``fn(index)`` may use symbols and indices only."""
        return self.map(shape, fn, [Val((), INDEX, fn=lambda index: Const(0))])

    def const(self, array, name=""):
        """A constant Val."""
        array = np.ascontiguousarray(array) if array.ndim else array
        return Val(tuple(Const(d) for d in array.shape), dtype_of(array), array=array, name=name)

    def scalar_val(self, value, dtype):
        """A constant Val of rank 0."""
        return self.const(np.array(value, DTYPES[dtype].numpy))

    def symbolic(self, v):
        """True if elements are known while building: shape values, small or regular integers."""
        if v.fn is not None:
            return True
        if v.array is None:
            return False
        if is_float(v.dtype):
            return v.array.size <= LAZY_FLOATS
        return v.array.size <= SMALL or self.affine.row(
            v.array, (slice(None),) * v.array.ndim) is not None

    def _lazy(self, shape, fn, sources):
        dims = static_shape(shape)
        size = None if dims is None else int(np.prod(dims, dtype=np.int64))
        body = symbolic.tidy(fn(self.axes(shape)))
        if is_float(body.dtype) and (size is None or size > LAZY_FLOATS
                                     or all(s.array is not None for s in sources)):
            return None
        nodes = list(walk(body))
        if len(nodes) > LAZY_NODES:
            return None
        if any(isinstance(n, Load) for n in nodes) and (size is None or size > SMALL):
            return None
        at = lru_cache(maxsize=None)(lambda index: symbolic.tidy(fn(index)))
        if size is not None and size <= SMALL:
            points = list(np.ndindex(*dims))
            values = [at(tuple(map(Const, p))) for p in points]
            if all(isinstance(e, Const) for e in values):
                array = np.array([e.value for e in values]).astype(_numpy(body.dtype))
                return self.const(array.reshape(dims))
        return Val(shape, body.dtype, fn=at)

    def inline(self, body, vals, tag=""):
        """The Vals of a sub-graph's outputs, its inputs being ``vals``, built in place.  ``tag``
        tells the steps of several copies apart."""
        self._inlined += len(body.nodes)
        if self._inlined > MOST_INLINED:
            raise self.unsupported(f"sub-graphs that unroll to over {MOST_INLINED} nodes",
                                   "shorten the loops or nest them less")
        if len(vals) != len(body.inputs):
            raise self.bad(f"a sub-graph with {len(body.inputs)} inputs is given {len(vals)}")
        outer, env, inner = self.node, self.env, self.inner
        self.inner = (*inner, *body.nodes)
        if body not in self._bodies:
            self._bodies[body] = {k: self.const(a, k) for k, a in body.constants.items()}
        self.env = {**env, **self._bodies[body], **dict(zip(body.inputs, vals))}
        for n in body.nodes:
            name = f"{n.label}_{tag}" if tag else n.name
            self.run_node(replace(n, name=name, origin=n.origin or (n.label,)), self)
        outs = tuple(self.env[o] for o in body.outputs)
        self.node, self.env, self.inner = outer, env, inner
        return outs

    # ------------------------------------------------------------ shapes

    def require(self, op, a, b, why):
        """Demand ``a op b`` for all values of symbols and axes: proved, or refused, or a Check at
        entry.  In the trial build a condition on one symbol also narrows that symbol's range.
        False if it depends on axes in a way that no entry check can state."""
        cond = simplify(compare(op, as_expr(a), as_expr(b)))
        if not isinstance(cond, Const) and axes_of(cond):
            cond = symbolic.over_axes(cond)
            if cond is None:
                return False
        if isinstance(cond, Const):
            if not cond.value:
                raise self.bad(f"{why}: {as_expr(a)} {op} {as_expr(b)} does not hold"
                               + _ranges(as_expr(a) - as_expr(b)))
            return True
        if self.trial:
            if why != BROADCAST:  # an extent that must be n there may also be 1
                self.note(cond, why)
            if op == "eq":
                self.equal.setdefault((as_expr(a), as_expr(b)), self.node.label)
        if op == "eq" and why != BROADCAST:
            self.joins.note_equal(simplify(as_expr(a)), simplify(as_expr(b)))
        self.check(cond, why)
        return True

    def check(self, cond, why):
        """Demand a condition on symbols at entry."""
        cond = simplify(cond)
        if cond == Const(False, "bool"):
            raise self.bad(f"{why}: they do for no extents")
        if cond != Const(True, "bool"):
            self.checks.setdefault(cond, f"{self.rule(why)}: {symbolic.readable(cond)}")

    def inside(self, i, n, why=INSIDE):
        """Index ``i`` into an extent ``n``, negative counting from the end: the plain index if
        that can be proved or checked at entry, else wrapped and checked at run time."""
        i = simplify(i)
        if any(isinstance(e, Load) for e in walk(i)):
            return self.from_end(i, n, why)
        if not proves(compare("ge", i, Const(0))):
            i = simplify(Where(compare("lt", i, Const(0)), i + n, i))
            if not self.require("ge", i, 0, why):
                return self.from_end(i, n, why)
        return i if self.require("lt", i, n, why) else self.checked(i, n, why)

    def checked(self, i, n, why=INSIDE):
        """Index ``i`` from data into an extent ``n``: outside is a fault that names this node."""
        return checked(i, n, self.rule(why))

    def from_end(self, i, n, why=INSIDE):
        """``checked`` for an index that counts from the end where it is negative."""
        return self.checked(Where(compare("lt", i, Const(0)), i + n, i), n, why)

    def nonempty(self, extent, shape, what):
        """Demand at entry that an axis of this extent has an element to read, unless the result
        of this shape has none that reads it."""
        if proves(compare("ge", as_expr(extent), Const(1))):
            return
        size = Const(1)
        for d in shape:
            size = size * d
        size = simplify(size)
        why = f"there must be {what}"
        if isinstance(size, Const):
            if size.value:
                self.require("ge", extent, 1, why)
            return
        self.check(Binary("or", compare("le", size, Const(0)),
                          compare("ge", as_expr(extent), Const(1))), why)

    def rule(self, why):
        """What a fault says that breaks a rule of the current node."""
        return f"{shorten(self.node.label)} ({self.node.op}): {why}"

    def note(self, cond, why):
        """In the trial build: a condition that a default range of a symbol should satisfy."""
        solved = symbolic.limit_of(cond) if self.trial else None
        if solved is not None:
            why = f"{why}, node {shorten(self.node.label)!r}"
            self.limits.append(replace(solved, why=why))

    def broadcast(self, *shapes):
        """The broadcast shape; what cannot be proved to broadcast becomes Checks."""
        rank = max(map(len, shapes))
        return tuple(self.joins.extent([s[k - rank + len(s)] for s in shapes
                                        if k - rank + len(s) >= 0]) for k in range(rank))

    def broadcast_to(self, shape, target):
        """Demand that a shape broadcasts to ``target`` and leaves it as it is."""
        if len(shape) > len(target):
            raise self.bad(f"{BROADCAST}: rank {len(shape)} does not go into rank {len(target)}")
        for d, n in zip(shape, target[len(target) - len(shape):]):
            self.joins.fits(d, n)

    def pick(self, v, index, shape):
        """Indices into ``v`` for element ``index`` of the broadcast ``shape``."""
        skip = len(shape) - v.rank
        return tuple(self.joins.at(d, shape[skip + k], index[skip + k])
                     for k, d in enumerate(v.shape))

    def elementwise(self, fn, *vals, tag="", out=0):
        """``fn(elements...)`` over the broadcast shape."""
        shape = self.broadcast(*(v.shape for v in vals))
        return self.map(shape, lambda index: fn(*(self.at(v, self.pick(v, index, shape))
                                                  for v in vals)), vals, tag, out)

    def same_dtype(self, *vals):
        """ModelError unless all Vals have one dtype."""
        if len({v.dtype for v in vals}) > 1:
            raise self.bad("inputs must have one dtype")

    def need(self, v, kinds, instead="cast to a supported dtype first"):
        """UnsupportedError unless the dtype's kind (f, i, u, b) is among ``kinds``."""
        if DTYPES[v.dtype].kind not in kinds:
            raise self.unsupported(f"dtype {v.dtype}", instead)

    def move(self, v, shape, source, tag="", out=0, names=None):
        """The tensor whose element ``index`` is ``v[source(index)]``."""
        return self.map(shape, lambda index: self.at(v, source(index)), [v], tag, out, names)


def _numpy(dtype):
    return DTYPES[dtype].numpy


def _ranges(e):
    """The ranges of the symbols in ``e``, for a message that a wider one might not need."""
    syms = sorted({f"{s.name} in {s.range}" for s in walk(e) if isinstance(s, Sym)})
    return f" for any {', '.join(syms)}: state other extents if the model allows" if syms else ""



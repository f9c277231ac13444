"""Sequences whose length is known while compiling: lists of tensors, which need no memory; and
optionals, of which it is known whether they are there."""

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.values import Absent, Entries, Result, Sequence, Val, Value
from aotc.frontend.graph import Node
from aotc.frontend.ops.tensors.ops_control import results
from aotc.frontend.ops.tensors.ops_gather import index_of
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.ir.expr import Const, Expr
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

MOST = 4096  # tensors of a sequence


def _tensors(b: Builder, k: int = 0) -> list[Val]:
    """The Vals of input ``k``, a sequence."""
    v = b.env[b.node.inputs[k]]
    if not isinstance(v, Sequence) or isinstance(v, Absent):
        raise b.bad(f"input {k} must be a sequence")
    return list(v.vals)


def entries(b: Builder, whole: Val) -> Entries:
    """The list of the entries of a tensor along its first axis."""
    def opened(v: Val) -> tuple[Val, ...]:
        count = static_shape(v.shape[:1])
        if count is None or count[0] > MOST:
            raise b.unsupported(f"a list of {v.shape[0]} tensors",
                                "join its tensors (ConcatFromSequence), take one (SequenceAt) or "
                                "count them (SequenceLength)")
        return tuple(_piece(b, v, 0, Const(k), None, f"entry{k}") for k in range(count[0]))
    return Entries(whole, opened)


def joined(b: Builder, first: Sequence, rows: Val) -> Entries:
    """A list with the entries of a tensor behind its own."""
    if isinstance(first, Entries):
        return entries(b, concat(b, [first.whole, rows], 0))
    if not first.vals:
        return entries(b, rows)
    own = [b.move(v, (Const(1), *v.shape), lambda i: i[1:], f"row{k}")
           for k, v in enumerate(first.vals)]
    return entries(b, concat(b, [*own, rows], 0))


def _listed(b: Builder) -> Entries | None:
    """The node's list, if it is the entries of a tensor."""
    v = b.env[b.node.inputs[0]]
    return v if isinstance(v, Entries) else None


def _position(b: Builder, k: int, count: int, extra: int = 0) -> int:
    """Input ``k`` as a place in a sequence of ``count`` tensors; its end if it is missing."""
    v = b.arg(k)
    if v is None:
        return count - 1 + extra
    at, = b.static_ints(v)
    if not -count <= at < count + extra:
        raise b.bad(f"position {at} in a sequence of {count} tensors")
    return at + count if at < 0 else at


@op("SequenceEmpty", since=11)
def sequence_empty(node: Node, b: Builder) -> Result:
    return Sequence(())


@op("SequenceConstruct", since=11)
def sequence_construct(node: Node, b: Builder) -> Result:
    return Sequence(tuple(b.inputs()))


@op("SequenceInsert", since=11)
def sequence_insert(node: Node, b: Builder) -> Result:
    many = _listed(b)
    if many is not None and b.arg(2) is None:
        x = b.input(1)
        return joined(b, many, b.move(x, (Const(1), *x.shape), lambda i: i[1:], "row"))
    vals = _tensors(b)
    if len(vals) >= MOST:
        raise b.unsupported(f"a sequence of over {MOST} tensors", "join them as one tensor")
    vals.insert(_position(b, 2, len(vals), 1), b.input(1))
    return Sequence(tuple(vals))


@op("SequenceErase", since=11)
def sequence_erase(node: Node, b: Builder) -> Result:
    vals = _tensors(b)
    del vals[_position(b, 1, len(vals))]
    return Sequence(tuple(vals))


@op("SequenceAt", since=11)
def sequence_at(node: Node, b: Builder) -> Result:
    many = _listed(b)
    if many is not None:
        at = index_of(b, b.input(1), (Const(0),) * b.input(1).rank, many.whole.shape[0])
        return b.move(many.whole, many.whole.shape[1:], lambda i: (at, *i))
    vals = _tensors(b)
    return vals[_position(b, 1, len(vals))]


@op("SequenceLength", since=11)
def sequence_length(node: Node, b: Builder) -> Result:
    many = _listed(b)
    if many is not None:
        return b.value((), lambda _: many.whole.shape[0])
    return b.const(np.array(len(_tensors(b)), np.int64))


@op("SplitToSequence", since=11)
def split_to_sequence(node: Node, b: Builder) -> Result:
    x, split = b.input(0), b.arg(1)
    axis = b.axis(node.attr("axis", 0), x.rank)
    sizes = [Const(1)] if split is None else b.ints(split)
    if split is None or split.rank == 0:  # pieces of one size, the last one what is left
        extent, size = static_shape((x.shape[axis],)), sizes[0]
        if extent is None and size == Const(1):
            rest = (Const(1),) if node.attr("keepdims", 1) else ()
            shape = (x.shape[axis], *x.shape[:axis], *rest, *x.shape[axis + 1:])
            return entries(b, b.move(x, shape, lambda i: (
                *i[1:axis + 1], i[0], *i[axis + 1 + len(rest):]), "entries"))
        if extent is None or not isinstance(size, Const):
            raise b.unsupported(f"pieces of {size} of an axis of {x.shape[axis]}, whose number is "
                                "not constant", "pin the dimension")
        if size.value < 1 or -(-extent[0] // size.value) > MOST:
            raise b.bad(f"{extent[0]} elements in pieces of {size}")
        sizes = [Const(min(size.value, extent[0] - k)) for k in range(0, extent[0], size.value)]
    # as ONNX Runtime has it, which torch.unbind is exported for; the standard speaks of no split
    single = split is None or split.rank == 0 and all(n == Const(1) for n in sizes)
    squeezed = single and not node.attr("keepdims", 1)
    out = []
    begin: Expr = Const(0)
    for k, n in enumerate(sizes):
        out.append(_piece(b, x, axis, begin, None if squeezed else n, f"piece{k}"))
        begin = simplify(begin + n)
    b.require("eq", begin, x.shape[axis], "the pieces must add up to the extent")
    return Sequence(tuple(out))


def _piece(b: Builder, x: Val, axis: int, begin: Expr, n: Expr | None, tag: str) -> Val:
    """``n`` elements of an axis from ``begin`` on; None: the one there, without the axis."""
    if n is None:
        return b.move(x, x.shape[:axis] + x.shape[axis + 1:],
                      lambda i: i[:axis] + (begin,) + i[axis:], tag)
    return b.move(x, x.shape[:axis] + (n,) + x.shape[axis + 1:],
                  lambda i: i[:axis] + (i[axis] + begin,) + i[axis + 1:], tag)


@op("ConcatFromSequence", since=11)
def concat_from_sequence(node: Node, b: Builder) -> Result:
    many, fresh = _listed(b), bool(node.attr("new_axis", 0))
    if many is not None:
        return _of_entries(b, many.whole, fresh)
    vals = _tensors(b)
    if not vals:
        raise b.unsupported("an empty sequence, whose tensors have no shape", "remove it")
    b.same_dtype(*vals)
    if len({v.rank for v in vals}) > 1:
        raise b.bad("the tensors of the sequence must have one rank")
    axis = b.axis(node.attr("axis"), vals[0].rank + fresh)
    if fresh:
        vals = [b.move(v, v.shape[:axis] + (Const(1),) + v.shape[axis:],
                       lambda i: i[:axis] + i[axis + 1:], f"row{k}") for k, v in enumerate(vals)]
    return concat(b, vals, axis)


def _of_entries(b: Builder, v: Val, fresh: bool) -> Val:
    """The entries of a tensor along its first axis, joined along another one."""
    n, rest = v.shape[0], v.shape[1:]
    axis = b.axis(b.node.attr("axis"), len(rest) + fresh)
    if fresh:
        return b.move(v, (*rest[:axis], n, *rest[axis:]),
                      lambda i: (i[axis], *i[:axis], *i[axis + 1:]))
    d = rest[axis]
    return b.move(v, (*rest[:axis], simplify(n * d), *rest[axis + 1:]),
                  lambda i: (i[axis] // d, *i[:axis], i[axis] % d, *i[axis + 1:]))


@op("SequenceMap", since=17)
def sequence_map(node: Node, b: Builder) -> Result:
    """A sub-graph on every tensor of a sequence; what else it is given is there for each round, or
    a sequence of the same length."""
    rounds, body = len(_tensors(b)), node.attr("body")
    given: list[list[Value]] = []
    for k, name in enumerate(node.inputs):
        v = b.env[name]
        given.append(list(v.vals) if isinstance(v, Sequence) else [v] * rounds)
        if len(given[-1]) != rounds:
            raise b.bad(f"input {k} is a sequence of {len(given[-1])} tensors, the first one of "
                        f"{rounds}")
    if len(body.outputs) != len(node.outputs):
        raise b.bad(f"a sub-graph with {len(body.outputs)} outputs for {len(node.outputs)}")
    made = [b.inline(body, [g[k] for g in given], f"round{k}") for k in range(rounds)]
    return results([Sequence(tuple(b.as_tensor(m[k]) for m in made))
                    for k in range(len(node.outputs))])


@op("Optional", since=15)
def optional(node: Node, b: Builder) -> Result:
    return b.env[node.inputs[0]] if node.inputs and node.inputs[0] else Absent()


@op("OptionalHasElement", since=15)
def optional_has_element(node: Node, b: Builder) -> Result:
    """Tensors and sequences are there; what is not there is a missing input."""
    there = bool(node.inputs and node.inputs[0]) and not isinstance(b.env[node.inputs[0]], Absent)
    return b.scalar_val(there, "bool")


@op("OptionalGetElement", since=15)
def optional_get_element(node: Node, b: Builder) -> Result:
    v = b.env[node.inputs[0]]
    return v if isinstance(v, Sequence) and not isinstance(v, Absent) else b.input(0)

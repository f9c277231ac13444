"""Operators that move elements, and operators about shapes."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import (
    bound_number,
    expect,
    expect_shape,
)
from aotc.frontend.building.known import choose_element
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Graph, Node
from aotc.frontend.ops.tensors.reshape import source_index
from aotc.frontend.read.read_types import dtype_name
from aotc.frontend.readings import Reading, choose_reading, list_deciding
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Guarded,
    Load,
    Shape,
    Sym,
    Where,
    as_expr,
    compare,
    walk,
)
from aotc.ir.program import Compute
from aotc.ir.simplify import are_equal, proves, simplify


def product(dims: Iterable[Expr]) -> Expr:
    """The product of extents, simplified."""
    out: Expr = Const(1)
    for d in dims:
        out = out * d
    return simplify(out)


# ---------------------------------------------------------------- reshape and its kin

def reshape(b: Builder, v: Val, shape: Shape, tag: str = "", out: int = 0) -> Val:
    """``v`` with another shape of the same number of elements."""
    return b.move(v, shape, source_index(v.shape, shape), tag, out)


@op("Reshape")
def reshape_op(node: Node, b: Builder) -> Result:
    x = b.input(0)
    given = b.arg(1)
    if given is not None and b.from_data(given):
        return _reshape_from_data(node, b, x)
    wanted = b.ints(given) if given is not None else [
        Const(d) for d in node.attr("shape", ())]
    shape, free = [], None
    for k, d in enumerate(wanted):
        value = getattr(d, "value", None)
        if value == -1:
            if free is not None:
                raise b.bad("a shape may hold -1 once")
            free, d = k, Const(1)
        elif value == 0 and not node.attr("allowzero", 0):
            if k >= x.rank:
                raise b.bad(f"shape entry {k} is 0 but the input has rank {x.rank}")
            d = x.shape[k]
        elif value is not None and value < 0:
            raise b.bad(f"shape entry {k} is {value}")
        elif value is None and not node.attr("allowzero", 0) and Const(-1) in wanted:
            d = _copied_at_zero(b, x, k, d)
        shape.append(d)
    if free is not None:
        shape[free] = _remaining(b, x.shape, shape)
    else:
        b.require("eq", product(x.shape), product(shape), "Reshape keeps the number of elements")
    return reshape(b, x, tuple(shape))


def _copied_at_zero(b: Builder, x: Val, k: int, d: Expr) -> Expr:
    """An extent beside -1 that is the input's where it is 0; one of those that the input has leaves
    no elements there."""
    if proves(compare("ge", d, Const(1))) or any(are_equal(d, e) for e in x.shape):
        return d
    if k >= x.rank:
        b.require("ge", d, 1, f"shape entry {k} is 0 but the input has rank {x.rank}")
        return d
    return simplify(Where(compare("eq", d, Const(0)), x.shape[k], d))


def _reshape_from_data(node: Node, b: Builder, x: Val) -> Val:
    declared, total = b.declared(), product(x.shape)
    b.require("eq", total, product(declared), "Reshape keeps all elements")
    given = [bound_number(e) for e in b.elements(b.input(1))]
    if not node.attr("allowzero", 0):
        given = [Where(compare("eq", e, Const(0)), x.shape[k] if k < x.rank else Const(-2), e)
                 for k, e in enumerate(given)]
    free = [compare("eq", e, Const(-1)) for e in given]
    known = product([Where(f, Const(1), e) for f, e in zip(free, given)])
    expect_shape(b, [Where(f, total // known, e) for f, e in zip(free, given)], declared)
    return reshape(b, x, declared)


def _remaining(b: Builder, old: Iterable[Expr], new: Iterable[Expr]) -> Expr:
    """The extent that -1 stands for; divisibility is proved or becomes a Check."""
    old, new = list(old), list(new)
    for d in list(new):
        twin = next((o for o in old if are_equal(o, d)), None)
        if twin is not None:
            old.remove(twin)
            new.remove(d)
    total, rest = product(old), product(new)
    if not are_equal(rest, Const(1)):
        b.require("eq", total % rest, 0, "Reshape: the rest of the shape must divide the elements")
    return simplify(total // rest)


@op("Flatten")
def flatten(node: Node, b: Builder) -> Result:
    x = b.input(0)
    axis = node.attr("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        raise b.bad(f"axis {axis} is out of range for rank {x.rank}")
    return reshape(b, x, (product(x.shape[:axis]), product(x.shape[axis:])))


@op("Squeeze")
def squeeze(node: Node, b: Builder) -> Result:
    x = b.input(0)
    given = b.param("axes", 1)
    if given is None:
        given = list(_removed(node, b, x))
    axes = {b.axis(a, x.rank) for a in given}
    for a in axes:
        b.require("eq", x.shape[a], 1, f"Squeeze: dimension {a} must be 1")
    keep = [k for k in range(x.rank) if k not in axes]

    def source(index: Index) -> list[Expr]:
        full: list[Expr] = [Const(0)] * x.rank
        for k, i in zip(keep, index):
            full[k] = i
        return full
    return b.move(x, [x.shape[k] for k in keep], source)


def _removed(node: Node, b: Builder, x: Val) -> Reading:
    """The axes of a Squeeze without axes: those of extent 1, of which all calls must have the
    same."""
    one = [k for k, d in enumerate(x.shape) if proves(compare("eq", d, Const(1)))]
    may = [k for k, d in enumerate(x.shape)
           if k not in one and not proves(compare("ne", d, Const(1)))]
    if not may or _is_reshaped(b.graph, node, b.inner):
        return tuple(one)
    options = {tuple(sorted((*one, *taken))): [
        compare("eq" if k in taken else "ne", x.shape[k], Const(1)) for k in may]
        for n in range(len(may) + 1) for taken in combinations(may, n)}
    names = list_deciding(b, [x.shape[k] for k in may])
    return choose_reading(b, options, "a Squeeze without axes removes the same ones in all calls",
                          b.unsupported(
        f"without axes it removes those of extent 1, and the rank depends on {', '.join(names)}: "
        "nothing that reads the result, or is declared, says which it is",
        "give it axes, declare the shape of an output, or say whether that is 1 with "
        + " ".join(f"--dim {n}=1 or --dim {n}=2..HI" for n in names)
        + " (" + " or ".join(f"dims={{{n!r}: 1}}, {{{n!r}: (2, hi)}}" for n in names) + ")"))


def _is_reshaped(graph: Graph, node: Node, inner: Iterable[Node]) -> bool:
    """True if only the order of the result's elements counts, which axes of extent 1 leave."""
    out = node.outputs[0]
    readers = [n for n in (*graph.nodes, *inner) if out in (*n.inputs, *n.captures)]
    return out not in graph.outputs and bool(readers) and all(
        n.op == "Reshape" and not n.domain and n.inputs[0] == out and out not in n.inputs[1:]
        and (n.attr("allowzero", 0) or _has_no_zero(graph, n)) for n in readers)


def _has_no_zero(graph: Graph, n: Node) -> bool:
    """True for a Reshape to constant extents that copies none."""
    given = graph.initializers.get(n.inputs[1]) if len(n.inputs) > 1 else np.asarray(
        n.attr("shape", ()))
    return given is not None and bool(given.all())


@op("Unsqueeze")
def unsqueeze(node: Node, b: Builder) -> Result:
    x = b.input(0)
    given = b.param("axes", 1) or []
    rank = x.rank + len(given)
    axes = {b.axis(a, rank) for a in given}
    if len(axes) != rank - x.rank:
        raise b.bad("axes repeat")
    keep = [k for k in range(rank) if k not in axes]
    shape: list[Expr] = [Const(1)] * rank
    for k, d in zip(keep, x.shape):
        shape[k] = d
    return b.move(x, shape, lambda index: [index[k] for k in keep])


@op("Transpose")
def transpose(node: Node, b: Builder) -> Result:
    x = b.input(0)
    perm = node.attr("perm", tuple(reversed(range(x.rank))))
    perm = [b.axis(p, x.rank) for p in perm]
    if sorted(perm) != list(range(x.rank)):
        raise b.bad(f"perm {perm} is no permutation of {x.rank} axes")
    place = [perm.index(k) for k in range(x.rank)]
    return b.move(x, [x.shape[p] for p in perm], lambda index: [index[p] for p in place])


@op("Expand", since=8)
def expand(node: Node, b: Builder) -> Result:
    x = b.input(0)
    if b.from_data(b.input(1)):
        shape = _expanded_by_data(b, x)
    else:
        shape = b.broadcast(x.shape, tuple(b.ints(b.input(1))))
    return b.move(x, shape, lambda index: b.pick(x, index, shape))


def _expanded_by_data(b: Builder, x: Val) -> Shape:
    """The declared extents, and the rule that x and the data's broadcast to them."""
    declared, given = b.declared(), b.elements(b.input(1))
    rank, one = len(declared), Const(1)
    if max(x.rank, len(given)) != rank:
        raise b.bad(f"{len(given)} extents for {x} and a result of {rank} dimensions")
    own = (one,) * (rank - x.rank) + x.shape
    given = [one] * (rank - len(given)) + given

    def joined(d: Expr, e: Expr) -> Expr:
        fits = Where(compare("eq", d, e), d, Const(-1))
        return Where(compare("eq", e, one), d, Where(compare("eq", d, one), e, fits))
    expect_shape(b, [joined(d, e) for d, e in zip(own, given)], declared)
    return b.broadcast(x.shape, declared)


@op("Tile")
def tile(node: Node, b: Builder) -> Result:
    x = b.input(0)
    data = b.from_data(b.input(1))
    repeats = [bound_number(e) for e in b.elements(b.input(1))]
    if len(repeats) != x.rank:
        raise b.bad(f"{len(repeats)} repeats for rank {x.rank}")
    given = tuple(d * r for d, r in zip(x.shape, repeats))
    shape = given
    if data:
        shape = b.declared(rank=x.rank)
        expect_shape(b, [Where(compare("lt", r, Const(0)), Const(-1), d)
                         for d, r in zip(given, repeats)], shape)
        for d in x.shape:
            b.nonempty(d, shape, "elements to repeat")
    return b.move(x, shape, lambda index: [i % d for i, d in zip(index, x.shape)])


@op("DepthToSpace")
def depth_to_space(node: Node, b: Builder) -> Result:
    x, s = b.input(0), node.attr("blocksize")
    n, c, h, w = x.shape
    b.require("eq", c % (s * s), 0, "DepthToSpace: blocksize squared must divide the channels")
    out = simplify(c // (s * s))
    dcr = node.attr("mode", "DCR") == "DCR"

    def source(index: Index) -> Index:
        i, k, y, z = index
        block = (y % s) * s + z % s
        return i, block * out + k if dcr else k * (s * s) + block, y // s, z // s
    return b.move(x, (n, out, h * s, w * s), source)


@op("SpaceToDepth")
def space_to_depth(node: Node, b: Builder) -> Result:
    x, s = b.input(0), node.attr("blocksize")
    dcr = node.attr("mode", "DCR") == "DCR"
    n, c, h, w = x.shape
    for d in (h, w):
        b.require("eq", d % s, 0, "SpaceToDepth: blocksize must divide height and width")

    def source(index: Index) -> Index:
        i, k, y, z = index
        block, channel = (k // c, k % c) if dcr else (k % (s * s), k // (s * s))
        return i, channel, y * s + block // s, z * s + block % s
    return b.move(x, (n, c * (s * s), h // s, w // s), source)


# ---------------------------------------------------------------- slices, joins, borders

@op("Split")
def split(node: Node, b: Builder) -> Result:
    x = b.input(0)
    axis = b.axis(node.attr("axis", 0), x.rank)
    extent = x.shape[axis]
    count = len(node.outputs)
    sizes: list[Expr]
    if "split" in node.attrs:
        sizes = [Const(s) for s in node.attrs["split"]]
    elif b.arg(1) is not None:
        sizes = b.elements(b.input(1))
        if len(sizes) != count:
            raise b.bad(f"{len(sizes)} sizes for {count} outputs")
        if b.from_data(b.input(1)):
            given, sizes = sizes, [b.declared(k, x.rank)[axis] for k in range(count)]
            expect(b, zip(given, sizes), "the data must give the declared sizes "
                   f"[{', '.join(map(str, sizes))}], one is")
    else:
        part = simplify((extent + (count - 1)) // count)
        if node.opset < 18:
            b.require("eq", extent % count, 0, "Split into equal parts")
        sizes = [part] * (count - 1) + [simplify(extent - part * (count - 1))]
    total: Expr = Const(0)
    for s in sizes:
        total = total + s
    b.require("eq", total, extent, "Split sizes must add up to the extent")
    out = []
    begin: Expr = Const(0)
    for k, s in enumerate(sizes):
        shape = x.shape[:axis] + (s,) + x.shape[axis + 1:]

        def source(index: Index, begin: Expr = begin) -> Index:
            return index[:axis] + (index[axis] + begin,) + index[axis + 1:]
        out.append(b.move(x, shape, source, out=k))
        begin = simplify(begin + s)
    return tuple(out)


PARTS = 64  # of one concatenation: kernels take as many pieces apart, and hundreds are no kernel's


def concat(b: Builder, vals: Sequence[Val], axis: int, tag: str = "", out: int = 0) -> Val:
    """``vals`` one after the other along ``axis``; of many, runs of them first."""
    vals = [v for v in vals if not are_equal(v.shape[axis], Const(0))] or vals[:1]
    if len(vals) > PARTS and not all(map(b.symbolic, vals)):
        vals = [concat(b, vals[i:i + PARTS], axis, f"{tag}run_{i // PARTS}")
                for i in range(0, len(vals), PARTS)]
    for v in vals if len(vals) > 1 else ():
        _note_appended(b, v, axis)
    ends = []
    total: Expr = Const(0)
    for v in vals:
        total = simplify(total + v.shape[axis])
        ends.append(total)
    shape = list(vals[0].shape)
    for v in vals[1:]:
        for k, (d, e) in enumerate(zip(shape, v.shape, strict=True)):
            if k != axis and not are_equal(d, e):
                b.require("eq", d, e, "Concat: other dimensions must be equal")
    shape[axis] = total

    def part(index: Index, first: int, last: int) -> Expr:
        """Elements of vals[first:last]: of many, the half that the index lies in."""
        if last - first <= 16:
            return body(index, first, last)
        middle = (first + last) // 2
        cond = simplify(compare("lt", index[axis], ends[middle - 1]))
        if isinstance(cond, Const):
            return part(index, first, middle) if cond.value else part(index, middle, last)
        return Where(cond, part(index, first, middle), part(index, middle, last))

    def body(index: Index, k: int, last: int) -> Expr:
        begin = ends[k - 1] if k else Const(0)
        inner = index[:axis] + (simplify(index[axis] - begin),) + index[axis + 1:]
        cond = Const(True, "bool") if k == last - 1 else simplify(
            compare("lt", index[axis], ends[k]))
        if isinstance(cond, Const):
            return b.at(vals[k], inner) if cond.value else body(index, k + 1, last)
        return Where(cond, b.at(vals[k], inner), body(index, k + 1, last))
    return b.map(shape, lambda index: part(index, 0, len(vals)), vals, tag, out)


def _note_appended(b: Builder, v: Val, axis: int) -> None:
    """In the trial build: something is put behind or before ``v``, which may be an empty cache if
    it is an input as it came, or its elements moved or converted one by one."""
    syms = {n for n in walk(v.shape[axis]) if isinstance(n, Sym)}
    if not b.trial or len(syms) != 1:
        return
    name = v.buffer or next((n.buffer for n in walk(b.at(v, b.axes(v.shape)))
                             if isinstance(n, Load) and n.buffer not in b.consts), "")
    while (step := b.known.maker.get(name)) is not None:
        if not isinstance(step, Compute) or step.fold != "none":
            return
        read = {n.buffer for n in walk(step.body) if isinstance(n, Load)} - b.consts.keys()
        if len(read) != 1 or any(isinstance(n, Guarded) for n in walk(step.body)):
            return
        name, = read
    if name in b.buffers and b.buffers[name].role == "input" and syms & {
            n for d in b.buffers[name].shape for n in walk(d)}:
        b.may_be_empty.update(s.name for s in syms)


@op("Concat")
def concat_op(node: Node, b: Builder) -> Result:
    vals = b.inputs()
    b.same_dtype(*vals)
    if len({v.rank for v in vals}) > 1:
        raise b.bad("inputs must have one rank")
    return concat(b, vals, b.axis(node.attr("axis"), vals[0].rank))


@op("Trilu", since=14)
def trilu(node: Node, b: Builder) -> Result:
    x, k = b.input(0), b.arg(1)
    shift = b.elements(k)[0] if k is not None else Const(0)
    name = "ge" if node.attr("upper", 1) else "le"
    zero = const(0, x.dtype)
    return b.map(x.shape, lambda i: Where(compare(name, i[-1] - i[-2], shift), b.at(x, i), zero),
                 [x])


# ---------------------------------------------------------------- shape values

@op("Shape")
def shape_op(node: Node, b: Builder) -> Result:
    dims = b.input(0).shape
    start, end = node.attr("start", 0), node.attr("end", len(dims))
    dims = dims[slice(start, end)]
    return b.value((len(dims),), lambda index: choose_element(dims or (Const(0),), index[0]))


@op("Size")
def size(node: Node, b: Builder) -> Result:
    total = product(b.input(0).shape)
    return b.value((), lambda index: total)


@op("ConstantOfShape", since=9)
def constant_of_shape(node: Node, b: Builder) -> Result:
    value = node.attr("value", np.zeros(1, np.float32)).reshape(-1)
    fill = b.const(value[:1].reshape(()))
    given = tuple(b.elements(b.input(0)))
    shape = given
    if b.from_data(b.input(0)):
        shape = b.declared()
        expect_shape(b, given, shape)
    return b.map(shape, lambda index: b.at(fill, ()), [fill])


@op("EyeLike", since=9)
def eye_like(node: Node, b: Builder) -> Result:
    x = b.input(0)
    to = dtype_name(node.attr("dtype")) if "dtype" in node.attrs else x.dtype
    if to is None:
        raise b.unsupported("EyeLike of this dtype", "use a float or integer dtype")
    shift = node.attr("k", 0)
    return b.compute(axes := b.axes(x.shape), cast(
        to, Binary("eq", axes[1] - axes[0], as_expr(shift))))


@op("OneHot", since=9)
def one_hot(node: Node, b: Builder) -> Result:
    indices, depth, values = b.inputs()
    rank = indices.rank + 1
    axis = b.axis(node.attr("axis", -1), rank)
    n = b.elements(depth)[0]
    if b.from_data(depth):
        given, n = n, b.declared(rank=rank)[axis]
        expect(b, [(given, n)], f"the data must give the declared depth {n}, it is")
    shape = list(indices.shape)
    shape.insert(axis, n)

    def body(index: Index) -> Expr:
        i = b.index_at(indices, index[:axis] + index[axis + 1:])
        i = Where(compare("lt", i, Const(0)), i + n, i)
        return Where(Binary("eq", i, as_expr(index[axis])), b.at(values, (Const(1),)),
                     b.at(values, (Const(0),)))
    return b.map(shape, body, [indices, values])



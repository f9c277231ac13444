"""Loops over the dimensions that tensors have, where a reshape would run them over others.

Exporters write a norm over groups of channels as a reshape to [N, G, rest], a norm of that, and a
reshape back.  With the reshapes inlined, a mean over a group and the map behind it take a flat
axis apart, so that nothing lies side by side along any loop:

    s[n, g]    = sum(r) x[n, g*3 + r // 1024, r // 32 % 32, r % 32]
    y[n, g, k] = x[n, g*3 + k // 1024, k // 32 % 32, k % 32] - m[n, g]

Here sums run over x's own dimensions, first within each index of a dimension that a group is a
part of, then over the group; maps run over the points of x, and what they look up per group is
spread over the dimension once:

    p[n, c]       = sum(h, w) x[n, c, h, w]
    s[n, g]       = sum(r_0) p[n, g*3 + r_0]
    y[n, c, h, w] = x[n, c, h, w] - m_each[n, c],  m_each[n, c] = m[n, c // 3]

So do sums over channels that a pixel unshuffle has made of four pixels, or that a shuffle has put
in runs before a product in groups, whose weights then have a dimension for each digit:

    s[t] = sum(r) x[r // 4, t // 8 * 2 + r // 2 % 2, t % 8 * 2 + r % 2]
    s[t] = sum(r_0, r_1, r_2) x[r_0, t // 8 * 2 + r_1, t % 8 * 2 + r_2]
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from math import gcd

from aotc.ir.category import factor_pairs
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Shape,
    axes_of,
    children,
    loads,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.indices.remap import invert_map
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update
from aotc.ir.simplify import are_equal, from_poly, lower, simplify, split_linear, to_poly, upper
from aotc.passes.digits import Digits, axis_digits, split_consts, split_reductions

PART = 32  # terms of a group's sum within one index from which they are summed by themselves


def loop_over_stored_dims(program: Program) -> Program:
    """Program whose sums and maps run over the dimensions of the tensors they read.  The same
    object if there is nothing to change."""
    state = _Pass(program)
    for s in program.steps:
        state.steps += state.step(s) if isinstance(s, Compute) else [s]
    if not state.changed:
        return program
    program = update(program, steps=tuple(state.steps), buffers=state.buffers)
    return split_consts(program, state.split)


class _Pass:
    """The pass in progress.  ``moved``: {buffer: function from an old index to the new one};
    ``spread``: {(load's buffer, its index by dimension): the buffer that holds it per index}."""

    def __init__(self, program: Program) -> None:
        self.program, self.buffers = program, dict(program.buffers)
        self.steps: list[Step] = []
        self.moved: dict[str, Callable[[Shape], Shape]] = {}
        self.spread: dict[tuple[str, Shape], str] = {}
        self.split: set[str] = set()  # computes whose reduction axes have been split
        self.changed = False

    def step(self, s: Compute) -> list[Compute]:
        new = _on_points(self, self._read(s))
        out = [x for part in _by_parts(self, new) for x in self._spread(part)]
        self.changed |= len(out) > 1 or out[0] is not s
        return out

    def name(self, stem: str) -> str:
        return free_name(self.buffers, stem)

    def buffer(self, stem: str, axes: Iterable[Axis], dtype: str) -> str:
        name = self.name(stem)
        self.buffers[name] = Buffer(name, tuple(a.extent for a in axes), dtype)
        return name

    def _read(self, s: Compute) -> Compute:
        """The compute with loads of buffers that have moved."""
        if not self.moved.keys() & set(s.inputs):
            return s

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer not in self.moved:
                return None
            inner = tuple(rewrite(i, visit) for i in node.index)
            return Load(node.buffer, self.moved[node.buffer](inner), node.dtype)
        return replace(s, body=simplify(rewrite(s.body, visit)))

    def _spread(self, s: Compute) -> list[Compute]:
        """[computes]: ``s`` with what it looks up at c // K, beside loads at c, in tensors of
        their own over c."""
        found = [n for n in s.loads
                 if _is_per_group(n, s) and _is_inside(n, self.buffers[n.buffer].shape)]
        if not found or factor_pairs(s.axes, s.raxes, s.fold, s.body):
            return [s]  # products pack what they look up
        out: list[Compute] = []
        to: dict[Load, Expr] = {}
        for n in found:
            one = substitute(n, {a: Const(0) for a in axes_of(n) if a.extent == Const(1)})
            axes = tuple(sorted(axes_of(one), key=(s.axes + s.raxes).index))
            key = n.buffer, _by_position(children(one), axes)
            if key not in self.spread:
                name = self.buffer(f"{n.buffer}_each", axes, n.dtype)
                self.spread[key] = name
                out.append(Compute((name,), axes, (), "none", one, origin=s.origin))
            to[n] = Load(self.spread[key], axes, n.dtype)
        return out + [replace(s, body=substitute(s.body, to))]


def _is_inside(load: Load, shape: Shape) -> bool:
    """True if a load at axes and c // K is one of its tensor wherever its axes are, whatever
    conditions stand around it: what is spread is read without them."""
    def room(i: Expr, n: Expr) -> Expr:
        if isinstance(i, Binary):
            return simplify(n * i.b - _extent(i.a))
        return simplify(n - _extent(i))
    left = [lower(room(i, n)) for i, n in zip(load.index, shape)]
    return all(x is not None and x >= 0 for x in left)


def _extent(i: Expr) -> Expr:
    return i.extent if isinstance(i, Axis) else i + 1


def _is_plain(load: Load) -> bool:
    return all(isinstance(i, (Axis, Const)) for i in load.index)


def _by_position(index: Shape, axes: Sequence[Axis]) -> Shape:
    return tuple(substitute(i, {a: Axis(f"#{k}", a.extent) for k, a in enumerate(axes)})
                 for i in index)


def _is_per_group(load: Load, s: Compute) -> bool:
    """True for a load at c // K in one dimension and at other axes elsewhere, of a compute that
    has more axes and reads other tensors at c itself."""
    parts = [i for i in load.index if not isinstance(i, (Axis, Const))]
    group = parts[0] if len(parts) == 1 else None
    if not isinstance(group, Binary) or group.op != "floordiv" or not (
            isinstance(group.a, Axis) and isinstance(group.b, Const)):
        return False
    own = axes_of(load)
    return len([a for a in s.axes + s.raxes if a not in own and a.extent != Const(1)]) > 0 and any(
        group.a in n.index and not own >= axes_of(n) for n in s.loads)


# ---------------------------------------------------------------- maps

def _on_points(state: _Pass, s: Compute) -> Compute:
    """A map of a temp that reads a tensor at ``g*K + k``, or at digits that make it so, beside
    values per ``g``, runs over that tensor's points."""
    program = state.program
    if s.fold != "none" or len(s.outs) != 1 or s.out in program.results or isinstance(
            s.body, Load) or program.buffers[s.out].role != "temp" or _is_called(program, s.out):
        return s
    digits = {a: d for a in s.axes if (d := axis_digits(s.body, a, _names(s)))}
    axes = tuple(x for a in s.axes for x, _ in digits.get(a, ((a, 1),)))
    value = {a: simplify(sum((x * w for x, w in d), Const(0))) for a, d in digits.items()}
    body = simplify(substitute(s.body, value))
    if not _looks_up_groups(body):
        return s
    found = [n for n in loads(body) if axes_of(n) == {a for a in axes if a.extent != Const(1)}]
    for load in found:
        own = tuple(Axis(f"i{k}", e) for k, e in enumerate(state.buffers[load.buffer].shape))
        back = invert_map(load.index, axes, own)
        if back is None:
            continue
        new = replace(s, axes=own, body=simplify(substitute(body, back)))
        if all(_is_plain(n) or _is_per_group(n, new) for n in new.loads):
            return _moved(state, new, s.axes, digits, load)
    return s


def _looks_up_groups(body: Expr) -> bool:
    """True if a map reads one tensor at ``g*K + k`` and another at ``g`` without ``k``."""
    found = loads(body)
    return any(len(axes_of(i)) == 2 and any(len(axes_of(i) & axes_of(n)) == 1 for n in found)
               for load in found for i in load.index)


def _moved(state: _Pass, s: Compute, axes: Sequence[Axis], digits: Mapping[Axis, Digits],
           load: Load) -> Compute:
    """The map over the points of what it loads; readers, which know it over ``axes``, find its
    elements from now on."""
    shape = tuple(a.extent for a in s.axes)
    state.buffers[s.out] = replace(state.buffers[s.out], shape=shape)

    def place(index: Shape) -> Shape:
        at: dict[Axis, Expr] = {}
        for a, i in zip(axes, index):
            parts = digits.get(a)
            at |= {a: i} if parts is None else {
                x: (i // w) % x.extent if k else i // w for k, (x, w) in enumerate(parts)}
        return tuple(simplify(rewrite(substitute(i, at), _whole_quotient)) for i in load.index)
    state.moved[s.out] = place
    return s


def _whole_quotient(e: Expr) -> Expr | None:
    """``(g*a + b) // (g*d)`` as ``a // d`` where 0 <= b < g; None for others.  No general rule of
    ``simplify``: what is put in place of ``a`` later may need ``b`` to become whole again."""
    if not isinstance(e, Binary) or e.op != "floordiv" or not isinstance(e.b, Const):
        return None
    whole = to_poly(simplify(rewrite(e.a, _whole_quotient)))
    for g in sorted({gcd(c, e.b.value) for c in whole.values()}, reverse=True):
        rest = simplify(from_poly({m: c for m, c in whole.items() if c % g}))
        low, high = lower(rest), upper(rest)
        if g > 1 and low is not None and high is not None and low >= 0 and high < g:
            a = from_poly({m: c // g for m, c in whole.items() if not c % g})
            return simplify(a // (e.b.value // g))
    return None


def _is_called(program: Program, buffer: str) -> bool:
    return any(not isinstance(c, Compute) for c in program.consumers.get(buffer, ()))


def _names(s: Compute) -> set[str]:
    return {a.name for a in s.axes + s.raxes}


# ---------------------------------------------------------------- sums

def _by_parts(state: _Pass, s: Compute) -> list[Compute]:
    """[computes]: a sum over a group of a dimension's indices and over other axes, in two: over
    the others at each index, then over the group's.  Other sums over digits where that helps."""
    whole, s = s, split_reductions(s)
    group = _group(s)
    if group is None or len(s.outs) != 1:
        if not _digits_beside(whole):
            return [whole]
        state.split.add(s.out)
        return [s]
    axis, part, at, width = group
    rest = tuple(r for r in s.raxes if r != part)
    c = Axis(_fresh(f"{axis.name}_{part.name}", _names(s)), simplify(axis.extent * width))
    body = simplify(substitute(substitute(s.body, {at: c}), {axis: c // width}))
    if part in axes_of(body):
        return [whole]
    axes = tuple(c if a == axis else a for a in s.axes)
    name = state.buffer(f"{s.out}_parts", axes, s.acc_dtype)
    index = tuple(simplify(axis * width + part) if a == axis else a for a in s.axes)
    return [Compute((name,), axes, rest, s.fold, body, s.acc, s.origin),
            replace(s, raxes=(part,), body=Load(name, index, s.acc_dtype))]


def _digits_beside(s: Compute) -> bool:
    """True if a Load takes a reduction axis apart in a dimension that an output axis indexes, too.
    Elsewhere a layout can put the digits side by side, as one axis."""
    own, folded = set(s.axes), set(s.raxes)
    return any(isinstance(n, Binary) and n.op in ("floordiv", "mod") and axes_of(n) & folded
               for load in s.loads for i in load.index if axes_of(i) & own for n in walk(i))


def _group(s: Compute) -> tuple[Axis, Axis, Expr, Expr] | None:
    """(output axis, reduction axis, their index ``axis*width + part``, width) of a fold that meets
    the two so in a Load and reduces over enough else; None for others."""
    if s.fold not in ("sum", "max", "min") or len(s.raxes) < 2:
        return None
    for load in s.loads:
        for i in load.index:
            inside = axes_of(i)
            parts, own = inside & set(s.raxes), inside & set(s.axes)
            if len(parts) != 1 or len(own) != 1:
                continue
            (part,), (axis,) = parts, own
            terms = split_linear(i, axis)
            if terms is not None and terms[1] == part and are_equal(terms[0], part.extent) and (
                    isinstance(part.extent, Const) and part.extent.value > 1) and (
                    _terms(s.raxes, part) >= PART):
                return axis, part, i, part.extent
    return None


def _terms(raxes: Iterable[Axis], part: Axis) -> int:
    n = 1
    for r in raxes:
        if r != part:
            most = upper(r.extent)
            n *= PART if most is None else most
    return n


def _fresh(name: str, taken: Set[str]) -> str:
    return name if name not in taken else _fresh(name + "_", taken)


__all__ = ["loop_over_stored_dims"]

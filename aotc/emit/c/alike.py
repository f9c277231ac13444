"""Which kernels may share a C function: those that differ only in the tensors they touch, of one
Plan or of several for one target."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from aotc.emit.c.arrays import declaration
from aotc.emit.text.places import place_text
from aotc.ir.contents import buffers_in, expressions, guards, with_buffers, with_symbols
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Expr, Sym, walk
from aotc.ir.plan import Kernel, Plan, rules_of
from aotc.target.base import Target

Tensors = dict[str, tuple[str, str]]  # buffer -> (declaration, where it lies)


@dataclass(frozen=True)
class Owned:
    """A kernel, the Plan that it is of, and what it has in common with those that may share a
    function with it."""

    plan: Plan
    kernel: Kernel
    key: object


def owned(plans: Sequence[Plan]) -> list[Owned]:
    """The kernels of plans."""
    numbers, out = {r: i for i, r in enumerate(rules_of(plans))}, []
    for plan in plans:
        told: Counter[object] = Counter()
        for k in plan.kernels:
            rules = tuple(numbers[k.rule(n)] for n in guards(k))
            key = rules, _key(plan, k)
            if len(plans) > 1:
                key = with_symbols(key, lambda s: Sym(s.name))
            told[key] += bool(rules)  # in one plan, a fault tells its nodes
            out.append(Owned(plan, k, (key, told[key])))
    return out


def one_name(plans: Sequence[Plan], target: Target) -> list[Plan]:
    """The plans of one target, the base last, with one name for kernels that share a function and
    touch the same tensors: that of the base where it has one."""
    names: dict[object, str] = {}
    instead = {}
    for o in owned((plans[-1], *plans[:-1])):
        same = o.key, tuple(at for _, at in touched(o.plan, o.kernel).values())
        instead[o.kernel.name] = names.setdefault(same, o.kernel.name)
    return [replace(p, kernels=tuple(replace(k, name=instead[k.name]) for k in p.kernels))
            for p in plans]


def for_all(kernels: Sequence[Kernel]) -> Kernel:
    """The first of kernels that differ in the ranges of symbols only, right for all of them."""
    found = [dict.fromkeys(n for e in expressions(k) for n in symbols(e)) for k in kernels]
    if all(f == found[0] for f in found):
        return kernels[0]
    hull: dict[str, Sym] = {}
    for s in (s for f in found for s in f):
        t = hull.get(s.name, s)
        ends = None if s.hi is None or t.hi is None else max(s.hi, t.hi)
        hull[s.name] = replace(t, lo=min(s.lo, t.lo), hi=ends)
    kernel: Kernel = with_symbols(kernels[0], lambda s: hull[s.name])
    return kernel


def _key(plan: Plan, kernel: Kernel) -> object:
    """What kernels have in common that may share a function, beside the rules that data may break:
    all but names of buffers, titles, and how many work items there are.  (Values of statements
    ignore titles when they are compared.)"""
    tensors, scratch = touched(plan, kernel), {s.name: s for s in kernel.scratch}
    names = {b: f"{i}" for i, b in enumerate((*tensors, *scratch))}
    types = tuple(declared.replace(f"t_{b}", "") for b, (declared, _) in tensors.items())
    places = tuple((s.dtype, s.offset) for s in scratch.values())
    # the addresses of what clusters have of a tensor come from the work item's number, those of
    # what stays with workers from where it lies in their own memory
    dealt = (kernel.clusters, kernel.tiles, tuple(
        (p.memory, p.parts, p.ring, p.stride, p.slot, plan.slots[p.slot], p.elements,
         p.offset if p.memory == plan.memories[0][0] else 0)
        for p in map(plan.place, tensors) if p.memory)) if kernel.clusters else ()
    arrays = {a.buffer: a.inner for a in kernel.arrays}
    return (with_buffers(kernel.body, names), types, places, kernel.kept, dealt,
            tuple(arrays.get(b) for b in names))


def symbols(e: Expr) -> Iterator[Sym]:
    """The symbols of an expression, in the extents of its axes too."""
    for n in walk(e):
        if isinstance(n, Sym):
            yield n
        elif isinstance(n, Axis):
            yield from symbols(n.extent)


def touched(plan: Plan, kernel: Kernel) -> Tensors:
    """The tensors that a kernel's statements touch, in the order in which they do."""
    found: Tensors = {}
    writes, outside = set(kernel.writes), {*kernel.reads, *kernel.writes}
    arrays = {a.buffer: a for a in kernel.arrays}
    for b in buffers_in(kernel.body):
        if b not in outside:
            continue
        p = plan.place(b)
        c = DTYPES[p.dtype].c if b in writes else f"const {DTYPES[p.dtype].c}"
        found[b] = declaration(c, f"t_{b}", arrays.get(b)), place_text(p)
    return found

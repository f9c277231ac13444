"""Which kernels and which stages share a function: those that differ only in the tensors they
touch, of one Plan or of several for one target.

A kernel that has a function with others names it (``Kernel.function``), a stage that has one of its
own, or with others, says what it passes (``Section.function``); both are called after the first
that has it.  Extents, constants, dtypes and the rules that data may break are of the text of a
function, so where one of them differs nothing is shared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from aotc.ir.contents import buffers_in, guards, join_ranges, names_in, with_buffers, with_symbols
from aotc.ir.expr import Sym
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan
from aotc.ir.statements import (
    OWN,
    STEP,
    TILE,
    Body,
    Function,
    Section,
    bodies,
    walk_body,
    with_bodies,
)

Owned = tuple[Plan, Kernel]


def share_functions(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The Plans of one target, the base last, whose kernels and stages say which functions they
    have; the base's give the names."""
    found: dict[object, list[Owned]] = {}
    for plan, k in _kernels_of(plans):
        key = kernel_key(plan, k)
        found.setdefault(_without_ranges(key) if len(plans) > 1 else key, []).append((plan, k))
    function: dict[str, str] = {}  # kernel -> the one whose function it has
    named: dict[str, list[str]] = {}  # kernel -> the functions of its sections, "" for none
    stages: dict[object, str] = {}
    for alike in found.values():
        plan, first = alike[0]
        kernels = {k.name: k for _, k in alike}
        names = _stage_names(plan, join_ranges(list(kernels.values())), stages)
        function |= dict.fromkeys(kernels, first.name if len(kernels) > 1 else "")
        named |= dict.fromkeys(kernels, names)
    return tuple(replace(p, kernels=tuple(
        _with_functions(k, function[k.name], named[k.name]) for k in p.kernels)) for p in plans)


def name_kernels_once(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The Plans of one target, the base last, whose kernels have names of their own, with one name
    for kernels that could share a function and touch the same tensors: that of the base where it
    has one.  Equal weights lie at one place."""
    names: dict[object, str] = {}
    instead = {}
    for plan, k in _kernels_of(plans):
        where = tuple(_where(plan, b) for b in k.touched)
        same = _without_ranges(kernel_key(plan, k)), where
        instead[k.name] = names.setdefault(same, k.name)
    return tuple(replace(p, kernels=tuple(k.named(instead[k.name]) for k in p.kernels))
                 for p in plans)


def kernel_key(plan: Plan, kernel: Kernel) -> object:
    """What kernels have in common that may share a function: all but names of buffers, titles, and
    how many work items there are.  (Values of statements ignore titles when they are compared.)"""
    tensors, scratch = kernel.touched, {s.name: s for s in kernel.scratch}
    names = {b: f"{i}" for i, b in enumerate((*tensors, *scratch))}
    kinds = tuple(_kind(plan, kernel, b) for b in tensors)
    places = tuple((s.dtype, s.offset, s.elements if kernel.threads else 0, _inner(kernel, s.name))
                   for s in scratch.values())
    dealt = (kernel.clusters, kernel.tiles) if kernel.clusters else ()
    block = kernel.lowered.block and replace(kernel.lowered.block, barriers=())
    return (with_buffers(kernel.body, names), kinds, places, kernel.kept, dealt, block,
            _rules(kernel, kernel))


def _kernels_of(plans: Sequence[Plan]) -> Iterable[Owned]:
    """The kernels of Plans, those of the base first."""
    return ((p, k) for p in (plans[-1], *plans[:-1]) for k in p.kernels)


def _without_ranges(key: object) -> object:
    """A key whose symbols stand for those of any range: a function is right for all of them."""
    return with_symbols(key, lambda s: Sym(s.name))


def _kind(plan: Plan, kernel: Kernel, buffer: str) -> tuple[object, ...]:
    """What a function says of a tensor that it is given."""
    p = plan.place(buffer)
    kind = (p.dtype, buffer in kernel.writes, _inner(kernel, buffer))
    if kernel.threads:  # what is read may be told from what is written
        return (*kind, plan.only_reads(kernel, buffer))
    if not kernel.clusters or not p.memory:
        return kind
    # the addresses of what clusters have of a tensor come from the work item's number, those of
    # what stays with workers from where it lies in their own memory
    return (*kind, p.memory, p.parts, p.ring, p.stride, p.slot, plan.slots[p.slot], p.elements,
            p.offset if p.memory == plan.memories[0][0] else 0)


def _inner(kernel: Kernel, buffer: str) -> object:
    """The extents that a buffer is indexed by where it is an array to the kernel's text."""
    return next((a.inner for a in kernel.arrays if a.buffer == buffer), None)


def _where(plan: Plan, buffer: str) -> tuple[object, ...]:
    """Where a tensor lies in a call of the model."""
    p = plan.place(buffer)
    return p.storage, p.slot, p.offset, p.index


def _rules(kernel: Kernel, of: Kernel | Section) -> tuple[object, ...]:
    """The rules that data may break: a fault tells its nodes."""
    return tuple(kernel.rule(n) for n in guards(of))


# ---------------------------------------------------------------- stages

def _stage_names(plan: Plan, kernel: Kernel, known: dict[object, str]) -> list[str]:
    """The functions of a Kernel's stages, "" for those in its own; ``known`` has those of kernels
    before and takes what is new."""
    out = []
    for number, s in enumerate(_sections(kernel.body)):
        own = f"{kernel.name}_stage{number}"
        out.append(known.setdefault(_stage_key(plan, kernel, s), own) if s.apart else "")
    return out


def _stage_key(plan: Plan, kernel: Kernel, s: Section) -> object:
    """What stages have in common that may share a function: all but names of buffers and titles."""
    of = _function(kernel, s, "")
    scratch = {x.name: x for x in kernel.scratch}
    kinds = tuple((scratch[b].dtype, scratch[b].memory, _inner(kernel, b)) if b in scratch else
                  _kind(plan, kernel, b) for b in of.buffers)
    names = {b: f"{i}" for i, b in enumerate(of.buffers)}
    return (with_buffers(s.body, names), kinds, of.names, kernel.clusters > 0,
            _rules(kernel, s))


def _function(kernel: Kernel, s: Section, name: str) -> Function:
    """The function ``name`` of a stage, with what of its kernel it is given."""
    # what is read, scratch, what is written
    own = dict.fromkeys(kernel.reads, 0) | {x.name: 1 for x in kernel.scratch}
    own |= dict.fromkeys(kernel.writes, 2)
    buffers = sorted((b for b in buffers_in(s.body) if b in own), key=lambda b: own[b])
    bound = {v.name for v, _ in (*kernel.lowered.lets, *kernel.lowered.carried)}
    bound |= {TILE.name, STEP.name}
    return Function(name, tuple(buffers), tuple(sorted(
        bound & names_in(s.body), key=lambda n: n.removeprefix(OWN))))


def _sections(body: Body) -> list[Section]:
    return [s for s in walk_body(body) if isinstance(s, Section)]


def _with_functions(kernel: Kernel, function: str, stages: Sequence[str]) -> Kernel:
    """A Kernel that has ``function`` and whose sections have those of ``stages``, in order."""
    name = dict(zip(map(id, _sections(kernel.body)), stages, strict=True))
    return replace(kernel, function=function, body=_told(kernel, kernel.body, name))


def _told(kernel: Kernel, body: Body, name: Mapping[int, str]) -> Body:
    out = []
    for s in body:
        new = with_bodies(s, {f: _told(kernel, b, name) for f, b in bodies(s)})
        if isinstance(s, Section) and isinstance(new, Section):
            own = name[id(s)]
            new = replace(new, function=_function(kernel, s, own) if own else None)
        out.append(new)
    return tuple(out)


__all__ = ["kernel_key", "name_kernels_once", "share_functions"]

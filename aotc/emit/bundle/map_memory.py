"""Who lives where in the arena of a call, and when: off its Plan."""

from collections.abc import Iterator, Mapping, Sequence

from aotc.emit.bundle.memory_map import LINE, MemoryMap, MemoryUser, StoredConstant, Tenant
from aotc.emit.bundle.variants import TargetVariant
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import as_expr
from aotc.ir.plan import Place, Plan
from aotc.ir.plan_regions import PlanRegion, Rounds
from aotc.ir.schedule import When
from aotc.oracle.eval_expr import index_value

Lifetimes = dict[str, tuple[int, int]]  # {tensor: the first and the last kernel that it lives in}


def map_most(parts: Sequence[TargetVariant], extents: Mapping[str, int], front: int) -> MemoryMap:
    """The MemoryMap of a call with these extents that needs the most memory, of all sets of
    kernels; front: bytes in front of the tensors."""
    found = [map_memory(choice.plan, part.prefix, extents, front) for part in parts
             for choice in part.choices if _serves(choice.when, extents)]
    return max(found, key=lambda m: m.arena)


def _serves(when: When, extents: Mapping[str, int]) -> bool:
    return all(lo <= extents[n] and (hi is None or extents[n] <= hi)
               for n, (lo, hi) in when.items())


def map_memory(plan: Plan, prefix: str, extents: Mapping[str, int], front: int) -> MemoryMap:
    """The MemoryMap of a Plan whose functions have the prefix."""
    starts = [front]
    for size in plan.slots:
        starts.append(starts[-1] + -(-index_value(size, extents) // LINE) * LINE)
    lives = _lifetimes(plan)
    tenants = tuple(
        Tenant(p.name, p.onnx, index_value(p.elements, extents) * DTYPES[p.dtype].size,
               starts[p.slot] + p.offset, *lives[p.name])
        for p in plan.places if p.storage == "arena" and p.name in lives)
    users = tuple(MemoryUser(f"{prefix}_{k.name}", index_value(as_expr(k.slab_bytes), extents))
                  for k in plan.kernels)
    return MemoryMap(dict(extents), front, starts[-1] - front, tenants, users,
                     tuple(_constants(plan)))


def _constants(plan: Plan) -> Iterator[StoredConstant]:
    """Constants of the image, the largest first."""
    users: dict[str, list[int]] = {}
    for number, kernel in enumerate(plan.kernels):
        for name in dict.fromkeys(kernel.reads):
            users.setdefault(name, []).append(number)
    for name, array in sorted(plan.weights, key=lambda w: (-w[1].nbytes, w[0])):
        yield StoredConstant(name, plan.place(name).onnx, array.nbytes,
                             tuple(users.get(name, ())))


def _lifetimes(plan: Plan) -> Lifetimes:
    """Of all tensors of the arena that anything touches."""
    lives: Lifetimes = {}

    def extend(name: str, first: int, last: int) -> None:
        lo, hi = lives.get(name, (first, last))
        lives[name] = min(lo, first), max(hi, last)

    for number, kernel in enumerate(plan.kernels):
        for name in (*kernel.reads, *kernel.writes):
            extend(name, number, number)
    for region in reversed(plan.regions):  # those inside others first
        last = max(region.first, region.end - 1)
        for place in _of_region(plan, region, lives):
            extend(place.name, region.first, last if isinstance(region, Rounds) else region.first)
    return lives


def _of_region(plan: Plan, region: PlanRegion, lives: Lifetimes) -> Iterator[Place]:
    """Tensors of the arena that a region names; of rounds also those that its kernels have in
    common with others: they live in all rounds."""
    names = {getattr(region, b) for b in region.BUFFERS}
    if isinstance(region, Rounds):
        names |= {n for s in region.states for n in (s.start, s.last, s.spare)}
        names |= {e.whole for e in (*region.slices, *region.stacks)}
        inside = range(region.first, region.end)
        names |= {n for n, (first, last) in lives.items()
                  if (first in inside) != (last in inside)
                  or first < region.first and last >= region.end}
    for place in plan.places:
        if place.storage == "arena" and place.name in names:
            yield place


__all__ = ["map_memory", "map_most"]

"""What the C of a bundle is told about the accelerator's device."""

from dataclasses import dataclass

from aotc.ir.expr import Const, Expr
from aotc.ir.plan import Plan
from aotc.ir.simplify import simplify
from aotc.target.base import Target
from aotc.target.dsa import DEVICES

_CONTROL = 1 << 18  # bytes of what the simulator knows of the core at work
_CLUSTERS = 1 << 14  # of what it knows of the clusters


def machine_bytes(target: Target) -> int:
    """Bytes of a simulated machine: every byte of LB has one of state beside it.  0 for targets
    that need none."""
    of = DEVICES.get(target.name)
    if of is None:
        return 0
    return _CONTROL + 2 * of.clusters * of.cores * target.machine.near.capacity


def device_lines(target: Target) -> str:
    """C lines that tell ``aotc_dsa.h`` about the machine."""
    of = DEVICES[target.name]
    figures = {"CLUSTERS": of.clusters, "CORES": of.cores,
               "LB_BYTES": target.machine.near.capacity, "GB_BYTES": of.cluster,
               "ROWS": of.tile[0], "COLUMNS": of.tile[1],
               "BYTES": machine_bytes(target)}
    return "".join(f"#define AOTC_DSA_{name} {value}\n" for name, value in figures.items())


@dataclass(frozen=True)
class KeptSlot:
    """A slot of the arena that stands for a memory of all clusters or cores: its bytes, those of
    one of them, and of state behind."""

    slot: int
    bytes: int
    stride: int
    state: int


def kept_slots(plan: Plan) -> tuple[KeptSlot | None, KeptSlot | None]:
    """Where the clusters' memories are, and what stays in those of cores; None without."""
    near = plan.memories[0][0] if plan.memories else ""
    found: list[KeptSlot | None] = []
    for of_cores in (False, True):
        place = next((p for p in plan.places if p.memory and (p.memory == near) == of_cores), None)
        if place is None:
            found.append(None)
            continue
        size = simplify(plan.slots[place.slot])
        assert isinstance(size, Const), size  # ``store_faults``: tensors there have fixed extents
        found.append(KeptSlot(place.slot, size.value, place.stride,
                              size.value + (0 if of_cores else _CLUSTERS)))
    return found[0], found[1]


def arena_slots(plan: Plan) -> tuple[Expr, ...]:
    """Bytes of every slot of the arena: those that stand for memories of clusters and cores have
    state behind them."""
    more = {k.slot: k.state for k in kept_slots(plan) if k is not None}
    return tuple(simplify(s + more.get(i, 0)) for i, s in enumerate(plan.slots))


def kept_text(plan: Plan) -> str:
    """The C value of ``aotc_dsa_kept`` of a Plan."""
    parts = [f"f->slot[{k.slot}], {k.bytes}, {k.stride}" if k is not None else "NULL, 0, 0"
             for k in kept_slots(plan)]
    return f"(aotc_dsa_kept){{{', '.join(parts)}}}"


__all__ = ["KeptSlot", "arena_slots", "device_lines", "kept_slots", "kept_text", "machine_bytes"]

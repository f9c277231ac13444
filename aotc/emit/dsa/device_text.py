"""What the C of a bundle is told about the accelerator's device."""

from aotc.ir.expr import Const, Expr
from aotc.ir.plan import Plan
from aotc.ir.simplify import simplify
from aotc.target.base import Target
from aotc.target.dsa import DEVICES

_CONTROL = 1 << 18  # bytes of what the simulator knows of the core at work


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


def shared_slot(plan: Plan) -> tuple[int, int]:
    """(slot of the arena that stands for the clusters' memories, bytes of all of them); (-1, 0)
    where nothing is stored there."""
    found = next((p.slot for p in plan.places if p.memory), -1)
    size = simplify(plan.slots[found]) if found >= 0 else Const(0)
    assert isinstance(size, Const), size  # ``store_faults``: tensors there have fixed extents
    return found, size.value


def arena_slots(plan: Plan) -> tuple[Expr, ...]:
    """Bytes of every slot of the arena: one that stands for the clusters' memories has a byte of
    state for each byte behind them."""
    shared, _ = shared_slot(plan)
    return tuple(simplify(s * 2 if i == shared else s) for i, s in enumerate(plan.slots))


__all__ = ["arena_slots", "device_lines", "machine_bytes", "shared_slot"]

"""What it costs to reach tensors where they are stored, on machines whose engines copy."""

from collections.abc import Collection
from dataclasses import replace
from math import prod

from aotc.sched.cost.group_cost import Cost
from aotc.sched.model.tile_model import GroupModel, Widths
from aotc.target.base import Machine


def in_place_seconds(model: GroupModel, machine: Machine, tile: Widths,
                     buffers: Collection[str]) -> float:
    """Seconds that all work items of a group take to read and write the elements of ``buffers`` one
    by one: each moves a transaction of the outermost memory, as often as it is read."""
    moved = 0
    for number, part in model.parts(tile):
        for s, (whole, _) in zip(model.stages, model.boxes(part)):
            for a in s.reads:
                if a.buffer in buffers:
                    moved += number * len(a.boxes) * prod(whole) * _unit(machine, a.size)
            for a in s.writes:
                if a.buffer in buffers:
                    moved += number * prod(whole[:s.rank]) * _unit(machine, a.size)
    return moved / machine.memory.bandwidth


def with_in_place(cost: Cost, model: GroupModel, machine: Machine, tile: Widths,
                  buffers: Collection[str]) -> Cost:
    """The Cost of a group whose work items reach ``buffers`` in place."""
    more = in_place_seconds(model, machine, tile, buffers)
    if not more:
        return cost
    moved = int(more * machine.memory.bandwidth)
    return replace(cost, seconds=cost.seconds + more, levels=(
        *cost.levels, (f"in place in {machine.memory.name}", more, moved)))


def _unit(machine: Machine, size: int) -> int:
    return max(size, machine.memory.transaction)


__all__ = ["in_place_seconds", "with_in_place"]

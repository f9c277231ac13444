"""Seconds of kernels whose work items copy: one by one, or with the next boxes on their way."""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.target.base import Machine


@dataclass(frozen=True)
class StepCost:
    """Bytes of the boxes that a step copies, each by itself: ``moving`` ones differ from step to
    step, ``still`` ones do not, ``made`` ones go out; ``compute``: seconds of its arithmetic."""

    moving: tuple[int, ...]
    still: tuple[int, ...]
    made: tuple[int, ...]
    compute: float


def item_by_item(machine: Machine, cost: StepCost, steps: int) -> float:
    """Seconds of ``steps`` work items of one step each, on each of the workers."""
    one = _copying(machine, (*cost.still, *cost.moving)) + cost.compute + _copying(
        machine, cost.made)
    return steps * one


def pipelined(machine: Machine, cost: StepCost, items: int, steps: int) -> float:
    """Seconds of ``items`` work items of ``steps`` steps, on each of the workers."""
    first, busy = _copying(machine, cost.moving), cost.compute + _copying(machine, cost.made)
    one = _copying(machine, cost.still) + first + (steps - 1) * max(first, busy) + busy
    return items * one


def _copying(machine: Machine, sizes: Sequence[int]) -> float:
    """Seconds of copies one after the other, while all workers share the outermost memory."""
    far = machine.memory
    return sum(far.latency + n * machine.workers / far.bandwidth for n in sizes)


__all__ = ["StepCost", "item_by_item", "pipelined"]

"""How long work items that threads share wait by themselves: a term of the cost of their kernel."""

from math import prod

from aotc.sched.cost.block_figures import held_blocks
from aotc.sched.model.group_numbers import Boxes, GroupModel, Widths
from aotc.target.base import Machine


def waiting_seconds(model: GroupModel, machine: Machine, tile: Widths, boxes: Boxes) -> float:
    """Seconds that the work items of nests take at least, where threads share each: whatever
    others do, a step of a thread waits for its loads, and a stage for those of others.  Workers
    hold several items at once, as many as ``held_blocks`` says."""
    if not machine.threads or any(s.contraction for s in model.stages):
        return 0.0
    tuning, threads = machine.tuning, machine.threads
    steps = sum(-(-prod(whole) // threads) for whole, _ in boxes)
    live = sum(n for b, n, _, _ in model.lifetimes(tile, boxes) if b in model.scratch) if len(
        model.stages) > 1 else 0
    held = held_blocks(threads, tuning.nest_registers, live, tuning)
    waves = -(-model.tiles(tile) // (machine.workers * held))
    return waves * (steps * tuning.fold_step + (len(boxes) - 1) * tuning.barrier)


__all__ = ["waiting_seconds"]

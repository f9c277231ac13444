"""Time of one step of a product's sum in a register tile, as its statements are written: a term
that ways of writing it are compared by, in multiply-adds."""

from aotc.target.base import Machine
from aotc.target.tuning import Tuning


def reread_cost(rows: int, vectors: int, registers: int, reread: int, tuning: Tuning) -> float:
    """Loads of a step of ROWS x VECTORS sums, ``reread`` of whose vectors of columns every
    multiply-add reads again, and what sums take that find no register beside the other vectors and
    an element of A."""
    held = rows * vectors + (vectors - reread) + 1
    loads = vectors - reread + rows * reread
    return tuning.load_cost * loads + tuning.spill * max(0, held - registers)


def unroll_cost(steps: int, tuning: Tuning) -> float:
    """A multiply-add and its share of moving on, where so many steps are written out."""
    return 1.0 + tuning.step_control / steps


def pays_in_registers(terms: int, nodes: int, tuning: Tuning) -> bool:
    """True if the epilogue of a product's sums, of so many f32 nodes, is worth writing out for each
    vector of them: beside longer sums their way through memory is nothing, and a long epilogue is
    much text."""
    return terms <= tuning.inline_sum and nodes <= tuning.epilogue_nodes


def multiply_adds(machine: Machine, number: int, share: float) -> float:
    """Seconds of so many multiply-adds of one worker, each of which takes ``share`` of one."""
    return 2.0 * number * share / machine.flops


__all__ = ["multiply_adds", "pays_in_registers", "reread_cost", "unroll_cost"]

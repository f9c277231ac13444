"""Time of a product in the register tiles of a row, without what is moved: a term of the cost."""

from aotc.target.kernel_rows import ProductRow
from aotc.target.tuning import Tuning


def row_waste(row: ProductRow, m: int, n: int, tuning: Tuning, workers: int = 1,
              k: int = 0) -> float:
    """Padded work of an M x N contraction in a row's tiles, weighted by loads per multiply-add.
    ``workers``: how many take one tile each at a time; the last round may leave some idle.  k:
    terms of the sum that a row takes several at a time of (0: never mind).  Rows of grouped weights
    expand those for every tile of rows, or once."""
    mr, nr, steps = row.tile.mr, row.tile.nr, row.steps
    tiles = -(-m // mr) * -(-n // nr)
    padded = -(-tiles // workers) * workers * mr * nr * (-(-k // steps) * steps / k if k else 1)
    work = padded * (1.0 + load_cost(row, tuning) * row.loads)
    if row.grouped is None:
        return work
    return work + row.grouped.expand * (1 if row.grouped.once else -(-m // mr)) * (-(-n // nr) * nr)


def load_cost(row: ProductRow, tuning: Tuning) -> float:
    """Multiply-adds that loading an element of an operand takes as long as."""
    return tuning.load_cost if row.load_cost is None else row.load_cost


def row_rate(row: ProductRow, tuning: Tuning) -> float:
    """Products that a row does in the time of one in f32: those of its types' instruction, of
    which few sums in registers, that wait for each other, reach a part."""
    rate = tuning.narrow_rate if row.rate is None else row.rate
    if row.shared is not None and not row.per_thread:
        return min(rate, tuning.unit_rate.get(row.a, rate))
    if row.unit or row.per_thread:  # of an engine, of a thread among many
        return rate
    return rate * min(1.0, row.tile.mr * row.tile.nv / tuning.chains)


def saves_packing(rows: int, tuning: Tuning) -> bool:
    """True if products of bf16 of so many rows save more, for an element of the columns that a work
    item packs, than packing it takes."""
    return 2 * rows * (1 - 1 / tuning.narrow_rate) > tuning.packed


def unit_pays(row: ProductRow, m: int, n: int, tuning: Tuning) -> bool:
    """True if a unit takes less time for an M x N product than the vectors beside it: its tiles are
    padded, its rate is higher."""
    tiles = -(-m // row.tile.mr) * -(-n // row.tile.nr)
    return tiles * row.tile.mr * row.tile.nr < m * n * row_rate(row, tuning)


__all__ = ["load_cost", "row_rate", "row_waste", "saves_packing", "unit_pays"]

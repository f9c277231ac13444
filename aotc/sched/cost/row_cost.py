"""Time of a product in the register tiles of a row, without what is moved: a term of the cost."""

from aotc.ir.category import BF16_PRODUCT
from aotc.target.base import Ukernel
from aotc.target.tuning import Tuning


def row_waste(row: Ukernel, m: int, n: int, tuning: Tuning, workers: int = 1,
              k: int = 0) -> float:
    """Padded work of an M x N contraction in a row's tiles, weighted by loads per multiply-add.
    ``workers``: how many take one tile each at a time; the last round may leave some idle.  k:
    terms of the sum that a row takes several at a time of (0: never mind).  Rows of grouped weights
    expand those for every tile of rows, or once."""
    mr, nr, bk = row.tile["mr"], row.tile["nr"], row.tile.get("bk", 1)
    tiles = -(-m // mr) * -(-n // nr)
    padded = -(-tiles // workers) * workers * mr * nr * (-(-k // bk) * bk / k if k else 1)
    n_padded = -(-n // nr) * nr
    m_one, n_one = row.tile.get("tm", mr), row.tile.get("tn", row.tile["nv"])  # what one thread has
    loads = (m_one + n_one) / (m_one * n_one)  # per multiply-add
    times = 1 if "expanded" in row.tile else -(-m // mr)
    return padded * (1.0 + row.tile.get("load_cost", tuning.load_cost) * loads) + (
        row.tile.get("expand", 0) * times * n_padded)


def row_rate(row: Ukernel, tuning: Tuning) -> float:
    """Products that a row does in the time of one in f32: those of its types' instruction, of
    which few sums in registers, that wait for each other, reach a part."""
    usual = tuning.narrow_rate if row.dtypes == BF16_PRODUCT else 1.0
    rate = float(row.tile.get("rate", usual))
    if "unit" in row.tile or "tm" in row.tile:  # of an engine, of a thread among many
        return rate
    return rate * min(1.0, row.tile["mr"] * row.tile["nv"] / tuning.chains)


def saves_packing(rows: int, tuning: Tuning) -> bool:
    """True if products of bf16 of so many rows save more, for an element of the columns that a work
    item packs, than packing it takes."""
    return 2 * rows * (1 - 1 / tuning.narrow_rate) > tuning.packed


def unit_pays(row: Ukernel, m: int, n: int) -> bool:
    """True if a unit takes less time for an M x N product than the vectors beside it: its tiles are
    padded, its rate is higher."""
    tiles = -(-m // row.tile["mr"]) * -(-n // row.tile["nr"])
    return bool(tiles * row.tile["mr"] * row.tile["nr"] < m * n * row.tile["rate"])


__all__ = ["row_rate", "row_waste", "saves_packing", "unit_pays"]

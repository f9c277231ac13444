"""What an access of the lanes of a warp asks of memories, from the addresses of all lanes: sectors
of the memory outside a block's, and passes over the banks of the block's own.

The same functions say it of addresses that a decision leads to and of those that a Plan has.
"""

from collections.abc import Iterable, Sequence

from aotc.target.tuning import Tuning

WORD = 4  # bytes that a bank serves at once


def touched_units(addresses: Iterable[int], size: int, unit: int) -> frozenset[int]:
    """Numbers of the units of so many bytes in which accesses of ``size`` bytes lie."""
    return frozenset(n for a in addresses for n in range(a // unit, (a + size - 1) // unit + 1))


def count_sectors(addresses: Sequence[int], size: int, tuning: Tuning) -> int:
    """Sectors that one access by lanes at these byte addresses moves, each of ``size`` bytes."""
    return len(touched_units(addresses, size, tuning.sector))


def least_sectors(addresses: Sequence[int], size: int, tuning: Tuning) -> int:
    """Sectors that as many distinct bytes would take side by side."""
    return -(-len(touched_units(addresses, size, 1)) // tuning.sector)


def count_passes(addresses: Sequence[int], size: int, tuning: Tuning) -> int:
    """Passes over the banks of a block's memory that one access of so many lanes takes, by byte
    addresses there.  Words of one bank follow each other, one word is all lanes' at once.  Of 8
    bytes half of the lanes are served at a time, of 16 a quarter (``WORD`` each bank)."""
    parts = max(1, size // WORD)
    each = -(-len(addresses) // parts)
    total = 0
    for first in range(0, len(addresses), each):
        banks = [0] * tuning.block_banks
        for word in touched_units(addresses[first:first + each], size, WORD):
            banks[word % tuning.block_banks] += 1
        total += max(banks)
    return total


__all__ = ["count_passes", "count_sectors", "least_sectors", "touched_units"]

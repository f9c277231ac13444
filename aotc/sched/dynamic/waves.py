"""What a micro-kernel reaches on a call: of full waves of tiles, and of work that is not padding.

    throughput = local * spatial * padding        all at most 1, or in operations per second
    spatial    = 1 / (k * ceil(g, P) / g + 1 - k)     g tiles in waves of P
    padding    = product of extent / ceil(extent, tile)

Source: DietCode, Eq. 4 and 5, in throughput form: as printed, both factors grow as things get
worse.
``ceil(a, b)`` is a, rounded up to a multiple of b.
"""

from collections.abc import Sequence
from math import prod

from aotc.sched.cost.group_cost import utilisation


def grid(extents: Sequence[int], tile: Sequence[int]) -> int:
    """How many tiles cover the extents."""
    return prod(-(-n // t) for n, t in zip(extents, tile, strict=True))


def spatial(tiles: int, places: int, k: float) -> float:
    """The share of ``places`` that work while ``tiles`` run in waves; ``k``: the part of the time
    that waits for whole waves."""
    return utilisation(tiles, places, k)


def padding(extents: Sequence[int], tile: Sequence[int]) -> float:
    """The share of the tiles' work that is wanted, over all dimensions that are padded."""
    return prod(n / (-(-n // t) * t) for n, t in zip(extents, tile, strict=True))


def throughput(local: float, extents: Sequence[int], tile: Sequence[int], places: int,
               k: float) -> float:
    """What tiles that reach ``local`` in full waves reach on a call of these extents."""
    return local * spatial(grid(extents, tile), places, k) * padding(extents, tile)


def mutations(tile: int, step: int) -> tuple[int, ...]:
    """Tiles worth trying around the best one for the largest call: from half of it to its double,
    in multiples of ``step``.  Twice the tile takes up a last wave that is cut, half of it fills
    places that idle (DietCode, 4.1)."""
    first = max(step, -(-tile // 2 // step) * step)
    return tuple(range(first, 2 * tile + 1, step))


__all__ = ["grid", "mutations", "padding", "spatial", "throughput"]

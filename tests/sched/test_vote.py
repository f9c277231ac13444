"""DietCode's worked examples, and what voting promises on any table."""

import random
from math import prod

import pytest

from aotc.sched.asking.vote import select, select_by_gain, votes
from aotc.sched.cost.group_cost import cut_utilisation
from aotc.sched.dynamic.group_tiles import mutations

PLACES = 40  # of the paper's GPU
# Y = X W^T with X [16 T, 768], W [2304, 768] in tiles of 128 x 128:
# (T, tiles, whole waves per tile, spatial, padding, their product)
DENSE = [(1, 18, 2.222, 0.621, 0.125, 0.078), (8, 18, 2.222, 0.621, 1, 0.621),
         (60, 144, 1.111, 0.947, 0.9375, 0.888), (64, 144, 1.111, 0.947, 1, 0.947),
         (120, 270, 1.037, 0.982, 1, 0.982), (128, 288, 1.111, 0.947, 1, 0.947)]
LENGTHS = (8, 40, 60, 64, 128)
LOCAL = {64: 0.85, 96: 0.93, 128: 1.0, 160: 1.0}


def grid(extents, tile):
    """How many tiles cover the extents."""
    return prod(-(-n // t) for n, t in zip(extents, tile, strict=True))


def spatial(tiles, places, k):
    """The share of the places that work, Eq. 4 in throughput form: as printed, it grows as things
    get worse."""
    return cut_utilisation([(tiles, 1.0)], places, k)


def padding(extents, tile):
    """The share of the tiles' work that is wanted, Eq. 5."""
    return prod(n / (-(-n // t) * t) for n, t in zip(extents, tile, strict=True))


def throughput(local, extents, tile, places, k):
    """What tiles that reach ``local`` in full waves reach on a call of these extents."""
    return local * spatial(grid(extents, tile), places, k) * padding(extents, tile)


@pytest.mark.parametrize("t, tiles, waves, share, wanted, product", DENSE)
def test_a_dense_layer_of_every_length(t, tiles, waves, share, wanted, product):
    extents, tile = (16 * t, 2304), (128, 128)
    assert grid(extents, tile) == tiles
    assert -(-tiles // PLACES) * PLACES / tiles == pytest.approx(waves, abs=5e-4)
    assert spatial(tiles, PLACES, 0.5) == pytest.approx(share, abs=5e-4)
    assert padding(extents, tile) == pytest.approx(wanted, abs=5e-4)
    assert throughput(1.0, extents, tile, PLACES, 0.5) == pytest.approx(product, abs=5e-4)


def test_one_tile_on_forty_places_is_slow():
    """The printed form, k * g / pad + 1 - k, would give 0.51."""
    assert spatial(1, 40, 0.5) == pytest.approx(0.049, abs=5e-4)


def test_mutations_reach_from_half_to_double():
    found = mutations(128, 16)
    assert (found[0], found[-1], len(found)) == (64, 256, 13)
    assert mutations(6, 4) == (4, 8, 12)


def table():
    return [[throughput(local, (16 * t, 2304), (tile, 128), PLACES, 0.5) for t in LENGTHS]
            for tile, local in LOCAL.items()]


@pytest.mark.parametrize("k, kept, mean", [
    (1, (160, 128, 64), 0.924), (2, (128,), 0.852), (3, (128,), 0.852), (4, (160,), 0.834)])
def test_votes_of_five_lengths(k, kept, mean):
    tiles = list(LOCAL)
    found = select(table(), [t / 128 * 0.2 for t in LENGTHS], k)
    assert tuple(tiles[c] for c in found.kept) == kept
    assert found.performance == pytest.approx(mean, abs=5e-4)


def test_size_decides_how_many_votes():
    weights = [t / 128 * 0.2 for t in LENGTHS]
    assert len(select_by_gain(table(), weights, len, alpha=0.05).kept) == 3
    assert len(select_by_gain(table(), weights, len, alpha=0.2).kept) == 1


def test_every_call_runs_the_best_that_was_kept():
    rng = random.Random(5)
    for _ in range(50):
        candidates, calls = rng.randint(1, 6), rng.randint(1, 9)
        performance = [[rng.random() for _ in range(calls)] for _ in range(candidates)]
        weights = [rng.random() + 0.1 for _ in range(calls)]
        for k in range(1, candidates + 1):
            found = select(performance, weights, k)
            assert len(set(found.kept)) == len(found.kept)
            for i, c in enumerate(found.best):
                assert performance[c][i] == max(performance[x][i] for x in found.kept)
                assert set(votes(performance, i, k)) & set(found.kept)
        alone = select(performance, weights, 1)
        assert alone.performance == pytest.approx(sum(map(max, zip(*performance))) / calls)

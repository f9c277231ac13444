"""Rounding errors of Winograd forms: makes ``aotc/sched/cost/winograd_errors.py``.

    python -m benchmarks.winograd_errors          print the table
    python -m benchmarks.winograd_errors --write  and put it in place

For every form and number of channels: the largest error of an output in f32 arithmetic, as a share
of the outputs' range, over random normal data and weights, and the same for a direct convolution.
Arithmetic is element by element in a fixed order (no BLAS, no fused multiply-add), so the numbers
are the same on every machine.
"""

import argparse
from pathlib import Path

import numpy as np

from aotc.passes.winograd import forms

TABLE = Path(__file__).resolve().parents[1] / "aotc" / "sched" / "winograd_errors.py"
CHANNELS = (8, 32, 128, 512, 2048)
FORMS = ((2, 3), (4, 3), (6, 3), (2, 5), (4, 5))
TILES, COLUMNS = 48, 8  # outputs of one experiment: TILES * m^dims * COLUMNS
HEAD = '''"""Largest rounding error of an output of a convolution as a share of the outputs' range.

Made by ``python -m benchmarks.winograd_errors --write``; do not edit.
"""

# (outputs per tile, taps, sliding axes) -> {channels: (Winograd form, direct convolution)}
'''


def normal(rng, *shape):
    """Sums of twelve uniform numbers: nearly normal, and the same bits everywhere."""
    grid = rng.integers(0, 1 << 12, (12, *shape)).sum(axis=0)
    return ((grid - 6.0 * (1 << 12)) / (1 << 12)).astype(np.float32)


def experiment(m, r, dims, channels):
    """(error of the form, error of the direct convolution), both shares of the range."""
    rng = np.random.default_rng([m, r, dims, channels])
    n = m + r - 1
    data = normal(rng, channels, TILES, *(n,) * dims)
    weights = normal(rng, channels, COLUMNS, *(r,) * dims)
    exact = np.zeros((TILES, COLUMNS, *(m,) * dims))
    direct = exact.astype(np.float32)
    points = np.zeros((TILES, COLUMNS, *(n,) * dims), np.float32)
    f = forms(m, r)
    for d, w in zip(data, weights):
        exact += _slide(d.astype(np.float64), w.astype(np.float64), m, r, dims)
        direct = _add_taps(direct, d, w, m, r, dims)
        v, u = d, w.astype(np.float64)
        for axis in range(1, dims + 1):
            v, u = _apply(f.bt, v, axis), _apply(f.g, u, axis)
        points += v[:, None] * u.astype(np.float32)[None]
    out = points
    for axis in range(2, dims + 2):
        out = _apply(f.at, out, axis)
    span = exact.max() - exact.min()
    return tuple(float(np.abs(x - exact).max() / span) for x in (out, direct))


def _apply(matrix, x, axis):
    """A constant matrix along one axis, term by term in the dtype of ``x``."""
    x = np.moveaxis(x, axis, 0)
    rows = []
    for row in matrix:
        total = None
        for c, value in zip(row, x):
            if c:
                term = x.dtype.type(c) * value
                total = term if total is None else total + term
        rows.append(total)
    return np.moveaxis(np.stack(rows), 0, axis)


def _windows(d, m, r, dims):
    """(tap, data under it) of every tap."""
    for tap in np.ndindex(*(r,) * dims):
        yield tap, d[(slice(None), *(slice(t, t + m) for t in tap))]


def _slide(d, w, m, r, dims):
    return sum(x[:, None] * w[(slice(None), *tap)].reshape(1, -1, *(1,) * dims)
               for tap, x in _windows(d, m, r, dims))


def _add_taps(total, d, w, m, r, dims):
    for tap, x in _windows(d, m, r, dims):
        total = total + x[:, None] * w[(slice(None), *tap)].reshape(1, -1, *(1,) * dims)
    return total


def rows(sizes=CHANNELS):
    """{(m, r, dims): {channels: (form, direct)}} with two significant digits."""
    return {(m, r, dims): {c: tuple(float(f"{e:.1e}") for e in experiment(m, r, dims, c))
                           for c in sizes} for m, r in FORMS for dims in (1, 2)}


def text(table):
    """Python text of the table's module."""
    lines = [HEAD + "ERRORS = {"]
    for key, row in table.items():
        lines += [f"    {key}: {{"] + [f"        {c}: ({a:.1e}, {b:.1e})," for c, (a, b)
                                       in row.items()] + ["    },"]
    return "\n".join([*lines, "}", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"replace {TABLE.name}")
    made = text(rows())
    if parser.parse_args().write:
        TABLE.write_text(made)
    print(made)


if __name__ == "__main__":
    main()

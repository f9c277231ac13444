"""What is proved holds: random index expressions of loops, names and data, each value counted."""

import numpy as np
import pytest

from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Guarded,
    Load,
    Var,
    Where,
    check_index,
    compare,
    maximum,
    minimum,
)
from aotc.oracle.prove import ProofScope, is_never_negative

AXES = {Axis("i", Const(4)): 4, Axis("j", Const(6)): 6}
DATA = {Load("d", (Const(k),), "i64"): range(-7, 8) for k in range(2)}
NAME = Var("name", "i64")
OPS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
       "floordiv": np.floor_divide, "mod": np.mod, "ge": np.greater_equal}


def made(rng, depth, leaves):
    """A random index expression."""
    if depth == 0 or rng.random() < 0.15:
        return leaves[rng.integers(len(leaves))] if rng.random() < 0.8 else small(rng)
    a, b = (made(rng, depth - 1, leaves) for _ in range(2))
    n = int(rng.integers(1, 7))
    return [lambda: a + b, lambda: a - b, lambda: a * n, lambda: minimum(a, b),
            lambda: maximum(a, b), lambda: minimum(maximum(a, Const(0)), Const(n)),
            lambda: check_index(a + rng.choice([*DATA]), n), lambda: a // n, lambda: a % n,
            lambda: Where(compare("ge", a, n), b, small(rng))][rng.integers(10)]()


def small(rng):
    return Const(int(rng.integers(-7, 8)))


def value(e, at):
    """Of an expression at all points of ``at``."""
    if isinstance(e, Const):
        return np.int64(e.value)
    if isinstance(e, Where):
        return np.where(value(e.cond, at), value(e.a, at), value(e.b, at))
    if isinstance(e, Guarded):
        a, b = value(e.a, at), value(e.b, at)
        return np.where((a >= 0) & (a < b), a, 0)
    return OPS[e.op](value(e.a, at), value(e.b, at)) if isinstance(e, Binary) else at[e]


@pytest.mark.parametrize("facts", [0, 1, 2])
def test_what_is_proved_holds_at_every_point(facts):
    """With the right answer, and not far from it: values counted are the outside oracle."""
    rng, proved, near = np.random.default_rng(), 0, 0
    leaves = {**{a: range(n) for a, n in AXES.items()}, **DATA}
    grid = dict(zip(leaves, np.meshgrid(*leaves.values(), indexing="ij")))
    for _ in range(400):
        name = made(rng, 2, list(leaves))
        at = {**grid, NAME: value(name, grid) + 0 * grid[next(iter(grid))]}
        e, *known = (made(rng, depth, [*at, NAME]) for depth in [3, *[2] * facts])
        scope = ProofScope({**{a: ("range", Const(0), Const(n - 1)) for a, n in AXES.items()},
                            NAME: ("value", name)})
        live = np.ones(at[NAME].shape, bool)
        for f in known:
            live &= value(f, at) >= 0
        found = (value(e, at) + 0 * at[NAME])[live]
        least = int(found.min()) if found.size else 0
        for gap in (least, least - 1, least + 1, least + 3):
            holds = is_never_negative(e - gap, scope, tuple(known))
            proved, near = proved + holds, near + (gap == least)
            assert not holds or not found.size or gap <= least, (
                f"{e} - {gap} with name = {name} and {[str(f) for f in known]} >= 0")
    assert proved > near // 4, "hardly anything is proved"

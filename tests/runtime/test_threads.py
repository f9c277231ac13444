"""Any number of threads gives the same bits: work items are independent."""

import numpy as np
import pytest
from group_cases import GROUPS, attention, mlp, schedule, weights
from harness import RUNNABLE, Case, build_cases
from te_programs import Maker, conv2d, padded, relu

from aotc.ir.expr import Axis, Const
from aotc.runtime.loading import load


def residual_block(size=34, channels=24):
    """Two convolutions, a skip connection, depthwise, global average pooling."""
    m = Maker()
    m.input("x", 1, channels, size, size)
    conv2d(m, "c1", "x", m.const("w1", weights(channels, channels, 3, 3)), 1, 1)
    m.pointwise("r1", "c1", lambda e, _: relu(e))
    conv2d(m, "c2", "r1", m.const("w2", weights(channels, channels, 3, 3)), 1, 1)
    m.pointwise("s", "c2", lambda e, i: relu(e + m.ref("x", *i)))
    m.const("k", weights(channels, 3, 3))
    n, c, h, w = (Axis(a, e) for a, e in zip("nchw", m.buffers["s"].shape))
    i, j = Axis("i", Const(3)), Axis("j", Const(3))
    m.step("d", (n, c, h, w), padded(m, "s", (n, c, h + i - 1, w + j - 1), {2: size, 3: size})
           * m.ref("k", c, i, j), (i, j), "sum")
    m.step("mean", (n, c), m.ref("d", n, c, Axis("h", h.extent), Axis("w", w.extent))
           * Const(1 / size ** 2, "f32"), (h, w), "sum")
    return m.done("d", "mean")


def _cases(target):
    yield Case("residual block", residual_block())
    yield Case("mlp", mlp(batch=150)[0])
    yield Case("attention", attention(rows=200, keys=180, depth=32)[0])
    for name, ((p, connect, anchor, *run), tiles, _) in list(GROUPS.items())[::4]:
        yield Case(name, p, schedule(target, p, connect, tiles[0], anchor,
                                     **(run[0] if run else {})))


@pytest.mark.parametrize("target", RUNNABLE[-1:], ids=lambda t: t.name)
def test_threads_do_not_change_a_bit(target, tmp_path):
    built = build_cases(list(_cases(target)), target, tmp_path / "threads")
    assert sum(len(g.tile) > 0 for g in built.schedule.groups) > 10
    s = built.sample(0, syms=lambda sym, r: sym.hi)
    flat = {f"q{i}_{n}": a for i, f in enumerate(s.feeds) for n, a in f.items()}
    one = {n: a.copy() for n, a in built.model.run(flat).items()}
    for threads in (2, 5):
        model = load(built.folder, threads=threads)
        assert model.threads == threads
        for _ in range(3):
            for name, array in model.run(flat).items():
                np.testing.assert_array_equal(array.view(np.uint8), one[name].view(np.uint8))

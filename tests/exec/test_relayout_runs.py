"""Programs whose tensors are stored in every layout that the choices offer: running C against the
evaluator, with infinities and NaN where no padding of a product is involved."""

import numpy as np
import pytest
from harness import RUNNABLE, Case, build_cases
from helpers.layout_rewrites import layout_rewrites
from te_programs import Maker, ax, padded, relu

from aotc.ir.layout import Layout, Pad, Reorder, Split, unfold_for_tile
from aotc.passes.layout_rule import layout_rewrite
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import check_schedule, decide
from aotc.sched.choose.layout_choices import layout_choices

TARGETS = {t.name: t for t in (RUNNABLE[0], RUNNABLE[-1])}


def convolution(m, name, source, out, kernel, step=1, dilation=1):
    """Sum, bias and relu of a padded convolution; returns the relu's name."""
    batch, channels, size, _ = (d.value for d in m.buffers[source].shape)
    pad = dilation * (kernel - 1) // 2
    points = (size + 2 * pad - dilation * (kernel - 1) - 1) // step + 1
    rng = np.random.default_rng(size + kernel)
    w = rng.standard_normal((out, channels, kernel, kernel)) / kernel / np.sqrt(channels)
    m.const(f"{name}_w", w.astype(np.float32))
    m.const(f"{name}_b", rng.standard_normal(out).astype(np.float32))
    n, o, y, x = (ax(a, e) for a, e in zip("noyx", (batch, out, points, points)))
    i, p, q = ax("i", channels), ax("p", kernel), ax("q", kernel)
    at = (n, i, y * step + p * dilation - pad, x * step + q * dilation - pad)
    load = padded(m, source, at, {2: size, 3: size}) if pad else m.ref(source, *at)
    m.step(f"{name}_sum", (n, o, y, x), load * m.ref(f"{name}_w", o, i, p, q), (i, p, q), "sum")
    return m.pointwise(name, f"{name}_sum",
                       lambda e, a: relu(e + m.ref(f"{name}_b", a[1])))


def network(size=13):
    """Two convolutions around a residual sum, behind a first one; ragged columns."""
    m = Maker("net")
    m.input("x", 2, 5, size, size)
    a = convolution(m, "a", "x", 32, 3)
    b = convolution(m, "b", a, 32, 3)
    axes = [ax(f"i{d}", e.value) for d, e in enumerate(m.buffers[a].shape)]
    m.step("add", axes, m.ref(a, *axes) + m.ref(b, *axes))
    convolution(m, "c", "add", 48, 3, 2)
    return m.done("c")


def cases(target):
    p = network()
    for k, layout in enumerate(layout_choices(p, "add", target)):
        rewrites = layout_rewrites(p, {"add": layout})
        yield Case(f"choice {k}", p, decide(p, target, winograd=rewrites))
    ragged = Layout((Pad(1, 0, 11), Split(1, (-1, 16)), Reorder((0, 1, 3, 4, 2))))
    halves = Layout((Pad(2, 1, 1), Pad(3, 1, 1), unfold_for_tile(2, 4, 3, 2),
                     unfold_for_tile(4, 7, 3, 2), Reorder((0, 2, 4, 3, 5, 1))))
    tiles = Layout((Pad(2, 1, 1), Pad(3, 1, 1), unfold_for_tile(2, 5, 3), unfold_for_tile(4, 7, 3),
                    Reorder((0, 2, 4, 3, 5, 1))))
    blocks = Layout((Split(1, (-1, 16)), Reorder((0, 1, 3, 4, 2))))
    for name, rewrite in {"ragged input": layout_rewrite("x", ragged),
                          "tiles of an input": layout_rewrite("x", tiles),
                          "a copy": layout_rewrite("add", halves, copy=True),
                          "an output": layout_rewrite("c", blocks)}.items():
        yield Case(name, p, decide(p, target, winograd=(rewrite,)))
    rows = dict.fromkeys(("a", "a_sum", "b_sum", "b", "add", "c_sum"), Layout())
    yield Case("row-major", p, decide(p, target, layouts=rows))


@pytest.mark.parametrize("name", [
    pytest.param("c", marks=pytest.mark.product) if n == "c" and len(TARGETS) > 1 else n
    for n in TARGETS])
def test_every_choice_runs(name, tmp_path):
    target = TARGETS[name]
    found = list(cases(target))
    assert len(found) >= 8
    for c in found:
        faults = check_schedule(apply_rewrites(c.program, c.schedule.rewrites), c.schedule, target)
        assert faults == [], c.name
    build_cases(found, target, tmp_path / "b").check(1)

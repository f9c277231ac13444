"""Nothing is read or written outside of what a call is given: every tensor, the weights and the
arena between pages that end the process when they are touched, on bundles without sanitizers, with
hostile values and extents, by 1 to 7 threads.  What lay in the memory before does not show."""

import numpy as np
import pytest
from guarded import run
from harness import RUNNABLE
from hostile_parts import batches, operator_parts, random_parts, write_parts
from te_programs import Maker, ax

from aotc.runtime.compile_bundle import build

FLAGS = "-O1"


def _ended(parts, folder, target, monkeypatch):
    monkeypatch.setenv("CFLAGS", FLAGS)
    write_parts(parts, folder, target)
    build(folder / "b")
    return run(folder)


@pytest.mark.parametrize("target, step, seeds", [
    (RUNNABLE[-1].name, 48, 2),
    *(pytest.param(t.name, 1 if t is RUNNABLE[-1] else 4, 20, marks=pytest.mark.product)
      for t in RUNNABLE)])
def test_nothing_outside_is_touched(target, step, seeds, tmp_path, monkeypatch):
    for k, parts in enumerate(batches([*operator_parts(step), *random_parts(range(seeds))])):
        (tmp_path / str(k)).mkdir()
        status, text = _ended(parts, tmp_path / str(k), target, monkeypatch)
        assert status == 0, text


@pytest.mark.parametrize("offset", (1 << 10, -1))
def test_what_is_read_outside_is_found(offset, tmp_path, monkeypatch):
    m, i = Maker(), ax("i", 1024)
    m.input("x", 1024)
    m.step("y", (i,), m.ref("x", i + offset))
    part = "planted", m.done("y"), {"x": np.ones(1024, np.float32)}, {"x": (1024,)}
    status, text = _ended([part], tmp_path, "c", monkeypatch)
    assert status != 0 and "at planted" in text and "Segmentation fault" in text

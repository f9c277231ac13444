"""Kernels that are compiled once for all variants of a model."""

from dataclasses import replace

import numpy as np
import pytest
from small_models import embedding, running_sum
from tuner_models import convolutions, scheduled

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.pipeline import model_info
from aotc.runtime.compile_bundle import build
from aotc.runtime.loading import load
from aotc.runtime.status import IndexFault
from aotc.samples import random_inputs
from aotc.sched.lowering.lower import lower
from aotc.tuner.measure.portable import HEAD, portable_files


def _plan(work, schedule=None):
    return lower(work.program, schedule or work.schedule, work.target)


def _kernel_names(files):
    return {f for f in files if f.endswith(".c") and f[0] in "ku"}


def test_equal_layers_are_one_file():
    work = scheduled(convolutions(size=8, channels=16, layers=4), "x86-64-v4", connect="register")
    plan = _plan(work)
    files = portable_files(plan, work.target)
    assert sum(f.startswith("k") for f in _kernel_names(files)) < len(plan.kernels)
    assert files == portable_files(plan, work.target)
    assert all(text.startswith(f'#include "{HEAD}"') for f, text in files.items()
               if f in _kernel_names(files))


def test_a_change_of_one_group_changes_no_other_kernel():
    work = scheduled(convolutions(size=40, channels=32, layers=2), "x86-64-v4", connect="register")
    last = next(g for g in reversed(work.schedule.groups) if g.tile)
    changed = replace(work.schedule, groups=tuple(
        replace(g, tile={}, parallel=()) if g is last else g for g in work.schedule.groups))
    before, after = (_kernel_names(portable_files(_plan(work, s), work.target))
                     for s in (work.schedule, changed))
    assert len(after - before) == 1 and len(before - after) <= 1


def test_a_bundle_of_them_computes_the_same(tmp_path):
    work = scheduled(convolutions(size=8, channels=16), "native")
    plan, info = _plan(work), {**model_info(work.program), "onnx_sha256": ""}
    (tmp_path / "objects").mkdir()
    outputs, feeds = [], random_inputs(work.program, {})
    for name, files in (("plain", None), ("portable", portable_files(plan, work.target))):
        write_bundle(render_bundle(plan, work.schedule, info, kernel_files=files),
                     tmp_path / name)
        build(tmp_path / name, objects=tmp_path / "objects")
        outputs.append(load(tmp_path / name).run(feeds))
    made = sorted((tmp_path / "objects").iterdir())
    write_bundle(render_bundle(plan, work.schedule, info, profile=True,
                               kernel_files=portable_files(plan, work.target)), tmp_path / "again")
    build(tmp_path / "again", objects=tmp_path / "objects")
    assert len(sorted((tmp_path / "objects").iterdir())) - len(made) <= 4  # none is a kernel's
    for a, b in zip(*(o.values() for o in outputs)):
        np.testing.assert_array_equal(a, b)


def test_rounds_of_a_loop_are_told_to_them(tmp_path):
    """Its number and what it reads and makes, behind pointers of each round."""
    work = scheduled(running_sum(), "native", dims={"t": (1, 9)})
    plan, info = _plan(work), {**model_info(work.program), "onnx_sha256": ""}
    assert plan.regions
    write_bundle(render_bundle(plan, work.schedule, info,
                               kernel_files=portable_files(plan, work.target)), tmp_path / "b")
    x = np.random.default_rng().standard_normal((7, 4)).astype(np.float32)
    got, s = load(tmp_path / "b").run({"start": np.ones(4, np.float32), "x": x}), 1
    for row, y in zip(x, got["y"]):
        s = np.tanh(s + row)
        np.testing.assert_allclose(y, s, atol=1e-6)


def test_a_fault_is_told_as_in_other_bundles(tmp_path):
    work = scheduled(embedding(), "native", dims={"batch": (1, 4), "seq": (1, 8)})
    plan, info = _plan(work), {**model_info(work.program), "onnx_sha256": ""}
    feeds, said = {"ids": np.full((2, 3), 30), "mask": np.ones((2, 3), np.int64)}, []
    for name, files in (("plain", None), ("portable", portable_files(plan, work.target))):
        write_bundle(render_bundle(plan, work.schedule, info, kernel_files=files),
                     tmp_path / name)
        with pytest.raises(IndexFault, match="lookup .*: 30 is not in 0..29") as fault:
            load(tmp_path / name).run(feeds)
        said.append(str(fault.value))
    assert said[0] == said[1]

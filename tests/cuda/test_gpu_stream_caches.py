"""Attention that streams over caches which grow where they lie: keys are read in place, whole or in
parts, and nothing behind the last one is touched."""

import json
import warnings

import numpy as np
import pytest
from cached_attention import PAIRS, Cache, cached_attention
from cusim_build import needs_cxx
from mutants import plant_mutants, unnoticed

import aotc
from aotc.ir.kernel.plan_stages import Stream
from aotc.options import Options
from aotc.passes.sums.split_keys import RULE
from aotc.pipeline import run_pipeline

TARGET = "cuda:sm_80"
WHOLE, LONG = {"past": (0, 200), "seq": (1, 64)}, {"past": (0, 8191), "seq": (1, 64)}
TOKEN = {"past": (0, 8191), "seq": 1}


def planned(heads, groups, dims, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(cached_attention(heads, groups, **options.pop("model", {})),
                                    target=TARGET, name="net", alias=PAIRS, dims=dims,
                                    stop_after="plan", **options)).plan


def built(folder, heads, groups, dims, **options):
    return aotc.compile(cached_attention(heads, groups), folder, target=TARGET, name="net",
                        alias=PAIRS, dims=dims, **options)


def close(got, want):
    return np.abs(got.astype("f8") - want).max() <= 4e-3 * np.abs(want).max()


@pytest.mark.parametrize("dims, parts", [(WHOLE, False), (LONG, True), (TOKEN, True),
                                         (TOKEN | {"capacity": 8192}, True)])
def test_caches_are_read_in_place(dims, parts):
    """Beside the kernel that stores new entries there is one that streams, and one for parts."""
    for heads, groups in ((4, 4), (8, 2)):
        plan = planned(heads, groups, dims)
        stream, = (s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Stream))
        assert len(plan.kernels) == 2 + parts
        assert {p.name for p in plan.places if p.storage == "arena"} == {
            p.buffer for p in stream.puts if parts}
        reading = next(k for k in plan.kernels if stream in k.lowered.stages)
        assert {"present_k", "present_v"} <= {*reading.reads}


@needs_cxx
@pytest.mark.parametrize("heads, groups", [(4, 4), (6, 2)])
@pytest.mark.parametrize("dims", [WHOLE, LONG], ids=["whole", "parts"])
def test_a_cache_grows_and_is_read(heads, groups, dims, tmp_path):
    bundle = built(tmp_path / "b", heads, groups, dims, variants={"seq": [(1, 1)]})
    for order in (True, "reverse"):
        model, cache = bundle.load(simulate=order), Cache(heads, groups, 1100)
        for rows in (37, 1, 1, 60, 1) if dims is WHOLE else (64, 1, 63, 1, 1000, 64, 1):
            if rows == 1000:
                cache.fill(rows)
                continue
            feeds, at, want = cache.call(rows)
            assert close(model.run(feeds, at)["y"], want), at
            assert cache.is_right()


@needs_cxx
@pytest.mark.parametrize("dims", [WHOLE, LONG], ids=["whole", "parts"])
def test_nothing_that_keeps_threads_apart_can_be_left_out(dims, tmp_path):
    """Every wait, barrier and group, and the place of every step, of the kernel that streams."""
    bundle = built(tmp_path / "b", 4, 2, dims)
    mutants = [m for m in plant_mutants(tmp_path / "b") if "_k001_" in m.kernel]
    rewrites = json.loads((tmp_path / "b/schedule.json").read_text())["rewrites"]
    parts = next((p["parts"] for rule, _, p in rewrites if rule == RULE), 1)
    model, cache = bundle.load(simulate=True), Cache(4, 2, 128 * parts + 100)
    cache.fill(128 * parts + 36)  # more than a block of each part
    feeds, at, want = cache.call(64)

    def right():
        return close(model.run(feeds, at)["y"], want)
    assert right() and len(mutants) >= 4
    missed = unnoticed(model, mutants, right)
    assert not missed, "\n".join(missed)

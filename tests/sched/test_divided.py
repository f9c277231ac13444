"""Maps whose loads take an axis apart run over its digits where that costs less."""

from dataclasses import replace

import numpy as np
import pytest
from edits import loops, with_tables
from harness import every

from aotc import compile as compile_model
from aotc import load
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.pipeline import run_pipeline
from aotc.sched.check.check_schedule import check_schedule
from benchmarks.exported import images
from benchmarks.exported.build import Writer


def moved(shape, first, perm, last, act=False):
    """Channels last comes in; first reshaped, then transposed, then reshaped again."""
    g = Writer("moved")
    x = g.input("x", shape)
    x = g.op("Transpose", x, perm=[0, 3, 1, 2])
    x = g.op("Transpose", g.op("Reshape", x, first), perm=perm)
    x = g.op("Reshape", x, last)
    return g.model(g.op("Sigmoid", x) if act else x)


def upsampled(h, w, c):
    g = Writer("upsampled")
    x = g.op("Transpose", g.input("x", [1, h, w, c]), perm=[0, 3, 1, 2])
    return g.model(g.op("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
                        coordinate_transformation_mode="asymmetric", nearest_mode="floor"))


def halves(tokens, n):
    """Pairs of neighbours, as one half of a head beside the other."""
    g = Writer("halves")
    x = g.op("Reshape", g.input("x", [tokens, n]), [tokens, n // 2, 2])
    return g.model(g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1]), [tokens, n]))


def space_to_depth(h, w, c):
    return moved([1, 2 * h, 2 * w, c], [1, c, h, 2, w, 2], [0, 3, 5, 1, 2, 4], [1, 4 * c, h, w])


def woven(groups, width):
    """A channel shuffle of pixels that stay where they are, channels last."""
    g, c = Writer("woven"), groups * width
    x = g.op("Reshape", g.input("x", [3, 7, c]), [3, 7, groups, width])
    return g.model(g.op("Reshape", g.op("Transpose", x, perm=[0, 1, 3, 2]), [3, 7, c]))


# {name: (model, the axis whose digits x86-64-v3 runs over; "" for none)}
CASES = {
    "channel shuffle": (moved([1, 5, 19, 57], [1, 3, 19, 5, 19], [0, 2, 1, 3, 4],
                              [1, 57, 5, 19]), "i1"),
    "channel shuffle, activated": (moved([2, 5, 19, 57], [2, 3, 19, 5, 19], [0, 2, 1, 3, 4],
                                         [2, 57, 5, 19], act=True), ""),
    "a few channels": (moved([1, 9, 11, 6], [1, 3, 2, 9, 11], [0, 2, 1, 3, 4], [1, 6, 9, 11]), ""),
    "space to depth": (space_to_depth(5, 11, 9), "i1"),
    "pixel shuffle": (moved([1, 7, 13, 72], [1, 2, 2, 18, 7, 13], [0, 3, 4, 1, 5, 2],
                            [1, 18, 14, 26]), ""),
    "windows": (moved([1, 27, 18, 10], [1, 10, 3, 9, 2, 9], [0, 2, 4, 1, 3, 5], [6, 10, 81]),
                "i2"),
    "nearest": (upsampled(16, 32, 12), ""),
    "halves": (halves(7, 38), "i1"),
    **{f"{n} woven": (woven(n, width), "i2") for n, width in ((2, 19), (3, 20), (4, 16), (4, 33))},
    "5 woven": (woven(5, 20), ""),
}


def digits_of(work):
    """Axes by name whose digits the loops of a schedule run over."""
    return {x.digits for g in work.schedule.groups for x in g.choices.values() if x.digits}


@pytest.mark.parametrize("name", CASES)
def test_digits_are_run_over_where_it_pays(name):
    model, axis = CASES[name]
    work = run_pipeline(Options(model, target="x86-64-v3", stop_after="schedule"))
    assert digits_of(work) == ({axis} if axis else set())
    assert not digits_of(run_pipeline(Options(model, target="c", stop_after="schedule")))


@pytest.mark.parametrize("name", every(CASES, 2))
@pytest.mark.parametrize("target", [
    pytest.param("x86-64-v3", marks=pytest.mark.product), "native"])
def test_every_element_comes_to_its_place(name, target, tmp_path):
    model, _ = CASES[name]
    compile_model(model, tmp_path / "bundle", target=target)
    program = run_pipeline(Options(model, stop_after="program")).program
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    x.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    (got,), (want,) = (r.values() for r in (load(tmp_path / "bundle").run({"x": x}),
                                            evaluate(program, {"x": x})))
    if "activated" in name:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


def test_lanes_do_not_share_the_lines_of_one_place():
    """Channels are stored a multiple of 4 KiB apart: lanes run along columns instead."""
    work = run_pipeline(Options(CASES["nearest"][0], target="x86-64-v3", stop_after="schedule"))
    (group,) = work.schedule.groups
    assert loops(group) == {"resize_1": {"lanes": "i3"}}


def test_what_cannot_be_is_told():
    """An axis that nothing takes apart, and one that work items cut."""
    work = run_pipeline(Options(CASES["channel shuffle"][0], target="x86-64-v3",
                                stop_after="schedule"))
    (group,) = work.schedule.groups
    stage, = group.choices

    def faults(**changes):
        schedule = replace(work.schedule, groups=(with_tables(group, **changes),))
        return " ".join(check_schedule(work.rewritten, schedule, work.target))

    assert faults() == ""
    assert "digits 'i2'; its loads take apart i1" in faults(
        loops={stage: group.choices[stage].said | {"digits": "i2"}})
    assert "leave it out of the group's tile" in faults(tile={"i1": 19}, parallel=("i1",))


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_few_rows_are_woven_in_registers(groups):
    bundle = run_pipeline(Options(CASES[f"{groups} woven"][0], target="x86-64-v3",
                                  stop_after="bundle")).bundle
    assert any(b"aotc_woven(" in text for name, text in bundle.files.items() if "_kernels" in name)


@pytest.mark.parametrize("target", [
    pytest.param("x86-64-v3", marks=pytest.mark.product), "native"])
def test_stages_inside_a_kernel_run_over_digits(target, tmp_path):
    model = images.shufflenet_v1(8, 192)
    work = run_pipeline(Options(model, target="x86-64-v3", stop_after="schedule"))
    inside = {s for g in work.schedule.groups for s, x in g.choices.items()
              if x.digits and s != g.anchor}
    assert inside
    compile_model(model, tmp_path / "bundle", target=target)
    program = run_pipeline(Options(model, stop_after="program")).program
    x = np.random.default_rng().standard_normal((1, 192, 8, 8)).astype(np.float32)
    (got,), (want,) = (r.values() for r in (load(tmp_path / "bundle").run({"x": x}),
                                            evaluate(program, {"x": x})))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

"""Products whose rows run along several axes, on blocks of threads: a tile has consecutive rows
across lines and images, so that only the last one of all is cut."""

import warnings
from dataclasses import replace
from math import prod

import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from frontend_cases import one_node, rand
from half_models import halved
from harness import Case, build_cases
from small_models import conv_stack

from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule
from aotc.sched.model.stages import factors_for, group_stages
from aotc.target import get_target

TARGET = get_target("cuda:sm_80")
# name: (operator, input, weights, attributes)
CONVOLUTIONS = {
    "3x3": ("Conv", (2, 32, 9, 11), (48, 32, 3, 3), {"pads": [1] * 4}),
    "1x1": ("Conv", (3, 40, 7, 5), (64, 40, 1, 1), {}),
    "stem": ("Conv", (1, 3, 23, 23), (40, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
    "strided": ("Conv", (1, 32, 21, 25), (64, 32, 1, 1), {"strides": [2, 2]}),
    "dilated": ("Conv", (1, 16, 13, 15), (33, 16, 3, 3), {"dilations": [2, 3], "pads": [2] * 4}),
    "groups": ("Conv", (2, 64, 9, 7), (96, 32, 3, 3), {"group": 2, "pads": [1] * 4}),
    "line": ("Conv", (5, 24, 19), (70, 24, 5), {"pads": [2, 2]}),
    "volume": ("Conv", (1, 16, 5, 6, 7), (36, 16, 3, 3, 3), {"pads": [1] * 6}),
    "transposed": ("ConvTranspose", (1, 32, 8, 10), (32, 40, 3, 3), {"strides": [2, 2]}),
}


def convolution(name):
    """The model of one node, its weights constant."""
    op, x, w, attrs = CONVOLUTIONS[name]
    weights = rand(*w, seed=2, scale=float(np.prod(w[1:])) ** -0.5)
    model, _ = one_node(op, [rand(*x), weights], {"kernel_shape": w[2:], **attrs}, consts=(1,))
    return onnx.shape_inference.infer_shapes(model)


def until(stage, model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=TARGET.name, name="net", out=None,
                                    stop_after=stage, **options))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@needs_cxx
def test_convolutions_of_every_kind(dtype, tmp_path):
    cases = []
    for name in CONVOLUTIONS:
        model = convolution(name)
        work = until("schedule", model if dtype == "f32" else halved(model))
        flat = [g for g in work.schedule.groups if g.flat]
        assert len(flat) == 1 and dtype in str(flat[0].rows), name
        cases.append(Case(name, work.program, work.schedule, tol=2e-6 if dtype == "f32" else 2e-3))
    built = build_cases(cases, TARGET, tmp_path / "b")
    for seed in (1, 2):
        built.check(seed)


@needs_cxx
def test_work_items_in_patches(tmp_path):
    """Tiles of lines and of columns, in bands along either."""
    work, cases = until("schedule", convolution("1x1")), []
    (g,) = work.schedule.groups
    for patch, tile in (({"oc": 2}, 32), ({"n_oh_ow": 5}, 21), ({"n_oh_ow": 7}, 15)):
        group = replace(g, tile={**g.tile, "n_oh_ow": tile}, patch=patch)
        cases.append(Case(f"{patch}", work.program, replace(work.schedule, groups=(group,))))
    build_cases(cases, TARGET, tmp_path / "b").check(1)


def row_tiles(work):
    """[(rows, tiles of rows, rows of a tile)] of the products of a Schedule whose tiles
    threads share."""
    program, found = apply_rewrites(work.program, work.schedule.rewrites), []
    for g in work.schedule.groups:
        for s in group_stages(program, g):
            row = TARGET.row(g.choices[s.name].row)
            if row.staging is None or row.category != "contraction":
                continue
            sizes = {a.name: a.extent.value for a in factors_for(s, g.choices[s.name].lanes).m}
            tiles = prod(-(-n // g.tile.get(a, n)) for a, n in sizes.items())
            held = prod(min(n, g.tile.get(a, n)) for a, n in sizes.items())
            found.append((prod(sizes.values()), tiles * -(-held // row.tile.mr), row.tile.mr))
    return found


def check_row_tiles(work):
    """Every product has as few tiles as its rows fill: in all of them together fewer rows than one
    tile has are padding, and where there is more than one tile less than a quarter, because rows
    are chosen for how many there are."""
    found = row_tiles(work)
    for rows, tiles, mr in found:
        assert tiles == -(-rows // mr), (rows, tiles, mr)
        assert rows < mr or 1 - rows / (tiles * mr) < 0.25, (rows, tiles, mr)
    return found


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_only_the_last_tile_is_cut(name):
    work = until("schedule", convolution(name))
    assert len(check_row_tiles(work)) == 1
    assert Schedule.from_json(work.schedule.to_json()) == work.schedule


@pytest.mark.zoo
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "vgg16"])
def test_only_the_last_tile_is_cut_in_nets(zoo_model, name, batch):
    model = onnx.load(zoo_model(name))
    for v in (*model.graph.input, *model.graph.output):
        v.type.tensor_type.shape.dim[0].dim_value = batch
    assert len(check_row_tiles(until("schedule", model))) > 10
    if name != "vgg16":
        check_row_tiles(until("schedule", halved(model)))


def test_a_schedule_says_so_literally():
    """The interpreter has no code of lowering's; forwards and backwards tiles are the same."""
    for name in ("3x3", "groups", "volume"):
        work = until("schedule", convolution(name))
        x = {"in0": rand(*CONVOLUTIONS[name][1], seed=3)}
        wanted = evaluate(work.program, x)
        for backwards in (False, True):
            got = interpret(apply_rewrites(work.program, work.schedule.rewrites), work.schedule, x,
                            backwards=backwards)
            for n in wanted:
                np.testing.assert_allclose(got[n], wanted[n], rtol=1e-5, atol=1e-5)


def test_what_is_counted_through_is_checked():
    work = until("schedule", convolution("3x3"))
    g = next(g for g in work.schedule.groups if g.flat)
    for flat, tile, fault in (
            (("oh", "ow"), {"oh_ow": 32}, "name all axes of the product's rows, outermost first: "
             "n, oh, ow"),
            (("n", "ow", "oh"), {}, "name two or more axes of the anchor, outermost first: "),
            (("n",), {}, "name two or more axes of the anchor, outermost first: "),
            (g.flat, {"ow": 7}, "tile of 'ow'; the anchor's axes are ")):
        wrong = replace(work.schedule, groups=tuple(
            replace(x, flat=flat, tile=tile, parallel=tuple(tile)) if x is g else x
            for x in work.schedule.groups))
        found = check_schedule(work.program, wrong, TARGET)
        assert found and fault in found[0], found
    work = until("schedule", conv_stack())  # with pools
    maps = next(x for x in work.schedule.groups if not x.flat)
    wrong = replace(work.schedule, groups=tuple(
        replace(x, flat=("oh", "ow"), tile={}, parallel=()) if x is maps else x
        for x in work.schedule.groups))
    (fault,) = check_schedule(work.program, wrong, TARGET)
    assert "only the rows of a product alone in its group" in fault

"""No barrier, wait or group of generated kernels can be left out, no wait can be for a group less,
and no step can come to the place of one that is still read: the simulator reports it, or a result
is wrong."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from contraction_cases import MODES, TOLERANCE, deep_case
from cuda_models import folds, mixture
from cusim_build import needs_cxx
from harness import INFO, Built, differences, merged
from helpers.tile_graph import set_connect
from mutants import plant_mutants, unnoticed
from row_cases import CASES

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched import complete, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import get_target
from aotc.tools.verify import compare

F32 = np.float32
TARGET = get_target("cuda:sm_80")
ROWS = {r.name: r for r in TARGET.ukernels if r.category == "contraction"}
FEW = [r for r in TARGET.ukernels if r.category == "dot" and r.tile.mr == 4]
# one of each kind: by the type of operands, with teams and without, with steps and without
KINDS = [*{(r.a, r.shared.teams > 1, r.staging is None): r.name
           for r in reversed(ROWS.values())}.values()]
pytestmark = needs_cxx


def check_products(cases, folder):
    """Mutants of the kernels of these cases, none of them unnoticed."""
    program, schedule = merged(cases, TARGET)
    schedule = choose_writing(program, schedule, TARGET)
    write_bundle(render_bundle(lower(program, schedule, TARGET), schedule, INFO), folder)
    mutants = plant_mutants(folder)
    model = aotc.load(folder, simulate=True)
    built = Built(tuple(cases), TARGET, program, schedule, model, folder)
    sample = built.sample(1)

    def wrong(got):
        return [x for c, g, w in zip(cases, got, sample.want) for x in differences(g, w, c.tol)]
    assert not wrong(sample.got)
    missed = unnoticed(model, mutants, lambda: not wrong(built.run(sample.feeds)))
    assert not missed, "\n".join(missed)
    assert not wrong(built.run(sample.feeds))
    return mutants


def deep(row, a, b, stages=None, stored=None):
    case = deep_case(row, TARGET, a, b, stages, stored)
    return replace(case, tol=TOLERANCE[row.a])


def test_products(tmp_path):
    cases = [deep(ROWS[name], *MODES[n % len(MODES)]) for n, name in enumerate(KINDS)]
    mutants = check_products(cases, tmp_path / "b")
    changes = {m.change for m in mutants}
    assert changes == {"left out", "for a group less", "in a stage less"}
    assert len({m.kernel for m in mutants}) == len(cases)  # each has something to leave out


@pytest.mark.product
@pytest.mark.parametrize("stages", [0, 1])
@pytest.mark.parametrize("name", ROWS)
def test_every_row_reads_its_operands_in_any_way(name, stages, tmp_path):
    """With as many stages as are usual, and the least."""
    row = ROWS[name]
    if row.staging is None and stages:
        pytest.skip("has no steps")
    least = row.staging.least if stages else None
    check_products([deep(row, a, b, least) for a, b in MODES], tmp_path / "b")


@pytest.mark.product
@pytest.mark.parametrize("name", [n for n, r in ROWS.items() if r.a != "f32"])
def test_rows_of_halves_whose_operands_are_rounded_on_the_way(name, tmp_path):
    row = ROWS[name]
    check_products([deep(row, a, b, stored="f32") for a, b in MODES[::2]], tmp_path / "b")


@pytest.mark.parametrize("row", FEW, ids=[r.name for r in FEW])
def test_rows_of_narrow_numbers(row, tmp_path):
    """Rows where they lie and in the block's memory, one tile and several."""
    cases = [p.fast for p in CASES["dot"](row, TARGET)]
    check_products([replace(c, tol=max(c.tol, 1e-5)) for c in cases[1:9:3]], tmp_path / "b")


# ---------------------------------------------------------------- folds and groups of stages

def rows_in_shared_memory(path, file):
    """A Schedule of ``mixture`` whose products are kernels of their own, softmax and normalisation
    one each."""
    work = run_pipeline(Options(path, target="cuda:sm_90", dims={"n": (1, 300)},
                                connect="register", stop_after="schedule"))
    schedule = work.schedule
    for edge in (("p_max", "p_exp"), ("p_exp", "p_sum"), ("p_sum", "p"),
                 ("t_mean", "t_var_sum"), ("t_rstd", "t")):
        schedule = set_connect(work.program, schedule, edge, "shared", work.target.machine)
    schedule = replace(schedule, groups=tuple(
        replace(g, tile={"i0": 25}, parallel=("i0",)) if g.anchor in "pt" else g
        for g in schedule.groups))
    file.write_text(complete(work.program, schedule, work.target).to_json())
    return file


def check_model(model, feeds, folder, **options):
    """Mutants of a model's kernels, none of them unnoticed."""
    bundle = aotc.compile(model, folder, target="cuda:sm_90", **options)
    # of sums shorter than the stages, none is used twice
    mutants = [m for m in plant_mutants(bundle.path) if m.change != "in a stage less"]
    loaded = aotc.load(bundle.path, simulate=True)
    want = {n: a.copy() for n, a in loaded.run(feeds).items()}

    def right():
        return all(compare(n, a, want[n]).ok for n, a in loaded.run(feeds).items())
    # what lies in memory from a run before must not be right for this one
    others = {n: a[::-1] + F32(1) for n, a in feeds.items()}
    missed = unnoticed(loaded, mutants, right, before=lambda: loaded.run(others))
    assert mutants and not missed, "\n".join(missed)
    assert right()


def test_rows_in_shared_memory_and_products(tmp_path):
    path = tmp_path / "mixture.onnx"
    onnx.save(mixture(), path)
    x = np.random.default_rng().standard_normal((150, 72)).astype(F32)
    check_model(path, {"x": x}, tmp_path / "b", dims={"n": (1, 300)},
                schedule=rows_in_shared_memory(path, tmp_path / "s.json"))


@pytest.mark.product
def test_folds(tmp_path):
    feeds = {n: np.random.default_rng().standard_normal(shape).astype(F32)
             for n, shape in (("x", (3, 5000)), ("r", (75, 331)))}
    check_model(folds(), feeds, tmp_path / "b", name="folds")

"""Work items of calls that would have too few: balanced along an axis, by the workers of a call."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker

import aotc
from aotc.ir.expr import Axis, Const, Sym, substitute
from aotc.ir.schedule import Schedule
from aotc.ir.statements import TILE, WORKERS
from aotc.options import Options
from aotc.oracle.eval_expr import index_value
from aotc.pipeline import run_pipeline
from aotc.sched import decide
from aotc.sched.candidates.call_tiles import choose_call_tiles
from aotc.sched.check.item_faults import item_faults
from aotc.sched.cost.predict import Prices
from aotc.sched.model.boxes import settle_items, tile_anchor
from aotc.sched.model.stages import group_stages
from aotc.sched.text_choices.choose_writing import kernel_faults
from aotc.target import TARGETS, get_target
from aotc.tuner.measure.portable import portable_files
from benchmarks.exported.build import Writer

V3 = get_target("x86-64-v3")


def images(batch, side, free=True):
    """Two 3x3 convolutions of 64 channels, one behind the other."""
    g = Writer("images", 1)
    x = g.input("x", ["b", 64, "h", "w"] if free else [batch, 64, side, side])
    for _ in range(2):
        x = g.op("Relu", g.op("Conv", x, g.weight(64, 64, 3, 3), pads=[1] * 4))
    return g.model(x)


def scheduled(model, dims, **more):
    return run_pipeline(Options(model, target="x86-64-v3", dims=dims, stop_after="schedule",
                                **more)).schedule


def rows_by_items(balance, run=None):
    """y[n, i] = x w of any n <= 8 and i <= 90, in tiles of 1 and 12."""
    m = Maker("product")
    n, i = Sym("n", 0, 8), Sym("i", 0, 90)
    m.input("x", n, i, 32)
    m.const("w", np.ones((32, 48), np.float32))
    axes = Axis("n", n), Axis("i", i), Axis("j", Const(48))
    k = Axis("k", Const(32))
    m.step("y", axes, m.ref("x", *axes[:2], k) * m.ref("w", k, axes[2]), (k,), "sum")
    program = m.done("y")
    schedule = decide(program, V3)
    group, = schedule.groups
    n, i, _ = (a.name for a in group_stages(program, group)[0].axes)
    return program, schedule, replace(
        group, tile={n: 1, i: 4 if run else 12}, run={i: run} if run else {}, parallel=(n, i),
        balance={i: balance} if balance else {}), (n, i)


def boxes(program, group, extents, workers):
    """Per work item of a call, {axis: (first, end)} of what ``tile_anchor`` says."""
    anchor, = group_stages(program, group)
    tile = tile_anchor(anchor, group)
    syms = extents | {WORKERS.name: workers}
    out = []
    for item in range(index_value(tile.count, syms)):
        known = {TILE: Const(item)}
        for name, e in tile.let:
            known[name] = Const(index_value(substitute(e, known), syms))
        steps = index_value(substitute(tile.steps, known), syms) if tile.steps is not None else 0
        ends = {a.name: (index_value(substitute(lo, known), syms),
                         index_value(substitute(last, known), syms) + 1)
                for a, (lo, last) in tile.box.items() if a != tile.axis}
        if tile.axis is not None:
            ends[tile.axis.name] = tuple(known[x].value for x, _ in tile.let if x.name in (
                f"{tile.axis.name}_first", f"{tile.axis.name}_end"))
            assert steps == -(-(ends[tile.axis.name][1] - ends[tile.axis.name][0]) // 4)
        out.append(ends)
    return out


@pytest.mark.parametrize("step, run", [(4, None), (3, None), (12, None), (4, 24)])
def test_balanced_items_part_all_there_is(step, run):
    program, _, group, (n, i) = rows_by_items(step, run)
    most = run or 12
    for images_, rows, workers in [(1, 12, 2), (1, 12, 3), (1, 13, 2), (1, 1, 5), (1, 90, 2),
                                   (2, 12, 2), (3, 40, 8), (8, 90, 64), (1, 5, 1), (0, 7, 2),
                                   (2, 0, 2), (1, 89, 7)]:
        found = boxes(program, group, {"n": images_, "i": rows}, workers)
        seen = np.zeros((images_, rows), int)
        for item in found:
            (a, b), (lo, hi) = item[n], item[i]
            assert lo % step == 0 and 0 < hi - lo <= most, (item, images_, rows, workers)
            seen[a:b, lo:hi] += 1
        assert (seen == 1).all(), (images_, rows, workers)
        if images_ and rows:
            possible = images_ * -(-rows // step)
            assert min(workers, possible) <= len(found) <= possible
            if workers <= images_:  # nothing is made smaller than it must be
                assert len(found) == images_ * -(-rows // most)
            sizes = [-(-(item[i][1] - item[i][0]) // step) for item in found]
            assert max(sizes) - min(sizes) <= 1, (images_, rows, workers)
            if images_ == 1 and possible >= 4 * workers:
                assert len(found) % workers == 0


def test_two_workers_share_one_image_evenly():
    program, _, group, (_, i) = rows_by_items(4)
    ends = [x[i] for x in boxes(program, group, {"n": 1, "i": 12}, 2)]
    assert ends == [(0, 4), (4, 12)]
    assert [x[i] for x in boxes(program, group, {"n": 2, "i": 12}, 2)] == [(0, 12), (0, 12)]
    anchor, = group_stages(program, group)
    fixed = replace(anchor, axes=tuple(
        replace(a, extent=Const(v)) for a, v in zip(anchor.axes, (1, 12, 48))))
    assert settle_items(fixed, group, 2).tile[i] == 8 and settle_items(fixed, group,
                                                                       1).tile[i] == 12
    assert not settle_items(fixed, group, 2).balance


@pytest.mark.parametrize("change, text", [
    ({"balance": {"i1": 5}}, "balance i1/5; choose a tiled axis"),
    ({"balance": {"i1": 0}}, "balance i1/0; choose a tiled axis"),
    ({"balance": {"i1": "4"}}, "balance i1/'4'; choose a tiled axis"),
    ({"balance": {"i2": 16}}, "balance i2/16; choose a tiled axis"),
    ({"balance": {"i0": 1, "i1": 4}}, "balance of i0, i1; work items are made smaller along one"),
    ({"balance": {"i1": 6}, "run": {"i1": 24}}, "of a run's axis its tile")])
def test_balance_that_is_none(change, text):
    program, schedule, group, (n, i) = rows_by_items(4)
    def named(axes):
        return {{"i0": n, "i1": i, "i2": "?"}[a]: v for a, v in axes.items()}
    wrong = replace(group, **{k: named(v) for k, v in change.items()})
    faults = kernel_faults(program, schedule, V3, wrong)
    assert any(text.replace("i0", n).replace("i1", i).replace("i2", "?") in f for f in faults)
    back = Schedule.from_json(replace(schedule, groups=(group,)).to_json())
    assert back.groups[0].balance == {i: 4} and f"balance {i}/4" in str(back.groups[0])


def test_only_where_workers_are_threads():
    program, _, group, _ = rows_by_items(4)
    for name in ("cuda", "dsa:stcp920"):
        anchor = next(s for s in group_stages(program, group) if group.anchor in s.computes)
        fault, = item_faults(TARGETS[name].machine, anchor, group)
        assert "where a worker is a thread" in fault
        made = decide(program, TARGETS[name])
        assert not any(g.balance for g in made.groups)


def test_small_calls_have_work_for_all_workers():
    """One image of 1 to 8: its layers' work items are balanced, and predicted as much faster."""
    dims = {"b": (1, 8), "h": (8, 64), "w": (8, 64)}
    work = run_pipeline(Options(images(1, 16), target="x86-64-v3", dims=dims,
                                stop_after="schedule"))
    schedule = work.schedule
    assert all(g.balance for g in schedule.groups if len(group_stages(
        Prices(work.program, V3).rewritten(schedule), g)) > 1)
    prices = Prices(work.program, V3)
    plain = replace(schedule, groups=tuple(replace(g, balance={}) for g in schedule.groups))
    small, large = {"b": 1, "h": 16, "w": 16}, {"b": 8, "h": 64, "w": 64}
    assert prices.call(schedule, small) < 0.9 * prices.call(plain, small)
    assert prices.call(schedule, large) == pytest.approx(prices.call(plain, large), rel=0.02)
    alone = [prices.call_by_workers(s, small)[1] for s in (schedule, plain)]
    assert alone[0] == pytest.approx(alone[1], rel=0.02)


def test_static_models_have_none():
    schedule = scheduled(images(1, 16, free=False), {})
    assert not any(g.balance for g in schedule.groups)
    rewritten = run_pipeline(Options(images(1, 16, free=False), target="x86-64-v3",
                                     stop_after="schedule"))
    assert choose_call_tiles(rewritten.program, V3, schedule) == schedule.groups


def test_workers_are_in_the_frame_where_they_are_asked_for(tmp_path):
    for free in (True, False):
        dims = {"b": (1, 8), "h": (8, 64), "w": (8, 64)} if free else {}
        aotc.compile(images(1, 16, free), tmp_path / str(free), name="images", target="x86-64-v3",
                     dims=dims)
        text = (tmp_path / str(free) / "images_internal.h").read_text()
        assert ("int64_t workers;" in text) == free


def test_kernels_that_are_measured_know_the_workers():
    """The tuner's frame of one kernel has them, too, from that of the bundle."""
    for free in (True, False):
        dims = {"b": (1, 8), "h": (8, 64), "w": (8, 64)} if free else {}
        plan = run_pipeline(Options(images(1, 16, free), target="x86-64-v3", dims=dims,
                                    stop_after="plan")).plan
        files = portable_files(plan, V3)
        assert ("int64_t workers;" in files["zzframe.h"]) == free
        assert any("p.workers = f->workers;" in text for text in files.values()) == free


def test_a_group_is_not_balanced_for_all_calls_that_have_enough():
    schedule = scheduled(images(8, 16), {"b": (8, 64), "h": (32, 64), "w": (32, 64)})
    assert not any(g.balance for g in schedule.groups)

"""A whole session on a pretended machine: stages, records, resuming, the last word."""

from random import Random

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import make_model
from tuner_models import (
    Crash,
    PretendedChecker,
    PretendedExecutor,
    Ticks,
    convolutions,
    pretended,
    scheduled,
)

import aotc
from aotc.errors import UnsupportedError
from aotc.ir.schedule import Schedule
from aotc.sched import check_schedule
from aotc.tuner.measure.executor import Result
from aotc.tuner.measure.records import Records
from aotc.tuner.measure.rigs import CpuRig
from aotc.tuner.plot import plot
from aotc.tuner.session import Session, Tuned, tune


@pytest.fixture(scope="module")
def work():
    return scheduled(convolutions(size=8, channels=16, layers=3), "x86-64-v4", connect="register")


def session(work, records=None, seed=0, budget=20, executor=None, **checker):
    executor = executor or PretendedExecutor()
    judge = PretendedChecker(len(work.schedule.groups), **checker)
    made = Session(work, CpuRig(work.target), Records(records), Random(seed), seed, executor, judge,
                   lambda text: None, Ticks(), 0.0, budget)
    return made, executor, judge


def test_the_best_points_become_a_legal_schedule(work):
    made, executor, judge = session(work)
    found = made.run()
    assert found.trials > 20 and found.changed
    assert check_schedule(work.program, found.schedule, work.target) == []
    assert Schedule.from_json(found.schedule.to_json()).hash == found.schedule.hash
    assert found.schedule.hash == judge.seen[-1].hash != work.schedule.hash
    assert found.tuned_ms < found.untuned_ms
    for search in made.searches.values():
        point, ratio = search.best
        assert ratio <= 1.0 and (point == ("", ()) or 0.5 < ratio <= 0.5 ** 0.5 + 1e-9)


def chain(rows=24, width=48):
    """y f32[rows, width]: two products with a ReLU in between."""
    rng = np.random.default_rng(0)
    w = {n: rng.standard_normal((width, width)).astype(np.float32) for n in "vw"}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["p"]), helper.make_node("Relu", ["p"], ["h"]),
             helper.make_node("MatMul", ["h", "w"], ["y"])]
    return make_model(nodes, {"x": (TensorProto.FLOAT, [rows, width])},
                      {"y": (TensorProto.FLOAT, [rows, width])}, w)


@pytest.mark.parametrize("precision, error", [
    ("f16", None), *(pytest.param(*x, marks=pytest.mark.product) for x in (
        ("bf16", None), ("int4w", None), ("int8w", 0.5), ("auto", 0.1)))])
def test_what_is_rounded_stays_so(precision, error):
    """Rewrites that round are settled; around them tiles are searched as ever."""
    for model, rules in ((chain(), 1), (convolutions(size=8, channels=16, layers=1), 0)):
        work = scheduled(model, "x86-64-v4-bf16", precision=precision, error=error)
        made, _, _ = session(work, budget=8)
        found = made.run()
        assert check_schedule(work.program, found.schedule, work.target) == []
        assert found.trials and found.schedule.precision == work.schedule.precision
        assert found.schedule.rewrites == work.schedule.rewrites or not rules
        assert not rules or {r for r, *_ in found.schedule.rewrites} & {
            "narrow", "halve", "group", "integer_rows"}


def test_both_stages_ask_and_every_kind_is_asked():
    made, executor, _ = session(scheduled(convolutions(size=10, channels=16), "x86-64-v4"))
    made.run()
    layouts = [sum(form.startswith("layout:") for form, _ in asked) for asked in executor.asked]
    assert layouts[0] and not layouts[0] > len(executor.asked[0])
    assert any(values for asked in executor.asked[1:] for _, values in asked)
    assert set(made.searches) == {r.site for r in made.records.all}


class LikesLayouts(PretendedExecutor):
    """A machine on which every other layout is twice as fast, and nothing else is faster."""

    def build_and_measure(self, candidates):
        return [Result(5e-4 if c.point[0].startswith("layout:") else 1e-3) for c in candidates]


@pytest.fixture(scope="module")
def two():
    return scheduled(convolutions(size=8, channels=16), "x86-64-v4", connect="register")


def test_a_layout_is_adopted_by_all_sites_it_touches(two):
    made, _, judge = session(two, executor=LikesLayouts())
    found = made.run()
    assert made.ties and all(len(t) == 2 for t in made.ties)
    assert check_schedule(two.program, found.schedule, two.target) == []
    temps = [b for b in two.program.buffers if two.program.buffers[b].role == "temp"]
    assert any(found.schedule.layouts.get(b) != two.schedule.layouts.get(b) for b in temps)


def test_sites_with_a_common_layout_go_back_together(two):
    first = session(two, executor=LikesLayouts())[0].run()
    tied = first.changed[0]
    found = session(two, executor=LikesLayouts(), slower=(tied,))[0].run()
    assert tied not in found.changed
    assert check_schedule(two.program, found.schedule, two.target) == []


def test_the_same_seed_finds_the_same(work):
    runs = []
    for seed in (1, 1, 2):
        made, executor, _ = session(work, seed=seed, budget=6)
        found = made.run()
        runs.append((found.schedule.to_json(), executor.asked))
    assert runs[0] == runs[1] and runs[0][1] != runs[2][1]


def test_a_slower_whole_keeps_the_untuned_schedule(work):
    made, _, judge = session(work, budget=6, ratio=1.02)
    found = made.run()
    assert judge.seen and found.schedule == work.schedule and found.changed == ()
    assert found.tuned_ms == found.untuned_ms


@pytest.mark.product
def test_groups_that_are_not_faster_in_the_model_go_back(work):
    first = session(work)[0].run()
    slow = first.changed[:1]
    found = session(work, slower=slow)[0].run()
    assert set(found.changed) == set(first.changed) - set(slow)
    kept = {g.computes: g.tile for g in found.schedule.groups}
    back = next(g for g in work.schedule.groups if g.name == slow[0])
    assert kept[back.computes] == back.tile


@pytest.mark.product
def test_the_fastest_of_what_was_tried_is_kept(work):
    """Leaving out what seems slower can make the whole slower: then it stays in."""
    first = session(work)[0].run()
    made, _, judge = session(work, slower=first.changed[:1])
    real, ratios = judge.compare, iter((0.5, 0.9, 0.9))

    def compare(schedule, chosen):
        judge.ratio = next(ratios)
        return real(schedule, chosen)

    judge.compare = compare
    found = made.run()
    assert found.schedule == judge.seen[0]
    assert len({x.hash for x in judge.seen}) == 3  # the second option of what was slower, too
    assert set(found.changed) == set(first.changed) and found.tuned_ms == 750.0


def test_failures_are_recorded_and_never_chosen(work):
    made, _, _ = session(work)
    sites = list({s.key for s in made.sites})
    made, _, _ = session(work, executor=PretendedExecutor(dict.fromkeys(sites, "crash")))
    found = made.run()
    failed = [r for r in made.records.all if r.error]
    assert failed and all(r.seconds is None for r in failed)
    assert all(point[1] == () for s in made.searches.values() for point in [s.best[0]])
    assert check_schedule(work.program, found.schedule, work.target) == []


@pytest.mark.product
def test_an_interrupted_session_goes_on_from_its_records(work, tmp_path):
    path = tmp_path / "r.jsonl"
    made, executor, _ = session(work, path)
    real, calls = executor.build_and_measure, []

    def interrupted(candidates):
        calls.append(1)
        if len(calls) > 2:
            raise Crash("killed")
        return real(candidates)

    executor.build_and_measure = interrupted
    with pytest.raises(Crash):
        made.run()
    before = Records(path).all
    assert before
    again, executor, _ = session(work, path)
    again.run()
    known = {(r.site, r.point) for r in before if r.ratio > 1}
    asked = {(r.site, r.point) for r in again.records.all[len(before):]}
    assert not known & asked  # nothing that was slower is measured again
    assert Records(path).all[:len(before)] == before
    assert len(Records(path).all) > len(before)


def test_records_of_another_machine_do_not_count(work, tmp_path):
    path = tmp_path / "r.jsonl"
    made, _, _ = session(work, path, budget=6)
    made.machine = "another"
    made.run()
    again, _, _ = session(work, path)
    again._open({g.name: 1.0 for g in work.schedule.groups})
    again._resume()
    assert all(not s.tried for s in again.searches.values())


def test_the_whole_model_decides_about_wrong_results(work):
    made, _, judge = session(work)

    def wrong(schedule, chosen):
        judge.seen.append(schedule)
        return type(judge).compare(judge, schedule, chosen).__class__((1.0, 0.5), frozenset(),
                                                                      True)

    judge.compare = wrong
    assert made.run().schedule == work.schedule


def test_pretended_times_are_what_they_say(work):
    made, _, _ = session(work)
    made._open({g.name: 1.0 for g in work.schedule.groups})
    assert all(pretended(s.base) == 1e-3 for s in made.searches.values())


def test_targets_that_do_not_run_here_are_refused():
    for target in ("dsa:stcp920", "x86-64"):
        with pytest.raises(UnsupportedError, match="native"):
            tune(convolutions(), aotc_options(target), budget=1)


def aotc_options(target):
    from aotc.pipeline import Options
    return Options(None, target=target)


def test_the_picture_shows_what_was_found():
    tuned = Tuned(None, 10.0, 8.1, 30, ((1.0, 10, 9.0), (2.0, 30, 8.0)), (), (0.1, 0.5, 3))
    text = plot(tuned, "a <model> & more")
    assert text.startswith("<svg") and "a &lt;model&gt; &amp; more" in text
    assert text.count("<circle") == 1 and "H" in text
    assert plot(Tuned(None, 10.0, 10.0, 0, (), (), (0.0, 0.0, 0)), "m").endswith("</svg>\n")


@pytest.mark.product
def test_five_seconds_on_this_machine(tmp_path):
    model = convolutions(size=20, channels=32)
    found = aotc.tune(model, tmp_path / "s.json", budget=5.0, records=tmp_path / "r.jsonl",
                      plot=tmp_path / "p.svg")
    assert found.tuned_ms <= found.untuned_ms and found.trials
    bundle = aotc.compile(model, tmp_path / "b", schedule=tmp_path / "s.json")
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert bundle.load().outputs and Records(tmp_path / "r.jsonl").all

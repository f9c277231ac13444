"""``--arena``: schedules that keep a limit, what they compute, and what is said where none does."""

import re
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from small_models import conv_stack, dense, make_model, running_sum, u_net
from te_programs import Maker

from aotc import compile as aotc_compile
from aotc.cli import main
from aotc.errors import AotcError, LimitError, ScheduleError
from aotc.ir.expr import Const, substitute
from aotc.ir.read_boxes import interval
from aotc.ir.simplify import simplify
from aotc.ir.statements import TILE
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.recompute import rewrite_readers
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.runtime.status import ShapeError
from aotc.sched import check_schedule, decide, decide_within, parse_limit
from aotc.sched.choose.connect import register_groups
from aotc.sched.limit.arena import ArenaLimit, arena_need
from aotc.sched.limit.arena_cones import Cones
from aotc.sched.limit.arena_limit import Planner, Search, _source
from aotc.sched.lowering.lower import lower_group
from aotc.sched.memory.scratch import scratch_bytes
from aotc.sched.model.boxes import stage_boxes, tile_anchor
from aotc.sched.model.stages import group_stages
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.target import get_target
from aotc.tools.verify import verify

MODELS = {"u_net": u_net(), "conv_stack": conv_stack()}


@pytest.fixture(scope="module")
def programs():
    return {name: run_pipeline(Options(m, target="x86-64-v3", stop_after="inline")).program
            for name, m in MODELS.items()}


def need(program, schedule, target, workers=1):
    stored, slabs = arena_need(apply_rewrites(program, schedule.rewrites), schedule, target)
    return stored + workers * max(slabs)


def image(program, seed=1):
    shape = [d.value for d in program.shape("x")]
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


# ---------------------------------------------------------------- the option

def test_limits_are_read():
    assert parse_limit(None) is None
    assert parse_limit(4096) == parse_limit("4K") == ArenaLimit(4096)
    assert parse_limit("1.5G:4") == ArenaLimit(3 << 29, 4)
    assert parse_limit(ArenaLimit(7, 2)) == ArenaLimit(7, 2)


@pytest.mark.parametrize("text", ["", "64MB", "-1", "0", "M", "64M:0", 0, True, "1e6", 2.5])
def test_wrong_limits_say_what_to_write(text):
    with pytest.raises(AotcError, match="write bytes as 64M"):
        parse_limit(text)


def test_wrong_usage(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["compile", "m.onnx", "-o", "b", "--arena", "lots"])
    assert exit_.value.code == 2 and "64M" in capsys.readouterr().err


# ---------------------------------------------------------------- schedules that fit

@pytest.mark.parametrize("name,unfold", [("u_net", True), *(pytest.param(
    *p, marks=pytest.mark.product) for p in (("u_net", False), ("conv_stack", True)))])
def test_schedules_keep_the_limit_and_compute_the_same(programs, name, unfold):
    program, target = programs[name], get_target("x86-64-v3")
    limit = need(program, decide(program, target, unfold=unfold), target) * 6 // 10
    schedule = decide_within(program, target, ArenaLimit(limit), unfold=unfold)
    rewritten = apply_rewrites(program, schedule.rewrites)
    assert need(program, schedule, target) <= limit
    assert not check_schedule(rewritten, schedule, target)
    assert any(len(group_stages(rewritten, g)) > 2 for g in schedule.groups)
    feeds = image(program)
    wanted, got = evaluate(program, feeds), interpret(rewritten, schedule, feeds)
    for b, array in wanted.items():
        np.testing.assert_allclose(got[b], array, rtol=1e-5, atol=1e-5)


def test_skipped_tensors_are_computed_again(programs):
    """With the pooled tensor stored and nothing else, what comes before it is in both kernels."""
    program, target = programs["u_net"], get_target("x86-64-v3")
    planner = Planner(program, target, "register", (), 1)
    lumps = planner.cones.lumps
    pool = next(i for i, u in enumerate(lumps) if "pool1" in u.group.computes)
    state = Search(planner.cones, 1 << 20, 1).state(frozenset({pool, len(lumps) - 1}))
    assert state.peak == lumps[pool].bytes and not state.excess
    assert state.cones[pool] - {pool} < state.cones[len(lumps) - 1]
    schedule, refused = planner.schedule(state)
    assert not refused and schedule == planner.schedule(state)[0]
    twins = [c for rule, c, _ in schedule.rewrites if rule == "recompute"]
    assert sorted(twins) == sorted(c for u in state.cones[pool] - {pool}
                                   for c in lumps[u].group.computes)
    rewritten, feeds = apply_rewrites(program, schedule.rewrites), image(program)
    assert not check_schedule(rewritten, schedule, target)
    np.testing.assert_allclose(interpret(rewritten, schedule, feeds)["y"],
                               evaluate(program, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_slabs_of_all_workers_count(programs):
    program, target = programs["u_net"], get_target("x86-64-v3")
    limit = need(program, decide(program, target), target, 3) - 1
    schedule = decide_within(program, target, ArenaLimit(limit, 3))
    assert need(program, schedule, target, 3) <= limit


def test_a_limit_that_is_kept_anyway_changes_nothing(programs):
    program, target = programs["conv_stack"], get_target("x86-64-v3")
    free = decide(program, target, winograd="auto", unfold=True)
    limit = ArenaLimit(need(program, free, target))
    assert decide_within(program, target, limit, winograd="auto", unfold=True) == free


@pytest.mark.product
def test_lone_convolutions_keep_their_winograd_forms():
    model, target = conv_stack(48, (32, 32)), get_target("x86-64-v3")
    program = run_pipeline(Options(model, target="x86-64-v3", stop_after="inline")).program
    free = decide(program, target, winograd="auto", unfold=True)
    limit = need(program, free, target) * 9 // 10
    schedule = decide_within(program, target, ArenaLimit(limit), winograd="auto", unfold=True)
    assert need(program, schedule, target) <= limit
    forms = [r for r in schedule.rewrites if r[0] == "winograd"]
    assert forms and all(r in free.rewrites for r in forms)
    assert not check_schedule(apply_rewrites(program, schedule.rewrites), schedule, target)


def test_the_smallest_limit_is_named_and_works(programs):
    program, target = programs["conv_stack"], get_target("x86-64-v3")
    with pytest.raises(ScheduleError, match="no schedule of .* keeps 1000 bytes") as fault:
        decide_within(program, target, ArenaLimit(1000))
    least = int(re.search(r"\((\d+) bytes\)", str(fault.value))[1])
    assert need(program, decide_within(program, target, ArenaLimit(least)), target) <= least
    with pytest.raises(ScheduleError):
        decide_within(program, target, ArenaLimit(min(int(least * 0.9), least - 1024)))


def test_dynamic_dimensions_count_with_their_largest_extent():
    model = dense()
    program = run_pipeline(Options(model, target="c", dims={"n": (1, 64)},
                                   stop_after="inline")).program
    target = get_target("c")
    schedule = decide_within(program, target, ArenaLimit(1 << 16))
    assert need(program, schedule, target) <= 1 << 16


# ---------------------------------------------------------------- boxes and scratch

def test_scratch_holds_whatever_a_stage_writes(programs):
    """A transposed convolution writes whole pixels of its input: at an odd border of the box that
    is asked for, more than was asked for."""
    program = programs["u_net"]
    groups = order_groups(program, register_groups(program))
    first = next(i for i, g in enumerate(groups) if "up0_sum" in g.computes)
    last = next(i for i, g in enumerate(groups) if "join0_sum" in g.computes)
    group = reduce(lambda a, b: merge_groups(program, a, b, "L2"), groups[first:last + 1])
    group = replace(group, tile={"oh": 8, "ow": 8}, parallel=("oh", "ow"))
    stages = group_stages(program, group)
    tile = tile_anchor(next(s for s in stages if group.anchor in s.computes), group)
    boxes, places = stage_boxes(program, group, stages, tile)
    for number in range(simplify(tile.count).value):
        values = {TILE: Const(number)}
        for axis, e in tile.let:
            values[axis] = simplify(substitute(e, values))

        def at(e, values=values):
            return simplify(substitute(e, values)).value
        for s in stages:
            box = {a: tuple(Const(at(x)) for x in ends) for a, ends in boxes[s.name].items()}
            for o in s.outputs:
                for i, (lo, size) in zip(o.index, places.get(o.buffer, ())):
                    first, end = (simplify(x).value for x in interval(i, box))
                    assert at(lo) <= first and end < at(lo) + size


def test_sizes_by_the_model_are_those_of_lowering(programs):
    program, target = programs["conv_stack"], get_target("x86-64-v3")
    cones = Cones(program, target, order_groups(program, register_groups(program)))
    sink = len(cones.lumps) - 1
    cone = cones.cone(sink, frozenset({sink}))
    assert len(cone) == len(cones.lumps)
    group = reduce(lambda a, b: merge_groups(program, a, b, "L2"), [u.group for u in cones.lumps])
    for t in cones.tilings(sink, cone)[1:4]:
        tiled = replace(group, tile=dict(t.tile), parallel=tuple(a for a, _ in t.tile))
        assert scratch_bytes(program, tiled) == t.slab
    settled = decide(program, target, winograd=(), groups=(replace(tiled, name="g000"),))
    packed = lower_group(program, settled, target, settled.groups[0], 0)
    assert packed.slab_bytes >= t.slab  # what a stage packs comes on top


# ---------------------------------------------------------------- whole bundles

def test_a_bundle_under_a_limit_runs_right(tmp_path, programs):
    program, target = programs["u_net"], get_target("c")
    limit = need(program, decide(program, target, unfold=True), target, 2) * 8 // 10
    bundle = aotc_compile(MODELS["u_net"], tmp_path / "b", target="c", arena=f"{limit}:2")
    about = bundle.manifest
    assert about["arena_bytes_max"] + 2 * about["slab_bytes_per_worker"] <= limit
    feeds = image(program)
    wanted = evaluate(program, feeds)
    for threads in (1, 2):
        got = bundle.load(threads=threads).run(feeds)
        np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-4, atol=1e-4)


def test_a_copy_is_made_of_what_its_readers_read():
    m = Maker()
    m.input("x", 8)
    for name, source in (("a", "x"), ("b", "a"), ("c", "a")):
        m.pointwise(name, source, lambda v, axes: v * Const(2, "f32"))
    program = rewrite_readers(m.done("b", "c"), "a", {"readers": ("b",)})
    versions = ["a", "a_again"]
    assert _source(program, versions, ["b"]) == ("a_again", ("b",))
    assert _source(program, versions, ["c"]) == ("a", ("c",))
    assert _source(program, versions, ["b", "c"]) is None  # no copy serves both


@pytest.mark.product
def test_a_recurrence_under_its_smallest_limit(tmp_path):
    rng = np.random.default_rng(0)
    w, r = (rng.standard_normal((1, 3 * 6, n)).astype(np.float32) for n in (1, 6))
    model = make_model([helper.make_node("GRU", ["x", "w", "r"], ["y", "last"], hidden_size=6)],
                       {"x": (TensorProto.FLOAT, [3, 512, 1])}, {
                           "y": (TensorProto.FLOAT, [3, 1, 512, 6]),
                           "last": (TensorProto.FLOAT, [1, 512, 6])}, {"w": w, "r": r})
    with pytest.raises(ScheduleError, match="smallest limit that works") as refused:
        aotc_compile(model, tmp_path / "b", target="c", arena=1 << 10)
    least = re.search(r"\((\d+) bytes\)", str(refused.value)).group(1)
    bundle = aotc_compile(model, tmp_path / "b", target="c", arena=int(least))
    feeds = {"x": rng.standard_normal((3, 512, 1)).astype(np.float32)}
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for got, want in zip(bundle.load().run(feeds).values(), wanted):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_limit_that_cannot_be_kept_is_no_refused_decision(tmp_path, capsys):
    """Nothing is decided again without merges, which would keep it even less."""
    with pytest.raises(LimitError, match="smallest limit that works"):
        aotc_compile(conv_stack(), tmp_path / "b", target="c", arena=1 << 10)
    assert "made again" not in "".join(capsys.readouterr())


def test_rules_for_data_hold_under_a_limit(tmp_path):
    """Nobody reads what a rule makes: it is no tensor that need not be stored."""
    model, value = conv_stack(), helper.make_tensor_value_info
    model.graph.node.append(helper.make_node("Tile", ["t", "r"], ["u"]))
    model.graph.input.extend([value("t", TensorProto.FLOAT, [2, 3]),
                              value("r", TensorProto.INT64, [2])])
    model.graph.output.append(value("u", TensorProto.FLOAT, [4, 3]))
    loaded = aotc_compile(model, tmp_path / "b", target="c", arena=8 << 10).load()
    feeds = {"x": np.zeros((1, 3, 24, 24), np.float32), "t": np.ones((2, 3), np.float32)}
    np.testing.assert_array_equal(loaded.run(feeds | {"r": np.array([2, 1])})["u"], 1)
    with pytest.raises(ShapeError, match="Tile"):
        loaded.run(feeds | {"r": np.array([1, 2])})


def test_loops_are_as_they_are_under_a_limit(tmp_path):
    aotc_compile(running_sum(), tmp_path / "b", target="c", dims={"t": (1, 30)}, arena="64K")
    with pytest.raises(ScheduleError, match="loops or branches has no other"):
        aotc_compile(running_sum(), tmp_path / "c", target="c", dims={"t": (1, 30)}, arena=16)
    assert not (tmp_path / "c").exists()


def test_no_file_is_written_where_nothing_fits(tmp_path):
    with pytest.raises(ScheduleError, match="smallest limit that works"):
        aotc_compile(conv_stack(12, (3,)), tmp_path / "b", target="c", arena=512)
    assert not (tmp_path / "b").exists()


def test_a_schedule_of_ones_own_must_keep_it_too(tmp_path):
    model, saved = MODELS["conv_stack"], tmp_path / "s.json"
    aotc_compile(model, tmp_path / "a", target="c", schedule_out=saved)
    with pytest.raises(ScheduleError, match="the limit is 2048 bytes"):
        aotc_compile(model, tmp_path / "b", target="c", schedule=saved, arena="2K")
    assert not (tmp_path / "b").exists()


@pytest.mark.product
@pytest.mark.parametrize("model, size, share", [(u_net, 128, 0.6), (conv_stack, 160, 1 / 3)])
def test_larger_images_agree_with_the_reference(tmp_path, model, size, share):
    path = tmp_path / "m.onnx"
    path.write_bytes(model(size, (8, 16, 24, 32)).SerializeToString())
    work = run_pipeline(Options(path, stop_after="schedule"))
    limit = int(need(work.program, work.schedule, work.target, 2) * share)
    lines = []
    found = verify(path, threads=2, arena=f"{limit}:2", report=lines.append)
    assert found and all(m.ok for _, m in found), lines

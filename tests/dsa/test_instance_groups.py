"""Kernels and places of tensors from the deciders of instances: ``--connect graphturbo``."""

from dataclasses import replace

import numpy as np
import pytest
from harness import INFO, differences
from small_models import u_net
from te_programs import Maker, conv2d, matmul, random_feeds, relu
from te_random import random_program

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import UnsupportedError
from aotc.ir.statements import Copy
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.inline import inline_moves
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule, decide, lower
from aotc.sched.accelerator.places.instance_groups import cluster_for, instance_groups
from aotc.target import get_target

TARGET = get_target("dsa:stcp920")
STORE, = TARGET.machine.stores


def images(batch=1, size=5, channels=28, layers=3):
    """Convolutions whose weights keep two of them from fitting into one core's memory."""
    rng = np.random.default_rng(3)
    m = Maker("images")
    m.input("x", batch, channels, size, size)
    last = "x"
    for n in range(layers):
        w = rng.standard_normal((channels, channels, 3, 3)) / 16
        conv2d(m, f"c{n}", last, m.const(f"w{n}", w.astype(np.float32)), 1, 1)
        last = m.pointwise(f"r{n}", f"c{n}", lambda e, _: relu(e))
    return m.done(last)


def checked(program, target=TARGET):
    """The Schedule by the rules; its Plan has the evaluator's outputs."""
    s = decide(program, target, how="graphturbo")
    assert not check_schedule(program, s, target)
    feeds = random_feeds(program, np.random.default_rng(), {})
    plan = lower(program, s, target)
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), 2e-5)
    return s


def test_tensors_between_kernels_stay_on_the_cluster():
    s = checked(images())
    assert 1 < len(s.groups) <= 3
    assert {x.memory for x in s.buffers.values()} == {"GB"}
    assert all(g.clusters == 1 for g in s.groups)


def test_a_batch_is_parted_among_the_clusters():
    program = images(batch=4, size=4)
    assert cluster_for(program, TARGET.machine).cores == TARGET.machine.workers
    s = checked(program)
    assert {(x.memory, x.parts) for x in s.buffers.values()} <= {("GB", 4), ("GB", 1)}


def test_what_the_plan_spills_is_stored_outside():
    program = images()
    small = replace(TARGET, name="dsa:small", machine=replace(TARGET.machine, stores=(
        replace(STORE, capacity=1 << 10),), memories=(TARGET.machine.memory, replace(
            TARGET.machine.near, capacity=32 << 10), *TARGET.machine.memories[2:])))
    found = instance_groups(program, small)
    s = decide(program, small, how="graphturbo")
    assert not any(x.memory for x in s.buffers.values())
    assert set(found.outside) <= set(program.buffers)


def test_sub_graphs_say_why():
    work = run_pipeline(Options(u_net(8).SerializeToString(), None, TARGET.name, "m",
                                stop_after="plan", connect="graphturbo"))
    s = work.plans.main.schedule
    assert any("sub-graph s" in g.why for g in s.groups)
    assert any(x.memory == "GB" for x in s.buffers.values())


@pytest.mark.parametrize("seed", [2, 5, 39])
def test_random_programs_with_library_calls(seed):
    """Sub-graphs may hold a library call, which is a kernel of its own."""
    program = inline_moves(random_program(seed)) if seed % 3 else random_program(seed)
    syms = {s.name: s.lo for s in program.syms}
    plan = lower(program, decide(program, TARGET, how="graphturbo"), TARGET)
    feeds = random_feeds(program, np.random.default_rng(seed), syms)
    assert not any(differences(run_plan(plan, feeds, syms), evaluate(program, feeds, syms),
                               2e-5, 0.1))


def two_layers(m, several):
    """y = relu(x w) w, and where there are several outputs h = relu(x w) and z = relu(2 h), too."""
    rng = np.random.default_rng(5)
    m.input("x", 512, 64)
    m.const("w", rng.standard_normal((64, 64)).astype(np.float32) / 8)
    matmul(m, "p", "x", "w")
    m.pointwise("h", "p", lambda e, _: relu(e))
    matmul(m, "y", "h", "w")
    if several:
        m.pointwise("z", "h", lambda e, _: relu(e * 2.0))
    return m.done("y", "z", "h") if several else m.done("y")


def test_weights_of_several_kernels_come_into_the_clusters_memory_once():
    program = two_layers(Maker("shared"), False)
    groups = decide(program, TARGET, how="register")
    assert len(groups.groups) == 2 and groups.buffers["w"].memory == "GB"
    plan = lower(program, groups, TARGET)
    assert sum(s.engine == "bring" for k in plan.kernels for s in k.body
               if isinstance(s, Copy)) == 1
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), 2e-5)


def several_outputs(how):
    """(Program, Schedule, Plan) of groups of several outputs."""
    program = two_layers(Maker("several"), True)
    s = decide(program, TARGET, how=how)
    assert any(len(g.outputs) > 1 for g in s.groups)
    return program, s, lower(program, s, TARGET)


@pytest.mark.parametrize("how", ["all", "graphturbo"])
def test_kernels_of_several_outputs_are_right(how):
    program, _, plan = several_outputs(how)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), 2e-5)


@pytest.mark.product
@pytest.mark.parametrize("how", ["all", "graphturbo"])
def test_kernels_of_several_outputs_run_on_the_simulator(how, tmp_path):
    program, s, plan = several_outputs(how)
    write_bundle(render_bundle(plan, s, INFO), tmp_path / "b")
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(aotc.load(tmp_path / "b").run(feeds), evaluate(program, feeds, {}), 2e-5)


def test_machines_without_clusters_are_told():
    with pytest.raises(UnsupportedError, match="connect graphturbo: c has no clusters"):
        decide(images(), get_target("c"), how="graphturbo")

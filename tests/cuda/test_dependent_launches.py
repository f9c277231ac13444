"""Kernels that are launched before the one in front of them has ended (from compute capability 9.0
on): no tensor that a kernel writes is touched before they have waited for it, and no compiler may
move such an access there."""

import re
from dataclasses import replace

import numpy as np
import pytest
from harness import INFO, Case, merged
from kernel_programs import dense, pool, rows
from sass import compile_kernels, why_no_sass
from te_programs import Maker

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.emit.simt.simt_kernels import render_kernels
from aotc.emit.text.functions import shared_functions
from aotc.ir.expr import Const
from aotc.sched import decide, lower
from aotc.target import TARGETS
from aotc.target.gpus import GPUS

WITH = [t for t in TARGETS.values() if t.dependent_launches]
WITHOUT = [t for t in TARGETS.values() if t.emitter == "simt" and not t.dependent_launches]
WAIT, START = "aotc_grid_dependency_wait();", "aotc_grid_launch_dependents();"
# what a weight may be read by before; all other accesses of global memory come behind
TOUCHES = ("LDG", "STG", "LDGSTS", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "UBLKCP")


def planned(target):
    program, schedule = merged([Case(p.name, p) for p in (dense(), rows(), pool())], target)
    return lower(program, schedule, target), schedule


def open_blocks(text):
    """The line in front of each brace that a text leaves open."""
    opened = []
    for line in text.splitlines():
        for c in re.findall("[{}]", line):
            opened.append(line) if c == "{" else opened.pop()
    return opened


def kernel_texts(files):
    """[(parameters, body)] of all kernels."""
    text = "".join(t.decode() for f, t in files.items() if "_kernels_" in f)
    return re.findall(r"__global__ void [^\n]*\n\w+_device\((.*?)\)\n{\n(.*?)\n}\n", text, re.S)


def test_gpus_that_have_it_are_told_by_their_capability():
    capabilities = {t.arch: int(t.arch.removeprefix("sm_")) for t in (*WITH, *WITHOUT)}
    assert {t.arch for t in WITH} == {a for a, c in capabilities.items() if c >= 90}
    assert {f"sm_{g.capability}" for g in GPUS.values()} <= set(capabilities)


@pytest.mark.parametrize("target", WITH, ids=lambda t: t.name)
def test_kernels_wait_before_they_touch_a_tensor(target):
    plan, schedule = planned(target)
    files = render_bundle(plan, schedule, INFO).files
    texts = kernel_texts(files)
    assert len(texts) == len(shared_functions((plan,))) >= 3
    for parameters, body in texts:
        before, _, after = body.partition(WAIT)
        assert body.count(WAIT) == 1 and after.strip().startswith(START)
        weights = set(re.findall(r"__restrict__ (t_\w+)", parameters))
        before = re.sub(r"/\*.*?\*/", "", before, flags=re.S)
        assert {*re.findall(r"\bt_\w+|\bfault\b", before)} <= weights, before
        assert not re.search(r"\b(for|if|else|while)\b", " ".join(open_blocks(before))), before
    launches = b"".join(t for f, t in files.items() if "_kernels_" in f)
    assert launches.count(b"AOTC_LAUNCH_DEPENDENT(") == len(plan.kernels)
    assert b"AOTC_LAUNCH(" not in launches


@pytest.mark.parametrize("target", WITH, ids=lambda t: t.name)
def test_only_weights_are_said_to_be_written_by_nobody(target):
    """``__restrict__`` of a pointer to constants lets a compiler read ahead of the wait."""
    plan, schedule = planned(target)
    told = [re.findall(r"__restrict__ t_(\w+)", p) for p, _ in kernel_texts(
        render_bundle(plan, schedule, INFO).files)]
    assert {plan.place(n).storage for names in told for n in names} == {"weights"}


def test_a_tensor_that_is_a_weight_for_one_kernel_of_a_function_alone_is_none():
    """Two equal kernels: one doubles a constant, the other what the first has made."""
    target, m = TARGETS["cuda:sm_90"], Maker("twice")
    last = m.const("w", np.arange(64, dtype=np.float32))
    for n in range(2):
        last = m.pointwise(f"y{n}", last, lambda e, _: e * Const(2.0, "f32"))
    last = m.pointwise("z", last, lambda e, _: e * Const(3.0, "f32"))
    program = m.done(last)
    schedule = decide(program, target, "none", inner=True)
    plan = lower(program, schedule, target)
    assert [plan.place(*k.reads).storage for k in plan.kernels[:2]] == ["weights", "arena"]
    alone, both = plan.kernels[0], replace(plan.kernels[1], function=plan.kernels[0].name)
    texts = [kernel_texts({f: t.encode() for f, t in render_kernels(replace(
        plan, kernels=kernels), target).items()})[0][0]
        for kernels in ((alone,), (replace(alone, function=alone.name), both))]
    assert ["__restrict__" in t for t in texts] == [True, False]


@pytest.mark.parametrize("target", WITHOUT, ids=lambda t: t.name)
def test_other_gpus_have_nothing_of_it(target):
    plan, schedule = planned(target)
    for name, text in render_bundle(plan, schedule, INFO).files.items():
        if "_kernels_" in name:
            assert b"dependen" not in text.lower()


@pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
def test_no_access_is_moved_in_front_of_the_wait(tmp_path):
    target = TARGETS["cuda:sm_90"]
    plan, schedule = planned(target)
    write_bundle(render_bundle(plan, schedule, INFO), tmp_path / "b")
    found = compile_kernels(tmp_path / "b", target.cflags)
    assert len(found) == len(shared_functions((plan,)))
    for name, compiled in found.items():
        names = [i.name for i in compiled.code.instructions]
        assert names.count("ACQBULK") == names.count("PREEXIT") == 1, name
        first = [i for i in compiled.code.instructions[:names.index("ACQBULK")]
                 if i.name in TOUCHES]
        assert all("CONSTANT" in i.opcode for i in first), (name, first)
        assert any(n in TOUCHES for n in names[names.index("ACQBULK"):]), name

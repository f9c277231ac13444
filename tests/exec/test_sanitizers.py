"""Bundles under the address, undefined-behaviour and thread sanitizers, by their own test."""

import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from group_cases import GROUPS, schedule
from harness import INFO, RUNNABLE, Case, merged
from row_cases import CASES
from sanitizers import supported
from te_programs import random_feeds
from te_random import random_program, random_schedule

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.oracle.evaluate import evaluate
from aotc.sched import lower

SANITIZERS = ("address,undefined", "thread")


def _cases(target):
    """Every third case of every row, every group with its most ragged tiles, random schedules."""
    for u in target.ukernels:
        for n, p in enumerate(CASES[u.category](u, target)):
            if n % 3 == 1 and not p.fast.special:
                yield p.fast
    for name, ((p, connect, anchor, *run), tiles, _) in GROUPS.items():
        yield Case(name, p, schedule(target, p, connect, tiles[-1], anchor,
                                     **(run[0] if run else {})))
    for seed in range(12):
        p = random_program(seed)
        yield Case(f"random {seed}", p, random_schedule(p, target, seed))


def _sample(cases, seed):
    """One recorded run of all cases in one Program, as the bundle's test replays it."""
    rng = np.random.default_rng(seed)
    sample = SimpleNamespace(syms={}, inputs={}, outputs={})
    for i, c in enumerate(cases):
        syms = {s.name: int(rng.integers(s.lo, min(s.hi, 20) + 1)) for s in c.program.syms}
        feeds = random_feeds(c.program, rng, syms)
        sample.syms |= {f"q{i}_{n}": v for n, v in syms.items()}
        sample.inputs |= {f"q{i}_{n}": a for n, a in feeds.items()}
        sample.outputs |= {f"q{i}_{n}": a
                           for n, a in evaluate(c.program, feeds, syms).items()}
    return sample


@pytest.mark.parametrize("target, sanitizer, share", [
    *(pytest.param(RUNNABLE[0], s, 4, id=f"{s}-few") for s in SANITIZERS if s != "thread"),
    *(pytest.param(t, s, 2 if s == "thread" else 1, marks=pytest.mark.product,
                   id=f"{t.name}-{s}") for t in RUNNABLE[:1] + RUNNABLE[-1:] for s in SANITIZERS)])
def test_sanitizers_find_nothing(target, sanitizer, share, tmp_path):
    if not supported(sanitizer, tmp_path):
        pytest.skip(f"the C compiler has no {sanitizer} sanitizer")
    cases = list(_cases(target))[::share]
    program, s = merged(cases, target)
    bundle = render_bundle(lower(program, s, target), s, INFO, (_sample(cases, 1),))
    write_bundle(bundle, tmp_path / "b")
    # without optimisation: half the time, and nothing is removed before it is instrumented
    flags = f"-O0 -fsanitize={sanitizer} -fno-sanitize-recover=all"
    done = subprocess.run(["make", "-j2", "test", f"CFLAGS={flags}"], cwd=tmp_path / "b",
                          capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]

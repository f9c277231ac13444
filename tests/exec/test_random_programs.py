"""Random Programs, decided and under random legal Schedules, compiled and compared."""

import subprocess
import sys

import numpy as np
import pytest
from harness import RUNNABLE, Case, at_length, build_cases, differences
from te_programs import random_feeds
from te_random import random_program, random_schedule
from zoo_files import ROOT

from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.inline import inline_moves
from aotc.sched import check_schedule, decide

MANY, FEW = 26, 6  # Programs per target and kind, in the default suite; every target gets others


def program(seed):
    """Two of three with moves inlined, as the pipeline does; the others as they are."""
    p = random_program(seed)
    return inline_moves(p) if seed % 3 else p


def cases(target, seeds):
    for seed in seeds:
        p = program(seed)
        yield Case(f"decided {seed}", p, decide(p, target), 2e-5, floor=0.1)
    for seed in seeds:
        p = program(seed)
        yield Case(f"scheduled {seed}", p, random_schedule(p, target, seed), 2e-5, floor=0.1)


@pytest.mark.parametrize("number, target, many", [
    *(pytest.param(n, t, FEW, id=t.name, marks=at_length(t)) for n, t in enumerate(RUNNABLE)),
    *(pytest.param(n, t, MANY, id=f"{t.name}-many", marks=pytest.mark.product)
      for n, t in enumerate(RUNNABLE))])
def test_compiled_equals_evaluated(number, target, many, tmp_path):
    seeds = range(MANY * number, MANY * number + many)
    built = build_cases(list(cases(target, seeds)), target, tmp_path / "random")
    for seed in (1, 2):
        built.check(seed)
    built.check(3, syms=lambda s, r: s.lo)
    built.check(4, syms=lambda s, r: s.hi)


def test_random_schedules_use_what_they_claim():
    """The walk really reaches groups of several stages, odd tiles and every level."""
    found = set()
    for seed in range(MANY):
        p = program(seed)
        s = random_schedule(p, RUNNABLE[-1], seed)
        assert check_schedule(p, s, RUNNABLE[-1]) == []
        for g in s.groups:
            found |= set(g.connect.values())
            found |= {"tile"} if any(n not in (1, 2, 4, 8) for n in g.tile.values()) else set()
            found |= {"stages"} if len(g.rows) > 2 else set()
        found |= {row[0] for rows in s.layouts.values() for row in rows}
    assert found >= {"register", "L1", "tile", "stages", "reorder", "split", "pad"}


@pytest.mark.parametrize("seeds", [range(FEW), pytest.param(
    range(FEW, MANY), marks=pytest.mark.product)], ids=["few", "many"])
def test_interpreter_agrees(seeds):
    """What the interpreter executes literally is what the Program says."""
    for seed in seeds:
        p = program(seed)
        s = random_schedule(p, RUNNABLE[0], seed)
        syms = {x.name: 4 for x in p.syms}
        feeds = random_feeds(p, np.random.default_rng(seed), syms)
        want = evaluate(p, feeds, syms)
        wrong = differences(interpret(p, s, feeds, syms), want, 2e-5, 0.1)
        assert not wrong, (seed, wrong)


@pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.product)])
def test_decisions_do_not_depend_on_hash_seeds(number):
    code = ("import sys; sys.path[:0] = sys.argv[2:]\n"
            "from te_random import random_program\n"
            "from aotc.sched import decide, lower\n"
            "from aotc.target import get_target\n"
            "for seed in range(int(sys.argv[1])):\n"
            "    p, t = random_program(seed), get_target('x86-64-v4')\n"
            "    s = decide(p, t)\n"
            "    print(p, s.to_json(), lower(p, s, t))\n")
    paths = [str(ROOT), str(ROOT / "tests" / "helpers")]
    texts = {subprocess.run([sys.executable, "-c", code, str(number), *paths],
                            check=True, capture_output=True,
                            env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(texts) == 1

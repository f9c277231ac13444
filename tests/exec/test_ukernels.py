"""Every micro-kernel row of every target this machine runs, against its slow twin and the
evaluator.  A row without cases fails here."""

import pytest
from harness import RUNNABLE, at_length, build_cases, differences
from row_cases import CASES

from aotc.target import TARGETS

# a row that several targets have runs for the last of them
ROWS = [(t, u) for i, t in enumerate(RUNNABLE) for u in t.ukernels
        if not any(u in later.ukernels for later in RUNNABLE[i + 1:])]


def _id(pair):
    return f"{pair[0].name}-{pair[1].name}"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """``ran(target) -> {row name: [(case, fast, twin, expected)]}``, one bundle per target."""
    known = {}

    def get(target):
        if target.name not in known:
            folder = tmp_path_factory.mktemp("rows") / target.name
            known[target.name] = _run(target, folder)
        return known[target.name]
    return get


def _run(target, folder):
    pairs = [(u.name, p) for t, u in ROWS if t is target for p in CASES[u.category](u, target)]
    # a Case may stand on both sides: the plain nest is its own twin
    fast = build_cases([p.fast for _, p in pairs], target, folder / "fast")
    slow = build_cases([p.slow for _, p in pairs], target, folder / "slow", "-O0")
    out = {}
    for seed in (1, 2):
        s = fast.sample(seed)
        twin = slow.run(s.feeds)
        for (name, p), f, t, w in zip(pairs, s.got, twin, s.want):
            out.setdefault(name, []).append((p.fast, f, t, w))
    return out


def test_every_row_has_cases():
    for target in TARGETS.values():
        for u in target.ukernels:
            assert u.category in CASES, f"no cases for category {u.category} of row {u.name}"
            assert next(iter(CASES[u.category](u, target)), None), f"{u.name} has no case"


@pytest.mark.parametrize("target_row", [pytest.param(r, id=_id(r), marks=at_length(r[0]))
                                        for r in ROWS])
def test_row_equals_its_twin_and_the_evaluator(ran, target_row):
    target, row = target_row
    results = ran(target)[row.name]
    assert results
    wrong = []
    for case, fast, twin, want in results:
        wrong += [f"{case.name}: twin: {x}" for x in differences(twin, want, case.tol)]
        wrong += [f"{case.name}: row: {x}" for x in differences(fast, want, case.tol)]
    assert not wrong, "\n".join(wrong)

"""Every micro-kernel row of every target this machine runs, against its slow twin and the
evaluator.  A row without cases fails here."""

import pytest
from harness import RUNNABLE, at_length, build_cases, differences
from row_cases import CASES

from aotc.target import TARGETS

# a row that several targets have runs for the last of them
ROWS = [(t, u) for i, t in enumerate(RUNNABLE) for u in t.ukernels
        if not any(u in later.ukernels for later in RUNNABLE[i + 1:])]


def _always(target, row):
    """True for the first and the last row of its category that a target runs: those between differ
    in their numbers only, and take their turn in the longer suite."""
    alike = [u for t, u in ROWS if t is target and u.category == row.category]
    return row in (alike[0], alike[-1])


def _id(pair):
    return f"{pair[0].name}-{pair[1].name}"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """``ran(target, row) -> [(case, fast, twin, expected)]``; one bundle per target for the rows
    that always run, one for the others."""
    known = {}

    def get(target, row):
        key = target.name, _always(target, row)
        if key not in known:
            folder = tmp_path_factory.mktemp("rows") / target.name
            known[key] = _run(target, folder, [u for t, u in ROWS if t is target
                                               and _always(t, u) == key[1]])
        return known[key][row.name]
    return get


def _run(target, folder, rows):
    pairs = [(u.name, p) for u in rows for p in CASES[u.category](u, target)]
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


@pytest.mark.parametrize("target_row", [pytest.param(r, id=_id(r), marks=at_length(r[0])
                                                     if _always(*r) else pytest.mark.product)
                                        for r in ROWS])
def test_row_equals_its_twin_and_the_evaluator(ran, target_row):
    target, row = target_row
    results = ran(target, row)
    assert results
    wrong = []
    for case, fast, twin, want in results:
        wrong += [f"{case.name}: twin: {x}" for x in differences(twin, want, case.tol)]
        wrong += [f"{case.name}: row: {x}" for x in differences(fast, want, case.tol)]
    assert not wrong, "\n".join(wrong)

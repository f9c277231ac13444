"""Every micro-kernel row of every target this machine runs, against its slow twin and the
evaluator.  A row without cases fails here."""

from itertools import zip_longest

import pytest
from harness import RUNNABLE, at_length, build_cases, differences
from row_cases import CASES

from aotc.target import TARGETS

# a row that several targets have runs for the last of them
ROWS = [(t, u) for i, t in enumerate(RUNNABLE) for u in t.ukernels
        if not any(u in later.ukernels for later in RUNNABLE[i + 1:])]


def _share(target, row):
    """2: half the cases of the row run always, 6: a sixth of them, and all in the longer suite; 0:
    all in the longer suite alone.  The rows of a category differ in their numbers only, so that of
    those that a target runs the last stands for all; a case that one target leaves out is run by
    the next."""
    alike = [u for t, u in ROWS if t is target and _kind(u) == _kind(row)]
    return 2 if row is alike[-1] else 6 if row is alike[0] else 0


def _kind(row):
    """What rows that differ in their numbers only have in common."""
    return row.category, row.products if row.category == "dot" else ()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """``ran(target, row, share) -> [(case, fast, twin or None, expected)]`` of every case or a
    share of them; one bundle per target for what always runs, one for the longer suite."""
    known = {}

    def get(target, row, share):
        always = bool(share)
        if (target.name, always) not in known:
            folder = tmp_path_factory.mktemp("rows") / target.name
            shares = {u: _share(t, u) for t, u in ROWS if t is target}
            known[target.name, always] = _run(target, folder, {
                u: s if always else 1 for u, s in shares.items() if s or not always})
        return known[target.name, always][row.name]
    return get


def _run(target, folder, rows):
    """rows: {row: every how many of its cases run}.  The twins are plain nests that differ from row
    to row in extents only: those of the last row of a category stand for all of it.  A Case may
    stand on both sides."""
    last, place = {_kind(u): u.name for u in rows}.values(), RUNNABLE.index(target)
    pairs = sorted(((u.name, p) for u, share in rows.items()
                    for own in [list(CASES[u.category](u, target))]
                    for p in own[place % min(share, 2, len(own))::share]),
                   key=lambda pair: pair[0] not in last)
    fast = build_cases([p.fast for _, p in pairs], target, folder / "fast")
    slow = build_cases([p.slow for name, p in pairs if name in last], target, folder / "slow",
                       "-O0")
    out = {}
    for seed in (1, 2):
        s = fast.sample(seed)
        twins = slow.run(s.feeds[:len(slow.cases)])
        for (name, p), f, t, w in zip_longest(pairs, s.got, twins, s.want):
            out.setdefault(name, []).append((p.fast, f, t, w))
    return out


def test_every_row_has_cases():
    for target in TARGETS.values():
        for u in target.ukernels:
            assert u.category in CASES, f"no cases for category {u.category} of row {u.name}"
            assert next(iter(CASES[u.category](u, target)), None), f"{u.name} has no case"


def _tests():
    for target, row in ROWS:
        share = _share(target, row)
        if share:
            yield pytest.param(target, row, share, id=f"{target.name}-{row.name}",
                               marks=at_length(target))
        yield pytest.param(target, row, 0, id=f"{target.name}-{row.name}-all",
                           marks=pytest.mark.product)


@pytest.mark.parametrize("target, row, share", [*_tests()])
def test_row_equals_its_twin_and_the_evaluator(ran, target, row, share):
    results = ran(target, row, share)
    assert results
    wrong = []
    for case, fast, twin, want in results:
        if twin is not None:
            wrong += [f"{case.name}: twin: {x}" for x in differences(twin, want, case.tol)]
        wrong += [f"{case.name}: row: {x}" for x in differences(fast, want, case.tol)]
    assert not wrong, "\n".join(wrong)

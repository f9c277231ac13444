"""Every registered operator through the whole product: scheduled, lowered, written as C, compiled,
run, and compared with the numpy evaluator and with an independent executor."""

import os
import subprocess
import sys
import textwrap
from collections import Counter, defaultdict

import numpy as np
import pytest
from harness import INFO, RUNNABLE, Case, build_cases, differences, merged
from operator_cases import (
    BOTH,
    PORTABLE,
    WIDEST,
    cast_cases,
    elementwise_cases,
    own_cases,
    standard_cases,
)

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.frontend.building.registry import OPS
from aotc.oracle.evaluate import evaluate
from aotc.runtime.compile_bundle import build
from aotc.sched import decide, lower

BATCH = 150  # cases that share a bundle
TWICE = 1  # cases of an operator that run on both targets
FURTHER = 3  # every so many of the cases that repeat another in shape or dtype
TOLERANCE = 2e-6  # of the largest magnitude of an output, against the evaluator
TARGETS = {t.name: t for t in (RUNNABLE[0], RUNNABLE[-1])}
# a quantised sum that lies on the border between two steps may be rounded either way
WHOLE_STEP = ("QLinearConv", "QLinearMatMul")


@pytest.fixture(scope="module")
def collected():
    """Cases with what the evaluator says of them: our own, and the standard's of operators that
    have no others."""
    own = own_cases(FURTHER)
    have = {c.op for c in own}
    return [(c, evaluate(c.program, c.feeds))
            for c in (*own, *standard_cases(lambda op: op not in have, portable=2))]


@pytest.fixture(scope="module", params=TARGETS)
def chosen(request, collected):
    """(name of a target, its cases): those for both targets run on both until an operator has
    ``TWICE`` of them, then on one in turns."""
    if len(TARGETS) == 1:
        return request.param, collected
    here, seen, out = WIDEST if request.param != "c" else PORTABLE, Counter(), []
    for c, w in collected:
        seen[c.op] += c.on == BOTH
        turn = BOTH if seen[c.op] <= TWICE else (PORTABLE, WIDEST)[seen[c.op] % 2]
        if (turn if c.on == BOTH else c.on) in (BOTH, here):
            out.append((c, w))
    return request.param, out


@pytest.fixture(scope="module")
def outcomes(chosen, tmp_path_factory):
    """``outcomes(operator) -> {case: list of differences}`` on one target.  Operators that share
    bundles are made when the first of them is asked for: processes that share the operators share
    the work."""
    target, cases = chosen
    return batches(cases, TARGETS[target], tmp_path_factory.mktemp("operators"))


def batches(cases, target, folder):
    """``outcomes`` of these cases on one target, in a folder."""
    shared, known = defaultdict(list), {}
    for case in sorted(cases, key=lambda c: c[0].op):
        shared[case[0].op].append(case)
    parts = [[]]
    for op, own in shared.items():
        if sum(len(shared[o]) for o in parts[-1]) + len(own) > BATCH and parts[-1]:
            parts.append([])
        parts[-1].append(op)

    def get(op):
        for ops in parts:
            if op in ops and op not in known:
                known.update({o: {} for o in ops})
                part = [case for o in ops for case in shared[o]]
                for k in range(0, len(part), BATCH):
                    some = part[k:k + BATCH]
                    for (c, want), got in zip(some, run(some, target, folder)):
                        known[c.op][c.name] = (got if isinstance(got, str)
                                               else faults(c, got, want))
        return known.get(op, {})
    return get


def _schedule(program, target):
    """None, the usual one; on the portable target what connects computes without judging costs."""
    return decide(program, target, "register") if target is RUNNABLE[0] else None


def run(part, target, folder):
    """Outputs of every case; where the batch as a whole cannot be made, its halves are tried, so
    that the message of a single case takes the place of its outputs."""
    name = folder / f"{part[0][0].name}_{len(part)}"
    try:
        built = build_cases([Case(c.name, c.program, _schedule(c.program, target))
                             for c, _ in part], target, name)
        return built.run([c.feeds for c, _ in part])
    except AotcError as err:
        if len(part) == 1:
            return [f"{type(err).__name__}: {err}"]
        middle = len(part) // 2
        return run(part[:middle], target, folder) + run(part[middle:], target, folder)


def faults(case, got, want):
    """Texts that say where outputs differ from the evaluator's and the independent executor's."""
    found = [] if case.op in WHOLE_STEP else differences(got, want, TOLERANCE)
    for (name, g), w in zip(got.items(), case.wanted or ()):
        w = np.asarray(w)
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            found.append(f"{name}: {g.dtype}{g.shape} instead of {w.dtype}{w.shape}")
        elif not np.allclose(g, w, rtol=case.rtol, atol=case.atol, equal_nan=True):
            found.append(f"{name}: {g.ravel()[:4]} instead of {w.ravel()[:4]}")
    return found


OPERATORS = sorted({name for _, name in OPS})
# operators whose inputs or outputs are no tensors of numbers, or are random: {file: operators}
ELSEWHERE = {
    "tests/frontend/test_frontend_sequences.py": "SequenceMap Optional",
    "tests/frontend/test_made_strings.py":
        "StringConcat StringSplit StringNormalizer RegexFullMatch",
    "tests/frontend/test_tokens.py": "Tokenizer",
    "tests/exec/test_random_numbers.py": """RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike Bernoulli Multinomial"""}


@pytest.mark.parametrize("op", OPERATORS)
def test_operator(op, outcomes, collected, repository):
    file = next((f for f, ops in ELSEWHERE.items() if op in ops.split()), None)
    if file is not None:
        assert f'node("{op}"' in (repository / file).read_text()
        return
    found = outcomes(op)  # none where all its cases are for another target
    assert any(c.op == op for c, _ in collected), (
        f"{op} is registered but has no case: add one to operator_tables.py")
    wrong = {name: differ for name, differ in found.items() if differ}
    assert not wrong


def test_enough_cases_run(collected, chosen):
    """Operators that silently refuse a dtype would empty the tables."""
    assert len(collected) > 1100 and len(chosen[1]) > 500


@pytest.mark.product
@pytest.mark.parametrize("target", TARGETS)
def test_every_shape_and_dtype(target, tmp_path):
    """What ``FURTHER`` leaves out above."""
    often = {c.name for c in own_cases(FURTHER)}
    cases = [(c, evaluate(c.program, c.feeds)) for c in own_cases() if c.name not in often
             and c.on in (BOTH, PORTABLE if target == "c" else WIDEST)]
    outcomes = batches(cases, TARGETS[target], tmp_path)
    wrong = {name: differ for op in sorted({c.op for c, _ in cases})
             for name, differ in outcomes(op).items() if differ}
    assert len(cases) > 100 and not wrong


@pytest.mark.product
def test_cases_of_the_standard(tmp_path):
    """Of operators that have other cases too, on the widest target."""
    have = {c.op for c in own_cases()}
    cases = [(c, evaluate(c.program, c.feeds)) for c in standard_cases(have.__contains__)]
    outcomes = batches(cases, RUNNABLE[-1], tmp_path)
    wrong = {name: differ for op in sorted({c.op for c, _ in cases})
             for name, differ in outcomes(op).items() if differ}
    assert len(cases) > 700 and not wrong


CHILD = textwrap.dedent("""
    import sys
    import numpy as np
    from aotc.runtime.loading import load
    feeds = dict(np.load(sys.argv[2]))
    out = load(sys.argv[1]).run(feeds)
    np.savez(sys.argv[3], **out)
""")


@pytest.mark.product
def test_c_of_operators_has_no_undefined_behaviour(tmp_path, repository, monkeypatch):
    """On the ends of every dtype's range, under the address and undefined-behaviour sanitizers."""
    asan = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    if asan.returncode or "/" not in asan.stdout:
        pytest.skip("the C compiler has no address sanitizer")
    chosen = [*elementwise_cases(shapes=1), *cast_cases()]
    assert len(chosen) > 350
    target, folder = TARGETS["c"], tmp_path / "bundle"
    whole, schedule = merged([Case(c.name, c.program) for c in chosen], target)
    write_bundle(render_bundle(lower(whole, schedule, target), schedule, INFO), folder)
    monkeypatch.setenv("CFLAGS", "-O0 -fsanitize=address,undefined,float-cast-overflow "
                                 "-fno-sanitize-recover=all")
    build(folder)
    np.savez(tmp_path / "in.npz", **{f"q{i}_{n}": a for i, c in enumerate(chosen)
                                     for n, a in c.feeds.items()})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, folder, tmp_path / "in.npz", tmp_path / "out.npz"],
        env=dict(os.environ, LD_PRELOAD=asan.stdout.strip(), PYTHONPATH=str(repository),
                 ASAN_OPTIONS="detect_leaks=0"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    got = np.load(tmp_path / "out.npz")
    for i, c in enumerate(chosen):
        outputs = {n: got[f"q{i}_{n}"] for n in c.program.outputs}
        assert not differences(outputs, evaluate(c.program, c.feeds), TOLERANCE), c.name

"""Compiling takes work in proportion to the model: twice the structure, at most 2.3 times the
calls.  Counted, not timed: the same on every machine."""

import cProfile
import gc
import sys
from collections import Counter
from functools import _lru_cache_wrapper

import pytest

from aotc.frontend.read import reader
from aotc.ir.expr import Axis, Const
from aotc.ir.indices import polynomial
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.candidates import partition
from aotc.sched.judge.judge import Judge
from benchmarks.repeated import FAMILIES

MOST = 2.3


def compiled(family, size, how):
    work = Options(FAMILIES[family].model(size), None, "x86-64-v3", family, connect=how,
                   stop_after="plan")
    return lambda: run_pipeline(work)


def forget():
    """Nothing is known of expressions that were seen before, by another test of this process."""
    # not as the collector's objects, which are those made since the test module before ended
    for name, module in list(sys.modules.items()):
        for cached in vars(module).values() if name.startswith("aotc.") else ():
            if isinstance(cached, _lru_cache_wrapper):
                cached.cache_clear()
    gc.collect()


def calls(run):
    """How many functions of Python are called."""
    forget()
    profile = cProfile.Profile(builtins=False)
    profile.runcall(run)
    return sum(entry.callcount for entry in profile.getstats())


def verdicts(monkeypatch, run):
    """How many groups are judged."""
    count, judged = Counter(), Judge._judged

    def counted(self, group):
        count["judged"] += 1
        return judged(self, group)

    monkeypatch.setattr(Judge, "_judged", counted)
    run()
    monkeypatch.undo()
    return count["judged"]


@pytest.mark.parametrize("family, size, how", [
    ("heads", 2, "all"), ("elementwise", 50, "all"), ("fanout", 50, "all"),
    ("tables", 18, "all"), *(
        pytest.param(*p, marks=pytest.mark.product) for p in (
            ("heads", 6, "all"), ("residual", 2, "all"), ("residual", 6, "all"),
            ("split_concat", 64, "all"), ("tables", 35, "all"),
            ("elementwise", 100, "all"), ("fanout", 100, "all"), ("tables", 70, "all")))])
def test_twice_the_structure_takes_twice_the_calls(family, size, how):
    compiled(family, 2, how)()  # what is done once per process
    once, twice = (calls(compiled(family, n, how)) for n in (size, 2 * size))
    assert twice <= MOST * once, f"{twice} calls for {once}"


@pytest.mark.parametrize("family, size", [
    ("products", 5), pytest.param("residual", 5, marks=pytest.mark.product)])
def test_twice_the_structure_takes_twice_the_verdicts(monkeypatch, family, size):
    once, twice = (verdicts(monkeypatch, compiled(family, n, "all")) for n in (size, 2 * size))
    assert once > 0 and twice <= MOST * once, f"{twice} verdicts for {once}"


def test_monomials_keys_are_found_once_per_node(monkeypatch):
    """Sorting terms asks for the text of an atom at every comparison."""
    count, show = Counter(), polynomial.show
    monkeypatch.setattr(polynomial, "show", lambda e: count.update(shown=1) or show(e))
    # names of its own: equal nodes are one object, which may know its key from another test
    a, b = (Axis(f"{n}_of_this_test", Const(7)) for n in "ab")
    atoms = a, b, a // 3, b % 5
    for _ in range(9):
        polynomial._mono(atoms)
    assert count["shown"] == len(atoms)


def test_a_state_of_the_beam_is_a_few_changes_to_the_one_before():
    base = {i: i for i in range(1000)}
    state = partition.Changed(base)
    for i in range(500):
        state = state.changed({i: -i})
        assert len(state.changes) <= partition.FEW
    assert [state[i] for i in (0, 499, 500)] == [0, -499, 500]
    assert dict(state.items()) == {i: -i if i < 500 else i for i in range(1000)}


def test_a_constant_list_of_sizes_may_be_long():
    model = FAMILIES["split_concat"].model(300)
    program = run_pipeline(Options(model, None, "x86-64-v3", "long", stop_after="program")).program
    shape, = (program.shape(o) for o in program.outputs)
    assert [n.value for n in shape] == [4, 1200]


def test_names_that_are_read_are_found_once_per_model(monkeypatch):
    """Not once per initializer."""
    count, found = Counter(), reader.used_names

    def counted(*args):
        count["found"] += 1
        return found(*args)

    monkeypatch.setattr(reader, "used_names", counted)
    for size in (10, 20):
        reader.read_graph(FAMILIES["tables"].model(size))
    assert count["found"] <= 4

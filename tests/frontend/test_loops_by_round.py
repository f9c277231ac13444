"""Loops whose rounds read tensors around them at the place that the round says: regions of as many
rounds as extents, counters and data say, against ONNX Runtime."""

from dataclasses import replace

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, program_of, run, same
from harness import every
from loop_cases import CASES, F, greedy

from aotc.errors import FaultError, UnsupportedError
from aotc.frontend import load_model, read_graph, to_program
from aotc.ir.expr import Guarded, walk
from aotc.ir.program import Loop
from aotc.passes.regions import all_steps

BY_NAME = {c.name: c for c in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_loop_of_any_length(case):
    model = case.model
    program = program_of(model, dims=case.dims or None)
    assert any(isinstance(s, Loop) for s in all_steps(program.steps))
    for seed, call in enumerate(case.calls):
        feeds = case.feeds(call, seed)
        wanted = by_onnxruntime(model, feeds)
        same(run(program, feeds), wanted)
        pinned = {n: call[n] for n in case.extents}
        same(run(program_of(model, dims=pinned or None), feeds), wanted)


# those whose places are checked in each round: nothing but data says how many there are, or rounds
# read the same entries
CHECKED = {"number_that_is_an_input", "number_that_is_an_input_of_rows", "before_first_wraps",
           "in_a_branch", "viterbi", "scattered_rows"}


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in CHECKED], ids=lambda c: c.name)
def test_places_are_proved_by_the_number_of_rounds(case):
    program = program_of(case.model, dims=case.dims)
    assert not [n for s in all_steps(program.steps) if hasattr(s, "body") and hasattr(s, "axes")
                for n in walk(s.body) if isinstance(n, Guarded)]


@pytest.mark.parametrize("name, call", [
    ("number_that_is_an_input", {"r": 10}), ("number_that_is_an_input_of_rows", {"t": 3, "r": 4}),
    ("number_that_is_an_input", {"r": 1 << 62})])
def test_rounds_beyond_the_rows_are_a_fault(name, call):
    case = BY_NAME[name]
    program = program_of(case.model, dims={"t": (1, 8)} if case.extents else None)
    with pytest.raises(FaultError, match="index must lie inside the table"):
        run(program, case.feeds(call))


def test_rows_of_another_tensor_must_be_enough():
    case = BY_NAME["other_tensor"]
    program = program_of(case.model, dims={"t": (1, 8), "u": (1, 8)})
    with pytest.raises((ValueError, FaultError)):
        run(program, case.feeds({"t": 5, "u": 4}))


def test_conditions_on_counters_are_numbers_of_rounds():
    for name in ("while_less", "while_own_counter", "while_down", "counter_in_floats",
                 "until_equal", "map"):
        program = program_of(BY_NAME[name].model, dims=None)
        loop, = (s for s in program.steps if isinstance(s, Loop))
        assert str(loop.trip) == "t" and not (loop.count or loop.going or loop.again or loop.ran)
        assert len(loop.states) == (name != "map")  # counters are arithmetic of the round


@pytest.mark.parametrize("seed", every(range(6), 3))
def test_states_that_grow_until_data_end_it(seed):
    """The caller is told how long they became."""
    for rounds, bounds in ((20, None), (3, None), (None, {"Loop_y": 40})):
        model = greedy(rounds, seed)
        program = to_program(read_graph(load_model(model), bounds=bounds))
        for t in (1, 4):
            feeds = {"x": np.full((1, t), 2), "h0": np.ones((1, t, 2), F)}
            try:
                wanted = by_onnxruntime(model, feeds) if rounds else by_onnxruntime(
                    greedy(40 - t, seed), feeds)
            except AssertionError:
                continue
            if not rounds and wanted[0].shape[1] == 40:
                continue  # it never ends
            tokens, sums, *counts = run(program, feeds)
            n = wanted[0].shape[1]
            assert set(map(int, counts)) == {n}
            same([tokens[:, :n], sums[:, :n]], wanted)
            assert not tokens[:, n:].any() and not sums[:, n:].any()


def test_states_that_grow_need_a_bound():
    with pytest.raises(UnsupportedError, match="each round makes longer by 1.*--bound 'Loop_y'"):
        program_of(greedy(None))


def test_a_refusal_says_what_the_body_does():
    case = BY_NAME["rows"]
    grows = replace(case, text=case.text.replace(
        "a = Add (s, xi)\n s2 = Tanh (a)\n row = Mul (s2, xi)",
        "s2 = Concat <axis = 0> (s, s)\n row = Tanh (xi)").replace(
            "float[2,4] s2", "float[?,4] s2"))
    with pytest.raises(UnsupportedError, match=r"changes f32\[2, 4\] into f32\[4, 4\]; .*keep what "
                       "a round makes of one shape"):
        program_of(grows.model)
    odd = replace(case, text=case.text.replace(
        "row = Mul (s2, xi)", "at = Unsqueeze (i, k0)\n row = Slice (s2, k0, at, k0)"))
    with pytest.raises(UnsupportedError, match="Slice_row makes .*of which the round decides"):
        program_of(odd.model)
    assert np.isfinite(case.feeds({"t": 2})["x"]).all()

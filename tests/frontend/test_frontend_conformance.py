"""The ONNX standard's own node cases, for every operator aotc has."""

from functools import cache

import numpy as np
import pytest
from frontend_cases import run
from standard_cases import LIMITS, WRONG, array_of, cases, convert

from aotc.errors import UnsupportedError
from aotc.frontend.building.registry import OPS
from aotc.oracle.check_program import check_program


@cache
def faults_of(name):
    """What is wrong with one case; None if it is beyond a documented limit."""
    case = next(c for group in cases().values() for c in group if c.name == name)
    inputs, wanted = (list(map(array_of, arrays)) for arrays in case.data_sets[0])
    try:
        program = convert(case.model, inputs)
    except UnsupportedError as err:
        assert any(limit in str(err) for limit in LIMITS), f"{case.name}: {err}"
        return None
    faults = check_program(program)
    feeds = {i.name: a for i, a in zip(case.model.graph.input, inputs)}
    for got, want in zip(run(program, feeds), wanted, strict=True):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            faults.append(f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}")
        elif not np.allclose(got, want, rtol=max(case.rtol, 1e-4), atol=max(case.atol, 1e-5),
                             equal_nan=True):
            faults.append(f"values differ: {got.ravel()[:4]} instead of {want.ravel()[:4]}")
    return faults


OPERATORS = sorted(name for domain, name in OPS if not domain)


@pytest.mark.parametrize("op", OPERATORS)
def test_cases_of_the_standard(op):
    if op not in cases():
        pytest.skip("the standard has no case for it")
    results = {c.name: faults_of(c.name) for c in cases()[op] if c.name not in WRONG}
    wrong = {name: faults for name, faults in results.items() if faults}
    assert not wrong
    passed = [name for name, faults in results.items() if faults == []]
    assert passed, f"all {len(results)} cases are beyond aotc's limits"


def test_most_cases_of_supported_operators_pass():
    """Counts what the tests above have run: refusals must not creep in unnoticed."""
    done = [faults_of(c.name) for group in cases().values() for c in group if c.name not in WRONG]
    assert sum(f == [] for f in done) > 850

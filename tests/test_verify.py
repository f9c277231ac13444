"""When two arrays count as equal."""

import numpy as np
import pytest

from aotc.verify import Match, compare, read_inputs, summary
from aotc.errors import AotcError

F32 = np.float32


def test_the_bound_is_a_share_of_the_range():
    want = np.linspace(100, 110, 11).astype(F32)
    near, far = want.copy(), want.copy()
    near[3] += 0.0009
    far[3] += 0.0012
    assert compare("y", near, want).ok and not compare("y", far, want).ok
    assert compare("y", far, want).error == pytest.approx(0.0012, rel=0.01)


def test_a_flat_output_is_judged_by_its_magnitude():
    want = np.full(5, 3, F32)
    assert compare("y", want + F32(1e-6), want).ok
    assert not compare("y", want + F32(1e-4), want).ok
    zero = np.zeros(5, F32)
    assert compare("y", zero, zero).ok and not compare("y", zero + F32(1e-9), zero).ok


def test_integers_and_bools_must_be_equal():
    want = np.array([2**62, 2**62 + 1])
    assert compare("y", want, want).ok
    assert not compare("y", want + 1, want).ok
    assert not compare("y", np.array([True, False]), np.array([True, True])).ok


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_agree(bad):
    want = np.array([1, bad, 2], F32)
    assert compare("y", want, want).ok
    assert not compare("y", np.array([1, 5, 2], F32), want).ok
    assert not compare("y", want, np.array([1, 5, 2], F32)).ok


def test_shapes_and_dtypes_must_be_equal():
    want = np.zeros((2, 3), F32)
    assert "float64" in compare("y", want.astype(float), want).fault
    assert "[3, 2]" in compare("y", want.T, want).fault
    assert compare("y", want[:0], want[:0]).ok


def test_summary_shows_the_worst_run_of_each_output():
    rows = [("a", Match("y", 1e-6, 1e-5, 1e-4)), ("b", Match("y", 1e-3, 1e-2, 1e-4)),
            ("a", Match("z", 0.0, 0.0, 0.0))]
    first, second = summary(rows)
    assert "y: MISMATCH" in first and "worst: b" in first and "[2 runs" in first
    assert "z: ok" in second


def test_inputs_must_be_an_npz(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones(3))
    assert list(read_inputs(path).feeds) == ["x"]
    path.write_text("no")
    with pytest.raises(AotcError, match="npz"):
        read_inputs(path)

"""What the random graphs found: one small model per class."""


import numpy as np
import pytest
from onnx_graphs import random_graph
from run_bytes import edited
from written_graphs import run


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    monkeypatch.setenv("CFLAGS", "-Og -Wall -Wextra -Werror")


def test_integers_at_the_ends_of_their_type(tmp_path):
    """Comparisons that C knows the answer of, and | of sums, are no warnings."""
    u, s = np.array([0, 7, 255], np.uint8), np.array([-128, 7, 127], np.int8)
    n = np.array([-3, 5, 1 << 40])
    got, want = run("""
        a = LessOrEqual(u; top)
        b = Greater(u; top)
        c = GreaterOrEqual(s; low)
        d = Sub(u; u)
        e = LessOrEqual(d; u)
        f = BitwiseXor(s; s)
        g = Less(s; f)
        h = Sub(n; three)
        i = Mul(n; three)
        j = BitwiseOr(h; i)
        """, {"u": u, "s": s, "n": n}, tmp_path / "b",
        {"top": np.uint8(255), "low": np.int8(-128), "three": np.int64(3)})
    for x, y in zip(got, want):
        np.testing.assert_array_equal(x, y)


def test_defaults_of_attributes_are_f32_and_the_mean_of_nothing_is_nan(tmp_path):
    x = np.linspace(-2, 2, 9)
    got, want = run("""
        a = Selu(x)
        b = LeakyRelu(x)
        c = ReduceMean(empty)
        """, {"x": x, "empty": np.zeros((0, 3), "f4")}, tmp_path / "b")
    np.testing.assert_allclose(got[0], want[0], rtol=1e-14)
    np.testing.assert_array_equal(got[1], want[1])
    assert np.isnan(got[2]).all() and np.isnan(want[2]).all()


def test_an_index_from_data_into_one_element(tmp_path):
    """The gathered tensor and what reads it elementwise share loops; where they meet, the index
    along the axis of one element is 0, whatever the data says."""
    x = np.random.default_rng(0).normal(size=(16, 1)).astype("f4")
    i = np.array([0, -1] * 8).reshape(16, 1)
    got, want = run("""
        a = Reshape(x; shape)
        b = Tanh(a)
        c = GatherElements(a; i; axis=1)
        d = Trilu(c; below)
        """, {"x": x.reshape(4, 4), "i": i}, tmp_path / "b",
        {"shape": np.array([16, 1]), "below": np.int64(-1)}, also=("a",))
    for y, z in zip(got, want):
        np.testing.assert_allclose(y, z, atol=1e-6)


def test_a_bijection_in_two_steps(tmp_path):
    """A tensor, its transpose cut up, and that one's reshape are three outputs: each step is a
    bijection, but whether all of it is one is not seen."""
    x = np.random.default_rng(1).normal(size=(8, 8)).astype("f4")
    got, want = run("""
        a = QuantizeLinear(x; scale; zero)
        b = DequantizeLinear(a; scale; zero)
        c = Transpose(a; perm=[1,0])
        d = Reshape(c; five)
        e = Reshape(d; two)
        """, {"x": x}, tmp_path / "b", {
            "scale": np.float32(0.0625), "zero": np.uint8(9), "five": np.array([8, 4, 1, 1, 2]),
            "two": np.array([64, 1])}, also=("d",))
    for y, z in zip(got, want):
        np.testing.assert_array_equal(y, z)


def test_rows_of_which_a_part_is_read_and_all_is_stored(tmp_path):
    x = np.random.default_rng(2).normal(size=(2, 3, 7, 7)).astype("f4")
    got, want = run("""
        a = InstanceNormalization(x; scale; bias)
        b = Abs(a)
        c d = Split(b; parts; axis=2)
        """, {"x": x}, tmp_path / "b", {"scale": np.ones(3, "f4"), "bias": np.ones(3, "f4"),
                                        "parts": np.array([1, 6])})
    for y, z in zip(got, want):
        np.testing.assert_allclose(y, z, atol=1e-5)


def test_mutations_take_text_that_is_none():
    import random
    data = random_graph(3).model.SerializeToString()
    at = data.index(b"t")
    broken = data[:at] + b"\xcd\xff" + data[at + 2:]
    for seed in range(60):
        assert isinstance(edited(random.Random(seed), broken), bytes)
    assert isinstance(edited(random.Random(0), b""), bytes)


def test_tiles_of_a_tensor_without_elements(tmp_path):
    """Work items along a dynamic axis decode a range that no loop uses."""
    got, want = run("""
        y = Slice(x; starts; ends; axes; steps)
        """, {"x": np.zeros((1, 3, 4), "u4")}, tmp_path / "b", {
            "starts": np.array([-1, 0]), "ends": np.array([-2, -3]), "axes": np.array([0, 1]),
            "steps": np.array([2, -2])}, shapes={"x": (1, "n", 4)}, optimize="size")
    assert got[0].shape == want[0].shape == (0, 0, 4)


def test_a_piece_of_a_tensor_that_is_stored_whole(tmp_path):
    """Loops over the piece, which has as many steps as the first tiles, would leave the rest."""
    x = np.random.default_rng(3).normal(size=(4, 5)).astype("f4")
    got, want = run("""
        c d = Split(x; parts; axis=1)
        e = Gather(d; i; axis=1)
        a b = Split(e; pieces; axis=0)
        y = Mish(a)
        """, {"x": x, "i": np.array(1)}, tmp_path / "b", {
            "parts": np.array([2, 3]), "pieces": np.array([3, 1])})
    for y, z in zip(got, want):
        np.testing.assert_allclose(y, z, atol=1e-6)

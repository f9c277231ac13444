"""Small models whose decisions refused each other: one per rule."""

import numpy as np
import pytest
from harness import every
from written_graphs import run, written

import aotc

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    monkeypatch.setenv("CFLAGS", "-Og -Wall -Wextra -Werror")


def normal(*shape):
    return RNG.standard_normal(shape).astype("f4")


def compare(found, rtol=1e-4, atol=1e-5):
    got, want = found
    for y, z in zip(got, want, strict=True):
        assert y.shape == z.shape and y.dtype == z.dtype
        np.testing.assert_allclose(y, z, rtol=rtol, atol=atol)


def test_groups_that_are_left_at_an_earlier_compute_than_they_are_entered_at(tmp_path):
    """Merged with the product, what the pool reads too would wait for what waits for it."""
    compare(run("""
        m = Mul(p; c)
        r = ReduceMax(m; axes; keepdims=0)
        n = Neg(v)
        y = MatMul(r; n)
        a = Add(q; n)
        g = AveragePool(a; kernel_shape=[2, 2]; pads=[1, 1, 1, 1]; strides=[3, 3])
        z = Div(m; g)
        """, {"p": normal(1, 53, 9, 1), "c": np.float32(0.7), "q": normal(1, 1, 2, 1) + 4,
              "v": normal(53, 1, 1)}, tmp_path / "b", {"axes": np.array([1])}, also=("y",)))


@pytest.mark.parametrize("text", every(["a; c; x; x", "x; x; a; c", "x; a; c; x"], 3))
def test_a_tile_that_reads_nothing_of_a_stage(tmp_path, text):
    """Its box is empty: it begins behind the last point, or ends before the first."""
    compare(run(f"""
        a = MatMul(x; w)
        c = Relu(a)
        y = Concat({text}; axis=0)
        """, {"x": normal(41, 5)}, tmp_path / "b", {"w": normal(5, 5)}))


def test_a_mask_that_is_used_twice(tmp_path):
    """Of one row, it is one place whether it is read at row 0 or at the row of the loops."""
    a, b = normal(1, 8, 1), normal(1, 8, 1)
    a[0, ::3], b[0, ::2] = np.nan, np.nan
    compare(run("""
        c = Concat(a; b; axis=2)
        m = IsNaN(c)
        p = Where(m; zero; c)
        q = MatMul(p; w)
        r = Relu(q)
        s = MatMul(r; v)
        first = Slice(m; low; high; last)
        y = Where(first; zero; s)
        """, {"a": a, "b": b}, tmp_path / "b", {
            "zero": np.float32(0), "w": normal(2, 64), "v": normal(64, 64), "low": np.array([0]),
            "high": np.array([1]), "last": np.array([2])},
        shapes={"a": ("n", 8, 1), "b": ("n", 8, 1)}))


def test_a_compute_that_nobody_reads_at_some_extents(tmp_path):
    """A diagonal of one element hides all there is: what it hides is gone from that call."""
    n, k = 3, 2
    compare(run("""
        t = Transpose(key; perm=[0, 2, 1])
        s = MatMul(query; t)
        u = Div(s; scale)
        size = Shape(key; start=1; end=2)
        rows = Squeeze(size)
        i = Range(zero; rows; one)
        column = Unsqueeze(i; last)
        diagonal = Equal(column; i)
        added = Add(bias; nothing)
        hidden = Where(mask; low; added)
        both = Where(diagonal; low; hidden)
        y = Add(u; both)
        """, {"query": normal(k, n, 32), "key": normal(k, n, 32), "bias": normal(k, 1, n),
              "mask": np.array([[[True, False, True]]] * k)}, tmp_path / "b", {
            "scale": np.float32(5.7), "zero": np.array(0), "one": np.array(1),
            "last": np.array([1]), "low": np.float32(-1e4), "nothing": normal(1, n, 1)[:, :1] * 0},
        shapes={"query": ("K", "D", 32), "key": ("K", "D", 32), "bias": ("K", 1, "D"),
                "mask": ("K", 1, "D")}))


def test_windows_of_a_signal_whose_mirror_image_is_one_sample_at_some_extents(tmp_path):
    """Frames of one sample are all equal: what multiplies them is no product at that extent."""
    x = normal(2, 161)
    compare(run("""
        wide = Pad(x; pads; mode="reflect")
        one = Unsqueeze(wide; end)
        frames = STFT(one; step; window; length; onesided=1)
        re im = Split(frames; axis=3; num_outputs=2)
        r2 = Mul(re; re)
        i2 = Mul(im; im)
        power = Add(r2; i2)
        flat = Squeeze(power; last)
        y = MatMul(flat; mel)
        z = Log(y)
        """, {"x": x}, tmp_path / "b", {
            "pads": np.array([0, 32, 0, 32]), "step": np.array(16), "last": np.array([3]),
            "end": np.array([2]),
            "window": np.hanning(64).astype("f4"), "length": np.array(64),
            "mel": np.abs(normal(33, 20))}, shapes={"x": ("batch", "samples")}), 1e-3)


def test_quotients_of_extents_below_zero(tmp_path):
    """They truncate, as numbers and as the ends of a crop."""
    text = """
        size = Shape(x)
        rows columns = Split(size; axis=0; num_outputs=2)
        left = Sub(sixteen; rows)
        top = Div(left; two)
        bottom = Add(top; rows)
        crop = Slice(table; top; bottom)
        back = Div(left; three)
        over = Sub(rows; five)
        under = Sub(columns; four)
        any = Div(over; under)
        rest = Mod(over; three; fmod=1)
        """
    x = {n: normal(*n) for n in ((3, 4), (16, 1), (7, 9), (1, 6), (5, 3))}
    constants = {"sixteen": np.array([16]), "two": np.array([2]), "three": np.array([-3]),
                 "five": np.array([5]), "four": np.array([4]), "table": normal(16, 4)}
    outputs = "crop", "back", "any", "rest"
    model, _ = written(text, {"x": x[3, 4]}, constants, outputs, {"x": ("rows", "columns")})
    net = aotc.compile(model, tmp_path / "b", target="native").load()
    for (rows, columns), a in x.items():
        top, over = int((16 - rows) / 2), rows - 5
        got = net.run({"x": a})
        np.testing.assert_array_equal(got["crop"], constants["table"][top:top + rows])
        assert got["back"] == int((16 - rows) / -3)
        assert got["any"] == (int(over / (columns - 4)) if columns != 4 else 0)
        assert got["rest"] == np.fmod(over, -3)

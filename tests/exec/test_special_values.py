"""NaN, infinities and least integers in operators that compare, against plain numpy."""

import numpy as np
import onnxruntime
import pytest
from frontend_cases import helper, model_of, program_of, run
from harness import RUNNABLE

import aotc

NAN, INF = np.nan, np.inf
ROWS = [[2, NAN, 7, 4, 1, 7], [NAN, 2, 7, 4, 1, NAN], [2, 4, 7, 1, 7, NAN], [NAN] * 6,
        [-INF] * 6, [INF, -INF, INF, 0, 1, 2], [-INF, NAN, -INF, -INF, INF, INF],
        [1, 2, 2, 0, 0, 2]]
POOLS = (dict(kernel_shape=[2, 2], pads=[1, 1, 0, 0], strides=[2, 2]),
         dict(kernel_shape=[3, 2], pads=[1, 1, 1, 0], strides=[1, 2], dilations=[1, 2]),
         dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=1),
         dict(kernel_shape=[2, 3], pads=[0, 2, 1, 1], storage_order=1))


def least(dtype):
    return -INF if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min


def maps():
    """{name: a map of 2 channels} with whole windows of the least value, NaN and infinities."""
    rng = np.random.default_rng(3)
    f32 = rng.integers(-3, 4, (1, 2, 7, 9)).astype(np.float32)
    f32[0, 0, :4, :5] = -INF
    f32[0, 0, 5, 6], f32[0, 1, 2, 2:5], f32[0, 1, 6, 8], f32[0, 1, 0, 0] = NAN, NAN, INF, NAN
    i8 = rng.integers(-128, 128, (1, 2, 7, 9)).astype(np.int8)
    i8[0, 0, :5, :5] = -128
    return {"f32": f32, "f16": f32.astype(np.float16), "f64": f32.astype(np.float64), "i8": i8,
            "u8": np.where(i8 < 100, 0, i8).astype(np.uint8)}


def pooled(x, kernel_shape, pads, strides=(1, 1), dilations=(1, 1), ceil_mode=0, storage_order=0):
    """(largest elements, their flat places) of every window; a NaN is larger than all."""
    size = x.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations)]
    room = [n + p + q - r for n, p, q, r in zip(size, pads[:2], pads[2:], reach)]
    out = [-(-r // s) + 1 if ceil_mode else r // s + 1 for r, s in zip(room, strides)]
    top = np.empty(x.shape[:2] + tuple(out), x.dtype)
    at = np.empty(top.shape, np.int64)
    for n, c, i, j in np.ndindex(*top.shape):
        rows, columns = ([v for v in (o * s - p + k * d for k in range(count)) if 0 <= v < extent]
                         for o, s, p, count, d, extent in zip(
                             (i, j), strides, pads, kernel_shape, dilations, size))
        window = x[n, c][np.ix_(rows, columns)]
        best = int(np.argmax(window))
        h, w = rows[best // len(columns)], columns[best % len(columns)]
        top[n, c, i, j] = x[n, c, h, w]
        place = w * size[0] + h if storage_order else h * size[1] + w
        at[n, c, i, j] = (n * x.shape[1] + c) * size[0] * size[1] + place
    return top, at


def best_places(x, op, last):
    """Along the last axis: a NaN that comes first is the best, later ones are passed over."""
    out = np.zeros(x.shape[:-1], np.int64)
    for at in np.ndindex(*out.shape):
        best = 0
        for k, v in enumerate(x[at]):
            b = x[at][best]
            if (v > b, v < b)[op == "ArgMin"] or last and v == b:
                best = k
        out[at] = best
    return out


def special_model():
    """(model, feeds, {output: the right values})."""
    rows = np.array(ROWS, np.float32)
    feeds = {"rows": rows, "columns": np.ascontiguousarray(rows.T), "half": rows.astype(np.float16),
             "zeros": np.zeros((3, 5), np.float32)} | maps()
    nodes, right = [], {}

    def add(op, inputs, wanted, **attrs):
        names = [f"y{len(right) + k}" for k in range(len(wanted))]
        nodes.append(helper.make_node(op, inputs, names, **attrs))
        right.update(zip(names, wanted))

    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            want = best_places(rows, op, last)
            for name, axis in (("rows", 1), ("half", 1), ("columns", 0)):
                add(op, [name], [want], axis=axis, keepdims=0, select_last_index=last)
    for k, attrs in enumerate(POOLS):
        for name, x in maps().items():
            if k and name in ("f16", "f64", "u8"):
                continue
            top, at = pooled(x, **attrs)
            add("MaxPool", [name], [top, at], **attrs)
            if x.dtype != np.float64:
                add("MaxPool", [name], [top], **{k: v for k, v in attrs.items()
                                                 if k != "storage_order"})
    first = np.where(np.isnan(rows).any(1), np.isnan(rows).argmax(1), best_places(rows, "", 0))
    add("Hardmax", ["rows"], [np.eye(6, dtype=np.float32)[first]])
    with np.errstate(all="ignore"):
        total = np.logaddexp.reduce(rows.astype(np.float64), axis=1).astype(np.float32)
    add("ReduceLogSumExp", ["rows"], [total], axes=[1], keepdims=0)
    add("ReduceLogSumExp", ["columns"], [total], axes=[0], keepdims=0)
    nodes.append(helper.make_node("Constant", [], ["nan"], value_float=np.nan))
    for op, inputs in (("Min", ["rows", "nan"]), ("Max", ["nan", "rows"]),
                       ("Clip", ["rows", "nan"]), ("Clip", ["rows", "", "nan"])):
        add(op, inputs, [np.full_like(rows, np.nan)])
    add("DynamicQuantizeLinear", ["zeros"], [np.zeros((3, 5), np.uint8), np.float32(1),
                                             np.uint8(0)])
    model = model_of(nodes, {n: (a.dtype, a.shape) for n, a in feeds.items()}, list(right),
                     opset=13)
    return model, feeds, right


def judge(got, right):
    for name, wanted in right.items():
        wanted = np.asarray(wanted)
        assert (got[name].dtype, got[name].shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("target", [pytest.param(RUNNABLE[0], marks=pytest.mark.product),
                                    RUNNABLE[-1]], ids=lambda t: t.name)
def test_compiled(target, tmp_path):
    model, feeds, right = special_model()
    judge(aotc.compile(model, out=tmp_path / "b", target=target.name).load().run(feeds), right)


def test_evaluated():
    model, feeds, right = special_model()
    judge(dict(zip(right, run(program_of(model), feeds))), right)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_places_are_those_of_onnxruntime(op, last):
    rows = np.array(ROWS, np.float32)
    node = helper.make_node(op, ["x"], ["y"], axis=1, keepdims=0, select_last_index=last)
    model = model_of([node], {"x": ("f4", rows.shape)}, ["y"])
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": rows})[0], best_places(rows, op, last))


def test_a_convolution_keeps_infinities_in_place_and_digits_of_small_outputs(tmp_path):
    """A Winograd form of what the caller gives would spread both over a tile."""
    rng = np.random.default_rng(11)
    w = (rng.standard_normal((32, 32, 3, 3)) / 17).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    model = model_of([node], {"x": ("f4", (1, 32, 24, 24))}, ["y"], {"w": w})
    bundle = aotc.compile(model, out=tmp_path / "b").load()

    def direct(x):
        x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        return sum(np.einsum("nchw,oc->nohw", x[:, :, p:p + 24, q:q + 24], w[:, :, p, q])
                   for p in range(3) for q in range(3))
    x = rng.standard_normal((1, 32, 24, 24)).astype(np.float32)
    x[0, 5, 9, 10], x[0, 5, 20, 3] = INF, NAN
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(bundle.run({"x": x})["y"], direct(x), rtol=1e-3, atol=1e-5)
    x = (rng.standard_normal((1, 32, 24, 24)) * np.logspace(4.5, -4.5, 24)).astype(np.float32)
    got, want = bundle.run({"x": x})["y"], direct(x)
    assert np.abs(got - want).max(axis=(0, 1, 2)).max() > 0
    assert (np.abs(got - want) <= 1e-3 * np.abs(want).max(axis=(0, 1, 2))).all()

"""Operators that fold, order, scan and scatter, each on tensors of some 10^5 elements: one node a
case, of which nothing is run, only how its work is given to threads."""

import numpy as np
from frontend_cases import NodeCase, rand

MS = {"domain": "com.microsoft"}


def ints(*values):
    return np.array(values, np.int64)


def _below(n, *shape, dtype=np.int64):
    return np.random.default_rng(0).integers(0, n, shape).astype(dtype)


def _bytes(*shape):
    return _below(256, *shape, dtype=np.uint8)


def _signed(*shape):
    return (_below(255, *shape) - 127).astype(np.int8)


def _f32(value):
    return np.float32(value)


ROWS, WIDE, IMAGE = rand(64, 50000), rand(3, 400_000), rand(2, 16, 96, 96)
REDUCED = """L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare""".split()
QUANTISED = [_f32(0.02), np.uint8(128)]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _recurrent(op, columns=256, hidden=256, steps=3):
    g = GATES[op]
    weights = [rand(1, g * hidden, n) for n in (columns, hidden)]
    return op, [rand(steps, 4, columns), *weights], {
        "attrs": dict(hidden_size=hidden), "consts": (1, 2)}


def _boxes(batches, classes, n, most):
    return [rand(batches, n, 4), rand(batches, classes, n), ints(most), _f32([0.5]), _f32([0.1])]


# Tables of name -> (operator, arrays, further fields of a NodeCase).

def _folds():
    """Reductions, orders and scans."""
    out = {}
    for op in REDUCED:
        for where, axes in {"rows": (1,), "columns": (0,), "all": (0, 1)}.items():
            out[f"Reduce{op}_{where}"] = f"Reduce{op}", [ROWS, ints(*axes)], {
                "attrs": dict(keepdims=0), "consts": (1,)}
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1):
            out[f"{op}_{axis}"] = op, [ROWS], {"attrs": dict(axis=axis)}
        out[f"{op}_i32"] = op, [_below(99, 4, 100_000, dtype=np.int32)], {"attrs": dict(axis=1)}
        out[f"{op}_f16"] = op, [ROWS[:8].astype(np.float16)], {"attrs": dict(axis=1)}
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1):
            out[f"{op}_{axis}"] = op, [ROWS], {"attrs": dict(axis=axis)}
    for op in ("CumSum", "CumProd"):
        for axis in (0, 1):
            out[f"{op}_{axis}"] = op, [ROWS, np.int64(axis)], {
                "consts": (1,), "opset": 26 if op == "CumProd" else 18}
        out[f"{op}_reverse"] = op, [WIDE, np.int64(1)], {
            "attrs": dict(reverse=1, exclusive=1), "consts": (1,),
            "opset": 26 if op == "CumProd" else 18}
    for k in (1, 10, 300, 5000):
        out[f"TopK_{k}"] = "TopK", [ROWS, ints(k)], {"consts": (1,), "outputs": 2}
    out["TopK_smallest"] = "TopK", [ROWS, ints(10)], {
        "attrs": dict(largest=0, axis=0), "consts": (1,), "outputs": 2}
    return out


def _norms_and_windows():
    """Normalisations, pooling, local responses."""
    out = {}
    out["LayerNormalization"] = "LayerNormalization", [ROWS, rand(50000), rand(50000)], {}
    out["RMSNormalization"] = "RMSNormalization", [ROWS, rand(50000)], {"opset": 23}
    out["InstanceNormalization"] = "InstanceNormalization", [IMAGE, rand(16), rand(16)], {}
    out["GroupNormalization"] = "GroupNormalization", [IMAGE, rand(16), rand(16)], {
        "attrs": dict(num_groups=4), "opset": 21}
    out["MeanVarianceNormalization"] = "MeanVarianceNormalization", [IMAGE], {}
    out["LpNormalization"] = "LpNormalization", [ROWS], {}
    out["LRN"] = "LRN", [rand(2, 512, 32, 32)], {"attrs": dict(size=401)}
    for op in ("AveragePool", "MaxPool"):
        out[f"{op}_window"] = op, [IMAGE], {"attrs": dict(kernel_shape=[33, 33])}
        out[f"{op}_wide"] = op, [rand(1, 8, 256, 256)], {
            "attrs": dict(kernel_shape=[128, 128], strides=[128, 128])}
    out["LpPool"] = "LpPool", [IMAGE], {"attrs": dict(kernel_shape=[33, 33])}
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        out[op] = op, [IMAGE], {}
    out["MaxPool_places"] = "MaxPool", [IMAGE], {
        "attrs": dict(kernel_shape=[33, 33]), "outputs": 2}
    return out


def _products():
    """Products of any dtype and shape, convolutions, recurrent layers."""
    out = {}
    a, b, c = rand(64, 256), rand(256, 256), rand(256, 64)
    out["Einsum_three"] = "Einsum", [a, b, c], {"attrs": dict(equation="ij,jk,kl->il")}
    out["Einsum_bilinear"] = "Einsum", [rand(32, 128), rand(64, 128, 128), rand(32, 128)], {
        "attrs": dict(equation="bi,oij,bj->bo")}
    out["Einsum_scaled"] = "Einsum", [rand(8, 64, 512), rand(512), rand(8, 64, 512)], {
        "attrs": dict(equation="bik,k,bjk->bij")}
    out["Einsum_trace"] = "Einsum", [rand(1000, 1000), rand(1000, 1000)], {
        "attrs": dict(equation="ij,ji->")}
    out["Conv_deep"] = "Conv", [rand(1, 512, 14, 14), rand(512, 512, 3, 3)], {
        "attrs": dict(pads=[1, 1, 1, 1]), "consts": (1,)}
    out["Conv_grouped"] = "Conv", [rand(1, 512, 14, 14), rand(512, 64, 3, 3)], {
        "attrs": dict(pads=[1, 1, 1, 1], group=8), "consts": (1,)}
    out["Conv_depthwise_large"] = "Conv", [rand(1, 64, 48, 48), rand(64, 1, 31, 31)], {
        "attrs": dict(pads=[15] * 4, group=64), "consts": (1,)}
    out["Conv_f64"] = "Conv", [rand(1, 64, 14, 14).astype(np.float64),
                               rand(64, 64, 3, 3).astype(np.float64)], {"consts": (1,)}
    out["ConvTranspose_grouped"] = "ConvTranspose", [rand(1, 256, 14, 14), rand(256, 32, 4, 4)], {
        "attrs": dict(strides=[2, 2], group=8), "consts": (1,)}
    out["ConvTranspose"] = "ConvTranspose", [rand(1, 256, 14, 14), rand(256, 64, 4, 4)], {
        "attrs": dict(strides=[2, 2]), "consts": (1,)}
    out["DeformConv"] = "DeformConv", [
        rand(1, 64, 24, 24), rand(64, 64, 3, 3), rand(1, 18, 22, 22)], {"opset": 19}
    out["Conv_data_weights"] = "Conv", [rand(1, 64, 28, 28), rand(64, 64, 3, 3)], {}
    for dtype in (np.float64, np.int32, np.int64):
        out[f"MatMul_{np.dtype(dtype).name}"] = "MatMul", [
            _below(9, 64, 512).astype(dtype), _below(9, 512, 96).astype(dtype)], {}
    out["MatMul_f64_row"] = "MatMul", [rand(1, 4096).astype(np.float64),
                                       rand(4096, 256).astype(np.float64)], {}
    out["Gemm_f64"] = "Gemm", [rand(96, 512).astype(np.float64)] * 2, {"attrs": dict(transB=1)}
    out["Det"] = "Det", [rand(4, 64, 64)], {}
    out["MatMulInteger"] = "MatMulInteger", [_bytes(64, 1024), _signed(1024, 256)], {"consts": (1,)}
    out["MatMulInteger_row"] = "MatMulInteger", [_bytes(1, 4096), _signed(4096, 512)], {
        "consts": (1,)}
    out["ConvInteger"] = "ConvInteger", [_bytes(1, 128, 14, 14), _signed(128, 128, 3, 3),
                                         np.uint8(128)], {"consts": (1, 2)}
    out["QLinearMatMul"] = "QLinearMatMul", [
        _bytes(64, 1024), *QUANTISED, _bytes(1024, 256), *QUANTISED, *QUANTISED], {
        "consts": tuple(range(1, 8))}
    out["QLinearConv"] = "QLinearConv", [
        _bytes(1, 128, 14, 14), *QUANTISED, _bytes(128, 128, 3, 3), *QUANTISED, *QUANTISED], {
        "consts": tuple(range(1, 8))}
    out["DynamicQuantizeLinear"] = "DynamicQuantizeLinear", [ROWS[:8]], {"outputs": 3}
    for bits in (4, 8):
        for m in (1, 16):
            k, n = 2048, 512
            out[f"MatMulNBits_{bits}_{m}"] = "MatMulNBits", [
                rand(m, k), _bytes(n, k // 32, 4 * bits), rand(n * (k // 32))], {
                "attrs": dict(MS, K=k, N=n, bits=bits, block_size=32), "consts": (1, 2)}
    for op in GATES:
        out[op] = _recurrent(op)
        out[f"{op}_wide"] = _recurrent(op, 1024, 1024, 40)
    return out


def _images():
    """Images that are resized or sampled, boxes."""
    out = {}
    for mode in ("nearest", "linear", "cubic"):
        out[f"Resize_{mode}"] = "Resize", [IMAGE, None, None, ints(2, 16, 200, 200)], {
            "attrs": dict(mode=mode), "consts": (3,)}
    for mode in ("linear", "cubic"):
        out[f"Resize_{mode}_small"] = "Resize", [rand(1, 3, 512, 512), None, None,
                                                 ints(1, 3, 7, 7)], {
            "attrs": dict(mode=mode, antialias=1), "consts": (3,)}
    for mode in ("bilinear", "nearest", "bicubic"):
        out[f"GridSample_{mode}"] = "GridSample", [IMAGE, rand(2, 96, 96, 2)], {
            "attrs": dict(mode=mode), "opset": 16}
    out["RoiAlign"] = "RoiAlign", [IMAGE, rand(64, 4), _below(2, 64)], {
        "attrs": dict(output_height=7, output_width=7, sampling_ratio=2)}
    out["RoiAlign_large"] = "RoiAlign", [IMAGE, rand(64, 4), _below(2, 64)], {
        "attrs": dict(output_height=2, output_width=2, sampling_ratio=24)}
    out["MaxRoiPool"] = "MaxRoiPool", [IMAGE, rand(32, 5)], {"attrs": dict(pooled_shape=[3, 3])}
    out["NonMaxSuppression"] = "NonMaxSuppression", _boxes(2, 20, 3000, 50), {
        "consts": (2, 3, 4)}
    out["NonMaxSuppression_one"] = "NonMaxSuppression", _boxes(1, 1, 20000, 300), {
        "consts": (2, 3, 4)}
    return out


def _places():
    """Elements at places that are data, and what is left."""
    out = {}
    out["ScatterND"] = "ScatterND", [rand(5000, 64), _below(5000, 3000, 1), rand(3000, 64)], {}
    out["ScatterND_points"] = "ScatterND", [rand(400, 400), _below(400, 30000, 2), rand(30000)], {}
    for how in ("none", "add", "max"):
        out[f"ScatterElements_{how}"] = "ScatterElements", [
            rand(3, 20000), _below(20000, 3, 20000), rand(3, 20000)], {
            "attrs": dict(axis=1, reduction=how)}
    out["ScatterElements_columns"] = "ScatterElements", [
        rand(5000, 64), _below(5000, 3000, 64), rand(3000, 64)], {"attrs": dict(reduction="add")}
    out["GatherND"] = "GatherND", [rand(400, 400, 8), _below(400, 30000, 2)], {}
    out["Gather"] = "Gather", [rand(5000, 256), _below(5000, 4000)], {}
    out["GatherElements"] = "GatherElements", [ROWS, _below(50000, 64, 5000)], {
        "attrs": dict(axis=1)}
    out["Compress"] = "Compress", [rand(100_000, 4), _below(2, 100_000).astype(bool)], {
        "attrs": dict(axis=0)}
    out["NonZero"] = "NonZero", [_below(2, 300, 300)], {}
    out["Unique"] = "Unique", [_below(99, 12000)], {"outputs": 4}
    out["OneHot"] = "OneHot", [_below(1000, 2000), np.int64(1000), _f32([0, 1])], {"consts": (1, 2)}
    out["DFT"] = "DFT", [rand(4, 1024, 1), None, np.int64(1)], {"opset": 20, "consts": (2,)}
    out["STFT"] = "STFT", [rand(1, 16000, 1), np.int64(160), None, np.int64(400)], {
        "consts": (1, 3)}
    out["MelWeightMatrix"] = "MelWeightMatrix", [np.int64(80), np.int64(400), np.int64(16000),
                                                 _f32(0), _f32(8000)], {"consts": (0, 1, 2, 3, 4)}
    out["SoftmaxCrossEntropyLoss"] = "SoftmaxCrossEntropyLoss", [
        rand(64, 5000), _below(5000, 64)], {}
    out["NegativeLogLikelihoodLoss"] = "NegativeLogLikelihoodLoss", [
        rand(8, 100, 5000), _below(100, 8, 5000)], {}
    out["Col2Im"] = "Col2Im", [rand(1, 64 * 49, 900), ints(36, 36), ints(7, 7)], {"consts": (1, 2)}
    out["Attention"] = "Attention", [rand(1, 8, 512, 64) for _ in range(3)], {"opset": 23}
    out["Sum_of_three"] = "Sum", [ROWS, ROWS, ROWS], {}
    out["MaxUnpool"] = "MaxUnpool", [rand(1, 8, 48, 48), _below(96 * 96, 1, 8, 48, 48)], {
        "attrs": dict(kernel_shape=[2, 2], strides=[2, 2])}
    return out


def large_cases():
    """{name: NodeCase}."""
    return {name: NodeCase(name, op, arrays, **more)
            for table in (_folds, _norms_and_windows, _products, _images, _places)
            for name, (op, arrays, more) in table().items()}


__all__ = ["large_cases"]

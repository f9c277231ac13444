"""Quantised operators of com.microsoft as the ONNX operators between DequantizeLinear and
QuantizeLinear that they stand for.  Those with integer arithmetic of their own are in
ops_quant_extra.py."""

from typing import Any

from onnx import TensorProto

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Result, Val
from aotc.frontend.ops.contrib.ops_attention import self_attention
from aotc.frontend.ops.contrib.ops_fused import channels_first, channels_last, embedded

_POOL = "auto_pad ceil_mode count_include_pad kernel_shape pads strides"
_CONV = "auto_pad dilations group kernel_shape pads strides"


@spells("DequantizeLinear", "x x_scale x_zero_point", "axis", kinds="iu")
def dequantize(s: Spelling) -> Result:
    return s("DequantizeLinear", s.val("x"), s.val("x_scale"), s.opt("x_zero_point"), out=0,
             axis=s.attr("axis", 1))


@spells("QuantizeLinear", "x y_scale y_zero_point", "axis")
def quantize(s: Spelling) -> Result:
    return s("QuantizeLinear", s.val("x"), s.val("y_scale"), s.opt("y_zero_point"), out=0,
             axis=s.attr("axis", 1))


def _given(s: Spelling, names: str) -> dict[str, Any]:
    """Those of the attributes ``names`` that the node has."""
    return {k: v for k, v in s.node.attrs.items() if k in names.split()}


def _real(s: Spelling, name: str, scale: str, zero: str) -> Val:
    return s("DequantizeLinear", s.val(name), s.val(scale), s.opt(zero))


def _rounded(s: Spelling, v: Val, scale: str, zero: str) -> Val:
    """Output 0: the tensor quantised, of the first input's dtype."""
    at = s.opt(zero)
    at = s.number(0, s.b.input(0).dtype) if at is None else at
    return s("QuantizeLinear", v, s.val(scale), at, out=0)


@spells("QLinearAveragePool", "X x_scale x_zero_point y_scale y_zero_point",
        f"{_POOL} channels_last", kinds="iu")
def qlinear_average_pool(s: Spelling) -> Result:
    x, last = _real(s, "X", "x_scale", "x_zero_point"), s.attr("channels_last", 0)
    x = channels_first(s, x) if last else x
    y = s("AveragePool", x, **_given(s, _POOL))
    y = channels_last(s, y, None) if last else y
    return _rounded(s, y, "y_scale", "y_zero_point")


@spells("QLinearReduceMean", "data data_scale data_zero_point reduced_scale reduced_zero_point",
        "axes keepdims", kinds="iu")
def qlinear_reduce_mean(s: Spelling) -> Result:
    x = _real(s, "data", "data_scale", "data_zero_point")
    mean = s("ReduceMean", x, s.ints(*s.attr("axes", ())), keepdims=s.attr("keepdims", 1))
    return _rounded(s, mean, "reduced_scale", "reduced_zero_point")


@spells("QLinearWhere", "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale "
        "z_zero_point", kinds="b")
def qlinear_where(s: Spelling) -> Result:
    x, y = _real(s, "X", "x_scale", "x_zero_point"), _real(s, "Y", "y_scale", "y_zero_point")
    z = s("Where", s.val("condition"), x, y)
    return s("QuantizeLinear", z, s.val("z_scale"), s.val("z_zero_point"), out=0)


@spells("QLinearConcat", "Y_scale Y_zero_point", "axis", more=True)
def qlinear_concat(s: Spelling) -> Result:
    """Behind scale and zero point of the result stand tensors, each with its own two."""
    args = s.b.inputs()[2:]
    if len(args) % 3 or not args:
        raise s.b.bad("every tensor needs its scale and its zero point")
    real = [s("DequantizeLinear", *args[k:k + 3]) for k in range(0, len(args), 3)]
    y = s("Concat", *real, axis=s.attr("axis", 0))
    return s("QuantizeLinear", y, s.val("Y_scale"), s.val("Y_zero_point"), out=0)


@spells("QLinearConv", "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B",
        f"{_CONV} channels_last", kinds="iu")
def qlinear_conv(s: Spelling) -> Result:
    last, names = s.attr("channels_last", 0), list(s.inputs)
    x = channels_first(s, s.val("x")) if last else s.val("x")
    y = s("QLinearConv", x, *(s.inputs[n] for n in names[1:]), out=None if last else 0,
          **_given(s, _CONV))
    return channels_last(s, y) if last else y


# ---------------------------------------------------------------- products in integers

def _product(s: Spelling, a: Val, b: Val, zeros: tuple[Val | None, Val | None], scale: Val,
             bias: Val | None, out: int | None = 0) -> Val:
    """a @ b in integers, as real numbers; ``scale``: the product of both scales.  Sums are beyond
    what f16 holds before they are scaled."""
    half = scale.dtype == "f16"
    total, last = s.cast(s("MatMulInteger", a, b, *zeros), "f32"), None if half else out
    y = s("Mul", total, s.cast(scale, "f32"), out=last if bias is None else None)
    y = y if bias is None else s("Add", y, s.cast(bias, "f32"), out=last)
    return s("Cast", y, out=out, to=TensorProto.FLOAT16) if half else y


@spells("MatMulIntegerToFloat", "A B a_scale b_scale a_zero_point b_zero_point bias", kinds="iu")
def matmul_integer_to_float(s: Spelling) -> Result:
    scale = s("Mul", s.val("a_scale"), s.val("b_scale"))
    return _product(s, s.val("A"), s.val("B"), (s.opt("a_zero_point"), s.opt("b_zero_point")),
                    scale, s.opt("bias"))


@spells("DynamicQuantizeMatMul", "A B b_scale b_zero_point bias")
def dynamic_quantize_matmul(s: Spelling) -> Result:
    a, scale, zero = s.several("DynamicQuantizeLinear", [s.val("A")], [None] * 3)
    return _product(s, a, s.val("B"), (zero, s.opt("b_zero_point")),
                    s("Mul", scale, s.val("b_scale")), s.opt("bias"))


@spells("QAttention", "input weight bias input_scale weight_scale mask_index input_zero_point "
        "weight_zero_point past", "num_heads scale mask_filter_value unidirectional",
        only={"do_rotary": 0, "past_present_share_buffer": 0}, kinds="iu")
def quantised_attention(s: Spelling) -> Result:
    zeros = (s.opt("input_zero_point"), s.opt("weight_zero_point"))
    scale = s("Mul", s.val("input_scale"), s.val("weight_scale"))
    return self_attention(s, _product(s, s.val("input"), s.val("weight"), zeros, scale,
                                      s.val("bias"), None))


# ---------------------------------------------------------------- embeddings

@spells("QEmbedLayerNormalization", "input_ids segment_ids word_embedding position_embedding "
        "segment_embedding gamma beta mask word_embedding_scale position_embedding_scale "
        "segment_embedding_scale gamma_scale beta_scale word_embedding_zero_point "
        "position_embedding_zero_point segment_embedding_zero_point gamma_zero_point "
        "beta_zero_point", "epsilon", kinds="i")
def quantised_embedding(s: Spelling) -> Result:
    words, places, gamma, beta = (
        _real(s, n, f"{n}_scale", f"{n}_zero_point")
        for n in ("word_embedding", "position_embedding", "gamma", "beta"))
    name = "segment_embedding"
    segments = None if s.opt(name) is None else _real(s, name, f"{name}_scale",
                                                      f"{name}_zero_point")
    return embedded(s, words, places, segments, gamma, beta)



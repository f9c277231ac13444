"""Operators of the domain com.microsoft that ONNX Runtime's optimiser and transformers' exporters
write for several ONNX ones: activations, normalisations, products and convolutions with what
follows them.  Each is spelt as those (its contrib operator documentation defines them)."""

from collections.abc import Callable
from typing import Any

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Result, Val
from aotc.ir.expr import Const
from aotc.ir.simplify import simplify

# ---------------------------------------------------------------- activations


@spells("Gelu", "X")
def gelu(s: Spelling) -> Result:
    return s("Gelu", s.val("X"), out=0)


@spells("BiasGelu", "A B")
def bias_gelu(s: Spelling) -> Result:
    return s("Gelu", s("Add", s.val("A"), s.val("B")), out=0)


@spells("FastGelu", "X bias")
def fast_gelu(s: Spelling) -> Result:
    x, bias = s.val("X"), s.opt("bias")
    x = x if bias is None else s("Add", x, bias)
    return s("Gelu", x, out=0, approximate="tanh")


@spells("QuickGelu", "X", "alpha")
def quick_gelu(s: Spelling) -> Result:
    return s("Swish", s.val("X"), out=0, alpha=s.attr("alpha", 1.702))


@spells("BiasSplitGelu", "X bias")
def bias_split_gelu(s: Spelling) -> Result:
    x = s("Add", s.val("X"), s.val("bias"))
    left, right = s.several("Split", [x], (None, None), axis=-1, num_outputs=2)
    return s("Mul", left, s("Gelu", right), out=0)


@spells("BiasAdd", "X bias skip")
def bias_add(s: Spelling) -> Result:
    return s("Add", s("Add", s.val("X"), s.val("bias")), s.val("skip"), out=0)


@spells("BiasSoftmax", "data bias", "axis", only={"is_inner_broadcast": 1})
def bias_softmax(s: Spelling) -> Result:
    return _bias_softmax(s)


def _bias_softmax(s: Spelling) -> Val:
    """Dimensions from ``axis`` on count as one."""
    x = s("Add", s.val("data"), s.val("bias"))
    axis = s.b.axis(s.attr("axis", 1), x.rank)
    newest = {} if axis == x.rank - 1 else {"opset": 12}
    return s("Softmax", x, out=0, axis=axis, **newest)


# activation of a fused operator: ONNX's attributes of its parameters, in order
_PARAMETERS = {"Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "Softsign": (),
               "HardSwish": (), "Gelu": (), "LeakyRelu": ("alpha",), "Elu": ("alpha",),
               "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
               "Selu": ("alpha", "gamma")}


def activated(s: Spelling, v: Val, name: str, values: dict[str, Any], out: int | None = 0) -> Val:
    """``v`` through the activation ``name``; ``values``: its parameters by ONNX's names."""
    if name == "Clip":
        if len(values) != 2:
            raise s.b.bad("Clip needs its two bounds as parameters")
        low, high = (s.number(values[k], v.dtype) for k in ("min", "max"))
        return s("Clip", v, low, high, out=out)
    if name not in _PARAMETERS:
        raise s.b.unsupported(f"the activation {name!r}", "use one of "
                              + ", ".join([*_PARAMETERS, "Clip"]))
    return s(name, v, out=out, **{k: values[k] for k in _PARAMETERS[name] if k in values})


def _followed(s: Spelling, make: Callable[[int | None], Val]) -> Val:
    """What ``make(output)`` builds, and the node's activation with ``activation_params``."""
    name, given = s.attr("activation", ""), s.attr("activation_params", ())
    if not name:
        return make(0)
    keys = ("min", "max") if name == "Clip" else _PARAMETERS.get(name, ())
    return activated(s, make(None), name, dict(zip(keys, given)))


# ---------------------------------------------------------------- normalisations

@spells("LayerNormalization", "X Scale B", "axis epsilon stash_type", domain="")
def layer_normalization(s: Spelling) -> Result:
    """What ONNX Runtime writes into models of an opset that has none."""
    return tuple(s.several("LayerNormalization", [s.val("X"), s.val("Scale"), s.opt("B")],
                           range(len(s.node.outputs)), **s.node.attrs))


@spells("SimplifiedLayerNormalization", "X scale", "axis epsilon stash_type", domain="")
@spells("SimplifiedLayerNormalization", "X scale", "axis epsilon stash_type")
def simplified_layer_normalization(s: Spelling) -> Result:
    x, axis, epsilon = s.val("X"), s.attr("axis", -1), s.attr("epsilon", 1e-5)
    y = s("RMSNormalization", x, s.val("scale"), out=0, axis=axis, epsilon=epsilon)
    return (y, _reciprocal_size(s, x, axis, epsilon, 1)) if s.wants(1) else y


def _reciprocal_size(s: Spelling, x: Val, axis: int, epsilon: float, out: int) -> Val:
    """1 / sqrt(mean(x * x) + epsilon) over the dimensions from ``axis`` on."""
    x = s.cast(x, "f32") if x.dtype == "f16" else x
    axes = s.ints(*range(s.b.axis(axis, x.rank), x.rank))
    mean = s("ReduceMean", s("Mul", x, x), axes)
    return s("Reciprocal", s("Sqrt", s("Add", mean, s.number(epsilon, x.dtype))), out=out)


def _with_skip(s: Spelling) -> Val:
    """The sum that is normalised: output 3."""
    bias = s.opt("bias")
    total = s("Add", s.val("input"), s.val("skip"), out=3 if bias is None else None)
    return total if bias is None else s("Add", total, bias, out=3)


@spells("SkipLayerNormalization", "input skip gamma beta bias", "epsilon")
def skip_layer_normalization(s: Spelling) -> Result:
    total = _with_skip(s)
    outs = (0, 1, 2) if s.wants(1) or s.wants(2) else (0,)
    made = s.several("LayerNormalization", [total, s.val("gamma"), s.opt("beta")], outs, axis=-1,
                     epsilon=s.attr("epsilon", 1e-12))
    return *made, *[None] * (3 - len(made)), total


@spells("SkipSimplifiedLayerNormalization", "input skip gamma bias", "epsilon")
def skip_simplified_layer_normalization(s: Spelling) -> Result:
    total, epsilon = _with_skip(s), s.attr("epsilon", 1e-12)
    y = s("RMSNormalization", total, s.val("gamma"), out=0, axis=-1, epsilon=epsilon)
    size = _reciprocal_size(s, total, -1, epsilon, 2) if s.wants(2) else None
    return y, None, size, total


@spells("EmbedLayerNormalization", "input_ids segment_ids word_embedding position_embedding "
        "segment_embedding gamma beta mask position_ids", "epsilon mask_index_type", kinds="i")
def embed_layer_normalization(s: Spelling) -> Result:
    return embedded(s, s.val("word_embedding"), s.val("position_embedding"),
                    s.opt("segment_embedding"), s.val("gamma"), s.val("beta"))


def embedded(s: Spelling, words: Val, places: Val, segments: Val | None, gamma: Val,
             beta: Val) -> Result:
    """Rows of the tables, added and normalised; the number of words; the sum.  Tables are
    [rows, hidden]."""
    ids, kinds, at = s.val("input_ids"), s.opt("segment_ids"), s.inputs.get("position_ids")
    if ids.rank != 2:
        raise s.b.bad("input_ids must be [batch, sequence]")
    place = s("Gather", places, at) if at is not None else s.cut(places, 0, 0, ids.shape[1])
    if at is None:
        s.b.require("le", ids.shape[1], places.shape[0], "every place must have its embedding")
    both = segments is not None and kinds is not None
    total = s("Add", s("Gather", words, ids), place, out=None if both else 2)
    if segments is not None and kinds is not None:
        total = s("Add", total, s("Gather", segments, kinds), out=2)
    y = s("LayerNormalization", total, gamma, beta, out=0, axis=-1,
          epsilon=s.attr("epsilon", 1e-12))
    return y, _words(s, ids) if s.wants(1) else None, total


def _words(s: Spelling, ids: Val) -> Val:
    """How many words every row of the mask has, none without a mask."""
    mask = s.opt("mask")
    if mask is None:
        zeros = s.number(0, "i32")
        return s("Expand", zeros, s.dims(ids.shape[0]), out=1)
    one = s("Equal", mask, s.number(1, mask.dtype))
    return s("ReduceSum", s.cast(one, "i32"), s.ints(1), out=1, keepdims=0)


# ---------------------------------------------------------------- products

def _multiplied(s: Spelling, x: Val, y: Val) -> Val:
    alpha = s.attr("alpha", 1.0)
    if alpha == 1:
        return s("MatMul", x, y, out=0)
    return s("Mul", s("MatMul", x, y), s.number(alpha, x.dtype), out=0)


def _turned(s: Spelling, v: Val, last_two: int, first: int) -> Val:
    """An operand: ``first``: its first dimension belongs behind the batch; ``last_two``: the last
    two change places."""
    perm = list(range(v.rank))
    if first and v.rank > 2:
        perm = [*perm[1:-1], 0, perm[-1]]
    if last_two and v.rank > 1:
        perm = [*perm[:-2], perm[-1], perm[-2]]
    return v if perm == sorted(perm) else s.transpose(v, *perm)


@spells("FusedMatMul", "A B", "alpha transA transB transBatchA transBatchB")
def fused_matmul(s: Spelling) -> Result:
    return _multiplied(s, _turned(s, s.val("A"), s.attr("transA", 0), s.attr("transBatchA", 0)),
                       _turned(s, s.val("B"), s.attr("transB", 0), s.attr("transBatchB", 0)))


@spells("TransposeMatMul", "A B", "alpha transA transB")
def transpose_matmul(s: Spelling) -> Result:
    return _multiplied(s, _turned(s, s.val("A"), s.attr("transA", 0), 0),
                       _turned(s, s.val("B"), s.attr("transB", 0), 0))


@spells("FusedGemm", "A B C", "alpha beta transA transB activation activation_alpha "
        "activation_beta activation_gamma")
def fused_gemm(s: Spelling) -> Result:
    own = {k: v for k, v in s.node.attrs.items() if not k.startswith("activation")}
    name = s.attr("activation", "")
    y = s("Gemm", s.val("A"), s.val("B"), s.opt("C"), out=None if name else 0, **own)
    given = {k: s.attr(f"activation_{k}") for k in ("alpha", "beta", "gamma")}
    given = {k: v for k, v in given.items() if v is not None}
    return activated(s, y, name, given) if name else y


# ---------------------------------------------------------------- images

_CONV = "auto_pad dilations group kernel_shape pads strides"
_POOL = "auto_pad ceil_mode dilations kernel_shape pads strides storage_order"


def _geometry(s: Spelling, names: str) -> dict[str, Any]:
    return {k: v for k, v in s.node.attrs.items() if k in names.split()}


def channels_first(s: Spelling, v: Val) -> Val:
    """[n, .., c] as [n, c, ..]."""
    return s.transpose(v, 0, v.rank - 1, *range(1, v.rank - 1))


def channels_last(s: Spelling, v: Val, out: int | None = 0) -> Val:
    """[n, c, ..] as [n, .., c]."""
    return s.transpose(v, 0, *range(2, v.rank), 1, out=out)


@spells("FusedConv", "X W B Z", f"{_CONV} activation activation_params")
def fused_conv(s: Spelling) -> Result:
    z = s.opt("Z")

    def make(out: int | None) -> Val:
        y = s("Conv", s.val("X"), s.val("W"), s.opt("B"), out=out if z is None else None,
              **_geometry(s, _CONV))
        return y if z is None else s("Add", y, z, out=out)
    return _followed(s, make)


@spells("NhwcFusedConv", "X W B Z", f"{_CONV} activation activation_params")
def nhwc_fused_conv(s: Spelling) -> Result:
    """The input and the result have their channels last; weights are as those of Conv."""
    z = s.opt("Z")

    def make(out: int | None) -> Val:
        y = _channels_last_conv(s, s.val("W"), out if z is None else None)
        return y if z is None else s("Add", y, z, out=out)
    return _followed(s, make)


@spells("NhwcConv", "X W B", _CONV)
def nhwc_conv(s: Spelling) -> Result:
    """Weights have their channels last, too, where those are as many as the input's: optimisers
    write them so, whatever the documentation says.  Where the input's are open they are as many."""
    x, w = s.val("X"), s.val("W")
    off = simplify(w.shape[-1] * s.attr("group", 1) - x.shape[-1])
    last = not isinstance(off, Const) or off.value == 0
    return _channels_last_conv(s, channels_first(s, w) if last else w, 0)


def _channels_last_conv(s: Spelling, w: Val, out: int | None) -> Val:
    y = s("Conv", channels_first(s, s.val("X")), w, s.opt("B"), **_geometry(s, _CONV))
    return channels_last(s, y, out)


@spells("NhwcMaxPool", "x", _POOL, kinds="fiu")
def nhwc_max_pool(s: Spelling) -> Result:
    y = s("MaxPool", channels_first(s, s.val("x")), **_geometry(s, _POOL))
    return channels_last(s, y)


@spells("GroupNorm", "X gamma beta", "epsilon groups activation channels_last")
def group_norm(s: Spelling) -> Result:
    return _group_norm(s, s.val("X"))


@spells("SkipGroupNorm", "X gamma beta skip bias", "epsilon groups activation channels_last")
def skip_group_norm(s: Spelling) -> Result:
    """The skip is [n, h, w, c], [n, c] or [n, 1, 1, c]."""
    x, skip, bias = s.val("X"), s.val("skip"), s.opt("bias")
    if not s.attr("channels_last", 1):
        raise s.b.unsupported("channels that are not last", "export it with channels_last = 1")
    skip = s.spread(skip, 1, 2) if skip.rank == 2 else skip
    total = s("Add", x, skip, out=1 if bias is None else None)
    total = total if bias is None else s("Add", total, bias, out=1)
    return _group_norm(s, total), total


def _group_norm(s: Spelling, x: Val) -> Val:
    last, swish = s.attr("channels_last", 1), s.attr("activation", 0)
    x = channels_first(s, x) if last else x
    y = s("GroupNormalization", x, s.val("gamma"), s.val("beta"), num_groups=s.given("groups"),
          epsilon=s.attr("epsilon", 1e-5), out=None if last or swish else 0)
    y = s("Swish", y, out=None if last else 0) if swish else y
    return channels_last(s, y) if last else y

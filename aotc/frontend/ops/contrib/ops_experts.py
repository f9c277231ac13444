"""Mixtures of experts.  All experts compute, and those that the router does not pick count nothing:
the same for every token, whatever the data."""

import math
from typing import Any

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Result, Val
from aotc.frontend.ops.contrib.attention import width
from aotc.frontend.ops.contrib.ops_blocks import dequantised, unpacked
from aotc.frontend.ops.contrib.ops_twins import gated

_ATTRIBUTES = ("k activation_type activation_alpha activation_beta swiglu_limit swiglu_fusion "
               "normalize_routing_weights")
_PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}), "gelu": ("Gelu", {"approximate": "tanh"}), "silu": ("Swish", {}),
    "identity": ("Identity", {})}


@spells("MoE", "input router_probs fc1_experts_weights fc1_experts_bias fc2_experts_weights "
        "fc2_experts_bias fc3_experts_weights fc3_experts_bias", _ATTRIBUTES,
        only={"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0})
def mixture(s: Spelling) -> Result:
    third = s.opt("fc3_experts_weights")
    return _mixed(s, s.val("fc1_experts_weights"), s.val("fc2_experts_weights"), third,
                  bool(s.attr("normalize_routing_weights", 0)))


@spells("QMoE", "input router_probs fc1_experts_weights fc1_scales fc1_experts_bias "
        "fc2_experts_weights fc2_scales fc2_experts_bias fc3_experts_weights fc3_scales "
        "fc3_experts_bias fc1_zero_points fc2_zero_points fc3_zero_points router_weights "
        "-fc1_global_scale -fc2_global_scale -fc1_act_scale -fc2_act_scale -fc1_act_block_scale "
        "-fc2_act_block_scale", f"{_ATTRIBUTES} expert_weight_bits block_size accuracy_level "
        "fc1_expert_weight_bits fc2_expert_weight_bits fc3_expert_weight_bits weights_prepacked",
        only={"use_sparse_mixer": 0, "swiglu_limit_after_activation": 0, "quant_type": "int"})
def quantised_mixture(s: Spelling) -> Result:
    """What the picked experts count adds up to 1, asked for or not, as ONNX Runtime has it; where
    ``router_weights`` says what they count, only if asked for."""
    first, second = (_weights(s, n) for n in ("fc1", "fc2"))
    third = None if s.opt("fc3_experts_weights") is None else _weights(s, "fc3")
    own = s.opt("router_weights") is not None
    return _mixed(s, first, second, third, not own or bool(s.attr("normalize_routing_weights", 0)))


def _weights(s: Spelling, name: str) -> Val:
    """[experts, rows, columns] of real numbers."""
    packed, scale = s.val(f"{name}_experts_weights"), s.val(f"{name}_scales")
    zero = s.opt(f"{name}_zero_points")
    bits = s.attr(f"{name}_expert_weight_bits") or s.attr("expert_weight_bits", 4)
    columns = width(s, packed.shape[2], 1, "the packed weights") * 8 // bits
    scale = s.spread(scale, 2) if scale.rank == 2 else scale
    blocks = width(s, scale.shape[2], 1, "the scales")
    if zero is not None and zero.rank == 2:  # one for every row
        rows = width(s, packed.shape[1], 1, "the packed weights")
        zero = s.spread(unpacked(s, zero, bits, rows), 2)
    elif zero is not None:
        zero = unpacked(s, zero, bits, blocks)
    w = unpacked(s, packed, bits, columns)
    return dequantised(s, w, scale, zero, -(-columns // blocks), bits, 2)


def _mixed(s: Spelling, first: Val, second: Val, third: Val | None, whole: bool) -> Val:
    """The output: [tokens, hidden] or [batch, sequence, hidden]."""
    given = s.val("input")
    columns = width(s, given.shape[-1], 1, "the input")
    x = given if given.rank == 2 else s("Reshape", given, s.ints(-1, columns))
    tokens = s.spread(x, 0)
    inner = _activated(s, tokens, first, third)
    outer = _layer(s, inner, second, "fc2_experts_bias")
    share = s.spread(s.transpose(_shares(s, s.val("router_probs"), whole), 1, 0), 2)
    out = 0 if given.rank == 2 else None
    y = s("ReduceSum", s("Mul", outer, share), s.ints(0), keepdims=0, out=out)
    return y if given.rank == 2 else s.reshape(y, *given.shape, out=0)


def _shares(s: Spelling, logits: Val, whole: bool) -> Val:
    """What every expert counts for every token, [tokens, experts]; ``whole``: it adds up to 1."""
    k, own = s.attr("k", 1), s.inputs.get("router_weights")
    best, which = s.several("TopK", [s("Softmax", logits, axis=-1), s.ints(k)], [None] * 2, axis=-1)
    best = best if own is None else s("GatherElements", own, which, axis=1)
    if whole:
        best = s("Div", best, s("ReduceSum", best, s.ints(1), keepdims=1))
    count = width(s, logits.shape[1], 1, "the experts")
    picked = s("OneHot", which, s.ints(count), s.cast(s.ints(0, 1), best.dtype), axis=-1)
    return s("ReduceSum", s("Mul", picked, s.spread(best, 2)), s.ints(1), keepdims=0)


def _layer(s: Spelling, x: Val, w: Val, bias: str) -> Val:
    """x @ w of every expert, [experts, tokens, rows]."""
    y = s("MatMul", x, s.transpose(w, 0, 2, 1))
    b = s.opt(bias)
    return y if b is None else s("Add", y, s.spread(b, 1))


def _activated(s: Spelling, x: Val, first: Val, third: Val | None) -> Val:
    """The experts' inner layer."""
    kind, fused = s.attr("activation_type", "relu"), s.attr("swiglu_fusion", 0)
    y = _layer(s, x, first, "fc1_experts_bias")
    if kind in _PLAIN:
        op, attrs = _PLAIN[kind]
        y = s(op, y, **attrs)
        return y if third is None else s("Mul", y, _layer(s, x, third, "fc3_experts_bias"))
    if kind != "swiglu":
        raise s.b.unsupported(f"the activation {kind!r}",
                              f"use one of {', '.join([*_PLAIN, 'swiglu'])}")
    if fused not in (0, 1, 2) or not fused and third is None:
        raise s.b.bad(f"swiglu_fusion {fused} is none of 1, 2, and 0 with fc3_experts_weights")
    rows = width(s, y.shape[2], 2 if fused else 1, "the experts' weights")
    if fused == 1:
        gate, up = (s.cut(y, 2, n, 2 * rows, 2) for n in (0, 1))
    elif fused == 2:
        gate, up = s.cut(y, 2, 0, rows), s.cut(y, 2, rows, 2 * rows)
    else:
        assert third is not None, fused  # looked at above
        gate, up = y, _layer(s, x, third, "fc3_experts_bias")
    return gated(s, gate, up, s.attr("swiglu_limit", math.inf), s.attr("activation_alpha", 1.0),
                 s.attr("activation_beta", 0.0))

"""What to use instead of an operator that has no implementation: a sentence for messages."""

from difflib import get_close_matches

from aotc.frontend.building.registry import OPS

_LAYOUTS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
_MICROSOFT = "com.microsoft"
_SEARCH = "compile the decoder, and search outside of it"

# operators of com.microsoft -> what serves in their place
_INSTEAD = {
    "DecoderMaskedSelfAttention": "use Attention with past",
    "DecoderAttention": "use MultiHeadAttention with past_key and past_value",
    "SparseAttention": "use GroupQueryAttention, which reads all keys",
    "PagedAttention": "use GroupQueryAttention with a cache of its own",
    "LongformerAttention": "use Attention with a mask",
    "GemmaRotaryEmbedding": "use RotaryEmbedding",
    "MatMulFpQ4": "use MatMulNBits",
    "MatMulInteger16": "use MatMulInteger on 8 bits",
    "QOrderedMatMul": "use QLinearMatMul", "QOrderedAttention": "use QAttention",
    "QOrderedGelu": "use Gelu between DequantizeLinear and QuantizeLinear",
    "QOrderedLayerNormalization":
        "use LayerNormalization between DequantizeLinear and QuantizeLinear",
    "Rfft": "use DFT", "Irfft": "use DFT",
    "BeamSearch": _SEARCH, "GreedySearch": _SEARCH, "Sampling": _SEARCH,
    "WhisperBeamSearch": _SEARCH, "AttnLSTM": "use LSTM and what attends to it apart",
    "Tokenizer": "split text outside of the model, or by StringSplit",
}


def instead_of(domain: str, op: str) -> str:
    """What to use in place of an unknown operator, "" where nothing is near."""
    if domain in _LAYOUTS:
        return ("let ONNX Runtime optimise to ORT_ENABLE_EXTENDED at most: what it writes beyond "
                "is in layouts of one machine")
    if domain == "ai.onnx.contrib":
        return "leave what prepares texts and images out of the model, and run it before"
    if domain == _MICROSOFT and op in _INSTEAD:
        return _INSTEAD[op]
    own = OPS.get((domain, op))
    if own:
        return f"it compiles from opset {min(e.since for e in own)} on"
    others = sorted(d for d, name in OPS if name == op)
    if others:
        return f"use {others[0] or 'ai.onnx'}.{op}"
    close = get_close_matches(op, [name for d, name in OPS if d == domain], 1, 0.75)
    return f"the nearest that compiles is {domain or 'ai.onnx'}.{close[0]}" if close else ""

"""Types that ONNX stores and nobody computes in: bf16, floats and integers of 8 bits and fewer.

Such a tensor is a Val of its bits (``Val.stored`` says of which type): u16 of bf16, u8 of the
others, one element each, constants of 4 and 2 bits packed as in the model's file.  Operators never
see them: they get f32 (integers: i8 or u8), and what their schema makes such a type is rounded
where it is stored.  Only operators that place elements take the bits as they are."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from aotc.frontend.building.characters import compare_strings, move_texts, place_texts
from aotc.frontend.building.stored_type_operators import (
    PLACES,
    STEPS,
    makes_texts,
    moves_texts,
    places_texts,
)
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Sequence, Val, Value
from aotc.frontend.graph import Body, Node
from aotc.frontend.read.read_types import stored_name
from aotc.ir.dtypes import BF16, CHARS, INDEX, STORED, TEXT, Array
from aotc.ir.expr import Binary, Const, Expr, Unary, Where, compare, maximum, minimum
from aotc.ir.numbers.narrow import bf16_bits

if TYPE_CHECKING:
    from aotc.frontend.building.builder import Builder

WIDE = "f32"
_LIST_OPERATORS = frozenset("""
    Identity SequenceConstruct SequenceAt SequenceInsert SequenceErase SequenceLength""".split())
_MANTISSA = 23  # bits of f32's
_BIAS = 127


@dataclass(frozen=True)
class Small:
    """A float of 8 bits or fewer: bits of its mantissa, bias of its exponent, the code of its
    largest number; ``over``: the code of what is larger where nothing saturates; ``nan``: that of
    NaN; ``zeros``: it has two."""

    mantissa: int
    bias: int
    top: int
    over: int
    nan: int
    zeros: bool = True


SMALL_FLOATS = {
    "f8e4m3fn": Small(3, 7, 0x7E, 0x7F, 0x7F),
    "f8e4m3fnuz": Small(3, 8, 0x7F, 0x80, 0x80, False),
    "f8e5m2": Small(2, 15, 0x7B, 0x7C, 0x7E),
    "f8e5m2fnuz": Small(2, 16, 0x7F, 0x80, 0x80, False),
    "f4e2m1": Small(1, 1, 7, 7, 8)}
_SCALE = "f8e8m0"  # powers of two without a sign


def carrier(stored: str) -> str:
    """The dtype of the bits of a stored type, or of the places of texts."""
    if stored == TEXT:
        return INDEX
    if stored == CHARS:
        return "u8"
    return "u16" if stored == "bf16" else "u8"


# ---------------------------------------------------------------- from and to what is computed in

def values_of(stored: str) -> Array:
    """f32: what every code of a small float means."""
    if stored == _SCALE:
        out = np.exp2(np.arange(256) - 127.0)
        out[255] = np.nan
        return np.asarray(out, np.float32)
    s, codes = SMALL_FLOATS[stored], np.arange(1 << STORED[stored].bits)
    half = len(codes) // 2
    low, sign = codes % half, np.where(codes >= half, -1.0, 1.0)
    exponent, rest = low >> s.mantissa, low & ((1 << s.mantissa) - 1)
    step = np.exp2(np.maximum(exponent, 1) - s.bias - s.mantissa)
    out = sign * step * (rest + np.where(exponent > 0, 1 << s.mantissa, 0))
    if stored == "f8e5m2":
        out[low > s.top] = np.nan
        out[low == s.over] = (sign * np.inf)[low == s.over]
    elif s.zeros and stored != "f4e2m1":
        out[low == s.nan] = np.nan
    elif not s.zeros:
        out[s.nan] = np.nan
    return np.asarray(out, np.float32)


def decode_bits(b: "Builder", stored: str, code: Expr) -> Expr:
    """The element with these bits: f32, i8 or u8."""
    if stored == "bf16":
        return Unary("float", Binary("shl", cast("u32", code), Const(16, "u32")))
    if stored[0] == "f":
        values = values_of(stored)
        at = maximum(minimum(cast("i64", code), Const(len(values) - 1)), Const(0))
        return b.load(b.const(values, f"{stored}_values"), (at,))
    bits = STORED[stored].bits
    low = Binary("and", cast("u32", code), Const((1 << bits) - 1, "u32"))
    if stored[0] == "u":
        return cast("u8", low)
    return cast("i8", cast("i32", Binary("xor", low, Const(1 << bits - 1, "u32")))
                - Const(1 << bits - 1, "i32"))


def encode_number(stored: str, e: Expr, saturate: bool = True, rounding: str = "up") -> Expr:
    """The bits of a number: floats round to the nearest, ties to even, integers keep their lowest
    bits.  ``saturate``: beyond the largest number of a small float lies that number itself;
    ``rounding``: of f8e8m0 (up, down, nearest)."""
    if stored[0] in "iu":
        e = cast("i32", cast(WIDE, e) if e.dtype == "f16" else e)
        lowest = Const((1 << STORED[stored].bits) - 1, "u32")
        return cast("u8", Binary("and", cast("u32", e), lowest))
    e = cast(WIDE, e)
    bits = Unary("bits", e)
    lost = Unary("isnan", e)
    if stored == "bf16":
        return bf16_bits(e)
    if stored == _SCALE:
        return _scale_code(bits, saturate, rounding)
    return _small_code(SMALL_FLOATS[stored], STORED[stored].bits, e, bits, lost, saturate)


def _u32(op: str, a: Expr, b: int) -> Expr:
    return Binary(op, a, Const(b, "u32"))


def _nearest(bits: Expr, drop: int) -> Expr:
    """The bits with half of the last ``drop`` added, so that cutting them off rounds to the
    nearest, ties to even."""
    odd = _u32("and", _u32("shr", bits, drop), 1)
    return Binary("add", _u32("add", bits, (1 << drop - 1) - 1), odd)


def _small_code(s: Small, width: int, e: Expr, bits: Expr, lost: Expr, saturate: bool) -> Expr:
    size, drop = _u32("and", bits, 0x7FFFFFFF), _MANTISSA - s.mantissa
    normal = _u32("sub", _u32("shr", _nearest(size, drop), drop), (_BIAS - s.bias) << s.mantissa)
    step = const(2.0 ** (s.bias - 1 + s.mantissa), WIDE)
    tiny = cast("u32", cast("i32", Unary("round", Unary("float", _not_normal(size, s)) * step)))
    code: Expr = Where(compare("lt", size, Const(_least(s), "u32")), tiny, normal)
    over, top = Const(s.top if saturate else s.over, "u32"), Const(s.top, "u32")
    code = Where(compare("gt", code, top), over, code)
    sign = _u32("shl", _u32("shr", bits, 31), width - 1)
    signed: Expr = Binary("or", code, sign)
    if not s.zeros:
        signed = Where(compare("eq", code, Const(0, "u32")), code,
                       Where(compare("eq", code, Const(s.nan, "u32")), code, signed))
    quiet: Expr = Const(s.nan, "u32")
    return cast("u8", Where(lost, Binary("xor", quiet, sign) if s.zeros else quiet, signed))


def _least(s: Small) -> int:
    """The bits, as f32, of the least number with a leading one."""
    return (1 - s.bias + _BIAS) << _MANTISSA


def _not_normal(size: Expr, s: Small) -> Expr:
    """The bits of a magnitude, at most those of the least normal number: what is rounded to a
    multiple of the least number stays small."""
    return Where(compare("lt", size, Const(_least(s), "u32")), size, Const(_least(s), "u32"))


def _scale_code(bits: Expr, saturate: bool, rounding: str) -> Expr:
    exponent = _u32("and", _u32("shr", bits, _MANTISSA), 0xFF)
    rest = _u32("and", bits, (1 << _MANTISSA) - 1)
    half, none = 1 << _MANTISSA - 1, Const(0, "u32")
    up: Expr
    if rounding == "nearest":  # a tie goes up, but not from the least number
        up = Binary("or", compare("gt", rest, Const(half, "u32")), Binary(
            "and", compare("eq", rest, Const(half, "u32")), compare("gt", exponent, none)))
    else:
        up = compare("gt", rest, none)
    if saturate:
        up = Binary("and", up, compare("ne", exponent, Const(0xFE, "u32")))
    more = Where(up, Const(1, "u32"), none) if rounding != "down" else none
    code = Where(compare("eq", exponent, Const(0xFF, "u32")), exponent,
                 Binary("add", exponent, more))
    return cast("u8", code)


# ---------------------------------------------------------------- tensors

def hold_stored(b: "Builder", codes: Array, stored: str, name: str) -> Val:
    """A constant of a stored type.  One of less than a byte an element is packed."""
    bits = STORED[stored].bits if stored in STORED else 64
    if bits >= 8 or codes.size <= 1:
        return replace(b.const(codes, name), stored=stored)
    each = 8 // bits
    flat = np.zeros(-(-codes.size // each) * each, np.uint8)
    flat[:codes.size] = codes.reshape(-1)
    packed = sum((flat[k::each] << np.uint8(bits * k) for k in range(each)),
                 np.zeros(len(flat) // each, np.uint8))
    table, shape = b.const(packed.astype(np.uint8), name), tuple(map(Const, codes.shape))

    def element(index: Index) -> Expr:
        at: Expr = Const(0)
        for i, d in zip(index, shape):
            at = at * d + i
        shift = cast("u32", at % each * bits)
        return cast("u8", Binary("and", Binary("shr", cast("u32", b.load(table, (at // each,))),
                                               shift), Const((1 << bits) - 1, "u32")))
    return Val(shape, "u8", fn=element, name=name, stored=stored)


def widen_stored(b: "Builder", v: Val, node: Node) -> Val:
    """A Val of a stored type as what is computed in: what it was rounded from, where the node does
    not mind."""
    if v in b.wide and node.op not in STEPS:
        return b.wide[v]
    if v not in b.exact:
        tag = f"in{list(node.inputs).index(v.name)}" if v.name in node.inputs else "wide"
        fn = v.fn
        b.exact[v] = Val(v.shape, decode_bits(b, v.stored, Const(0, v.dtype)).dtype, name=v.name,
                         fn=lambda i: decode_bits(b, v.stored, fn(i))) if fn is not None else b.map(
            v.shape, lambda i: decode_bits(b, v.stored, b.at(v, i)), [v], tag)
        if v.stored == BF16:
            _declare_bf16(b, b.exact[v], v.array is not None)
    return b.exact[v]


def _declare_bf16(b: "Builder", wide: Val, constant: bool) -> None:
    """Say of numbers that were read as bf16 that they are; constant: they are weights."""
    if constant:
        b.halves = b.halves or BF16
    elif wide.buffer in b.buffers:
        b.buffers[wide.buffer] = replace(b.buffers[wide.buffer], declared=BF16)


def convert_to_stored(b: "Builder", v: Val, stored: str, out: int = 0, saturate: bool = True,
                      rounding: str = "up") -> Val:
    """The Val of numbers as a stored type."""
    made = b.map(v.shape, lambda i: encode_number(stored, b.at(v, i), saturate, rounding), [v],
                 out=out)
    return replace(made, stored=stored)


# ---------------------------------------------------------------- operators

def call(node: Node, b: "Builder", build: Callable[[Node], Result]) -> Result:
    """The node's Val or Vals, made by ``build(node)``; inputs of stored types are given to it as
    what is computed in, and outputs that the operator's schema makes such types come back so."""
    given = [b.env[i] if i else None for i in node.inputs]
    kinds = {k: v.stored for k, v in enumerate(given) if isinstance(v, Val) and v.stored}
    if any(isinstance(v, Sequence) and v.stored for v in given) and (
            node.op not in _LIST_OPERATORS):
        raise b.unsupported("a sequence of tensors of a type that is stored only",
                            "convert its tensors to float")
    b.kinds = kinds
    if CHARS in kinds.values() or makes_texts(node):
        return _of_characters(node, b, kinds, build)
    if not kinds or node.op in _LIST_OPERATORS and node.op != "Identity":
        return build(node)
    outs = {k: s for k, o in enumerate(node.outputs) if o and (s := _made(node, k, kinds))}
    text = TEXT in kinds.values()
    if text and not places_texts(node, b, kinds):
        return build(node)
    if text or _places(node, b, [v for v in given if isinstance(v, Val) and v.stored]):
        if len(set(kinds.values())) > 1:
            raise b.bad("inputs must have one dtype")
        if any(isinstance(v, Body) for v in node.attrs.values()):
            raise b.unsupported(f"a sub-graph that is given {kinds[min(kinds)]}",
                                "convert it to float around the sub-graph")
        return _tagged(build(node), outs, lambda v, k, s: v if v.stored else replace(v, stored=s))
    first = len(b.steps)
    numbers = [k for k in kinds if node.op != "CastLike" or k == 0]
    names = {node.inputs[k]: f"{node.inputs[k]} as numbers" for k in numbers}
    for name, other in names.items():
        v = b.as_tensor(b.env[name])
        b.env[other] = widen_stored(b, v, node)
    b.unrounded = frozenset(outs)
    result = build(replace(node, inputs=tuple(names.get(i, i) for i in node.inputs)))
    b.unrounded = frozenset()
    own = {o for s in b.steps[first:] for o in s.outs}

    def rounded(v: Val, k: int, stored: str) -> Val:
        if v.stored:
            return v
        if stored == BF16 and v.dtype == WIDE and v.buffer in own:
            b.buffers[v.buffer] = replace(b.buffers[v.buffer], declared=BF16)
        made = convert_to_stored(b, v, stored, k)
        b.wide[made] = v
        return made
    return _tagged(result, outs, rounded)


def _of_characters(node: Node, b: "Builder", kinds: dict[int, str],
                   build: Callable[[Node], Result]) -> Result:
    """The node's Vals, of one that is given strings as bytes: others get them as places."""
    if not node.domain and node.op == "Equal":
        return compare_strings(b)
    if makes_texts(node) or not node.domain and node.op == "Identity":
        return build(node)
    if moves_texts(node) and list(kinds.values()) == [CHARS]:
        return move_texts(b, node, min(kinds), lambda n: call(n, b, build))
    names = {node.inputs[k]: f"{node.inputs[k]} as places" for k, s in kinds.items() if s == CHARS}
    for name, other in names.items():
        b.env[other] = place_texts(b, b.as_tensor(b.env[name]))
    return call(replace(node, inputs=tuple(names.get(i, i) for i in node.inputs)), b, build)


def _places(node: Node, b: "Builder", vals: list[Val]) -> bool:
    """True for an operator that is given the bits as they are: it places elements, which are not
    there as numbers already."""
    if node.op not in PLACES or node.domain or node.op in ("Cast", "CastLike"):
        return False
    return node.op in STEPS or not any(v in b.wide for v in vals)


def _tagged(result: Result, outs: dict[int, str], fn: Callable[[Val, int, str], Val]) -> Result:
    def one(v: Value | None, k: int) -> Value | None:
        return fn(v, k, outs[k]) if k in outs and isinstance(v, Val) else v
    if isinstance(result, tuple):
        return tuple(one(v, k) for k, v in enumerate(result))
    made = one(result, 0)
    assert made is not None, result  # a node's output
    return made


def _made(node: Node, k: int, kinds: dict[int, str]) -> str:
    """The stored type of output ``k``, "" if it is none: that of an input of its type, or an
    attribute says so.  ``kinds``: of the inputs."""
    for name in ("dtype", "to", "output_dtype"):
        if node.attrs.get(name):
            return stored_name(node.attrs[name]) or ""
    if node.op == "DequantizeLinear":
        return "" if kinds.get(1) == _SCALE else kinds.get(1, "")
    if node.op == "QuantizeLinear":
        return kinds.get(2, "")
    if not onnx.defs.has(node.op, node.opset, node.domain):
        return kinds.get(0, "")
    schema = onnx.defs.get_schema(node.op, node.opset, node.domain)
    formal = schema.outputs[min(k, len(schema.outputs) - 1)]
    alike = [j for j in range(len(node.inputs)) if node.inputs[j]
             and schema.inputs[min(j, len(schema.inputs) - 1)].type_str == formal.type_str]
    return next((kinds[j] for j in alike if j in kinds), "")


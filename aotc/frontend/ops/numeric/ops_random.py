"""Random numbers, as a function of a seed and of the place of an element: the same for any number
of threads, on every target, and for parts of a tensor.

The generator is a hash of 64 bits (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, 2014, the finaliser with the constants of Stafford's variant 13), applied to a counter
that starts where the seed, the node's name and the rounds of the loops around it say."""

import hashlib
import math
import struct

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.read.read_types import dtype_name
from aotc.frontend.read.settings import SEED
from aotc.ir.dtypes import DTYPES, INDEX, is_float
from aotc.ir.expr import Axis, Binary, Const, Expr, Shape, Unary, Var, Where, compare
from aotc.ir.program import Fold

_STEP = 0x9E3779B97F4A7C15  # odd, from the golden ratio: how far the counter goes per element
_ROUND = 0xD1B54A32D192ED03  # odd, per round of a loop
_MIXED = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_U64 = "u64"
_BITS = 24  # of a uniform number in f32


def _u64(op_name: str, a: Expr, b: int) -> Expr:
    return Binary(op_name, a, Const(b, _U64))


def _hashed(z: Expr) -> Expr:
    for shift, factor in _MIXED:
        z = _u64("mul", Binary("xor", z, _u64("shr", z, shift)), factor)
    return Binary("xor", z, _u64("shr", z, 31))


def _start(b: Builder) -> Expr:
    """Where the counter of the node starts: from its seed, or from the one that a call is given."""
    node = b.node
    given = struct.pack("<f", node.attrs["seed"]) if "seed" in node.attrs else b""
    digest = hashlib.sha256(given + b"\0" + node.label.encode()).digest()
    start: Expr = Const(int.from_bytes(digest[:8], "little"), _U64)
    if not given:
        start = Binary("xor", start, _hashed(cast(_U64, b.at(b.tensor(SEED), ()))))
    for k, turn in enumerate(b.rounds):
        far = _u64("mul", cast(_U64, turn) + Const(1, _U64), (_ROUND * (2 * k + 1)) % (1 << 64))
        start = _hashed(start + far)
    return start


def _started(b: Builder) -> Val:
    """``_start`` as a tensor: computed once."""
    return b.compute((), _start(b), tag="start")


def drawn(b: Builder, shape: Shape, tag: str = "bits") -> Val:
    """64 random bits per element of ``shape``, u64."""
    start, axes = _started(b), b.axes(shape)
    at: Expr = Const(0)
    for i, d in zip(axes, shape, strict=True):
        at = at * d + i
    step = _u64("mul", cast(_U64, at) + Const(1, _U64), _STEP)
    return b.compute(axes, _hashed(b.load(start, ()) + step), tag=tag)


def uniform(bits: Expr, first: int = 0, above: bool = False) -> Expr:
    """f32 in 0 <= u < 1, or 0 < u <= 1 where ``above``, of 24 bits from the ``first`` on."""
    low = _u64("and", _u64("shr", bits, 64 - _BITS - first), (1 << _BITS) - 1)
    return (cast("f32", cast("i32", low)) + const(1.0 if above else 0.0, "f32")) * const(
        2.0 ** -_BITS, "f32")


def normal(bits: Expr) -> Expr:
    """f32 of mean 0 and deviation 1 (Box and Muller)."""
    radius = Unary("sqrt", Unary("log", uniform(bits, above=True)) * const(-2.0, "f32"))
    return radius * Unary("cos", uniform(bits, _BITS) * const(2 * math.pi, "f32"))


def _dtype(b: Builder, default: str) -> str:
    """The dtype that the node makes."""
    number = b.node.attr("dtype")
    name = dtype_name(number) if number else default
    if name is None or name not in DTYPES:
        raise b.unsupported("numbers of a type that is stored only", "draw float, and cast it")
    return "f32" if name == "f16" else name


def _numbers(b: Builder, shape: Shape, default: str, gaussian: bool) -> Val:
    node, dtype = b.node, _dtype(b, default)
    if not is_float(dtype):
        raise b.bad(f"random numbers of {dtype}")
    if gaussian:
        first, factor = node.attr("mean", 0.0), node.attr("scale", 1.0)
    else:
        first = node.attr("low", 0.0)
        factor = node.attr("high", 1.0) - first
    bits = drawn(b, shape)

    def body(i: Index) -> Expr:
        e = normal(b.at(bits, i)) if gaussian else uniform(b.at(bits, i))
        return cast(dtype, e) * const(factor, dtype) + const(first, dtype)
    return b.map(shape, body, [bits])


@op("RandomNormal")
def random_normal(node: Node, b: Builder) -> Result:
    return _numbers(b, tuple(map(Const, node.attr("shape"))), "f32", True)


@op("RandomUniform")
def random_uniform(node: Node, b: Builder) -> Result:
    return _numbers(b, tuple(map(Const, node.attr("shape"))), "f32", False)


@op("RandomNormalLike")
def random_normal_like(node: Node, b: Builder) -> Result:
    return _numbers(b, b.input(0).shape, b.input(0).dtype, True)


@op("RandomUniformLike")
def random_uniform_like(node: Node, b: Builder) -> Result:
    return _numbers(b, b.input(0).shape, b.input(0).dtype, False)


@op("Bernoulli", since=15)
def bernoulli(node: Node, b: Builder) -> Result:
    """1 with the probability that an element is."""
    x = b.input(0)
    b.need(x, "f")
    bits, dtype = drawn(b, x.shape), _dtype(b, x.dtype)
    return b.map(x.shape, lambda i: Where(
        compare("lt", cast(x.dtype, uniform(b.at(bits, i))), b.at(x, i)),
        Const(True if dtype == "bool" else 1, dtype), Const(
            False if dtype == "bool" else 0, dtype)), [bits, x])


@op("Multinomial")
def multinomial(node: Node, b: Builder) -> Result:
    """Classes by their logarithmic weights: the largest sum of one and of noise that is
    distributed as maxima are (Gumbel) is a class as often as its weight says."""
    x, count = b.input(0), node.attr("sample_size", 1)
    b.need(x, "f")
    if x.rank != 2:
        raise b.bad(f"weights [batch, classes] expected, got {x}")
    b.nonempty(x.shape[1], (x.shape[0], Const(count)), "classes to choose from")
    bits = drawn(b, (x.shape[0], Const(count), x.shape[1]))
    axes, c = b.axes((x.shape[0], Const(count))), Axis("c", x.shape[1])
    noise = Unary("log", Unary("log", uniform(b.load(bits, (*axes, c)), above=True)
                               * const(1 - 2.0 ** -_BITS, "f32")) * const(-1.0, "f32"))
    score = cast("f32", b.load(x, (axes[0], c))) - noise
    best, at, mine = Var("best", "f32"), Var("at", INDEX), Var("x", "f32")
    better = compare("gt", mine, best)
    fold = Fold((("best", "f32"), ("at", INDEX)), (const(-math.inf, "f32"), Const(0)),
                (Where(better, mine, best), Where(better, c, at)))
    _, found = b.compute_fold(axes, (c,), fold, score, ("best", "class"))
    dtype = dtype_name(node.attr("dtype", 6)) or "i32"
    return b.map(found.shape, lambda i: cast(dtype, b.at(found, i)), [found])


# ---------------------------------------------------------------- Dropout

@op("Dropout")
def dropout(node: Node, b: Builder) -> Result:
    """The input, and all true as the mask where that is wanted; in training what is drawn."""
    x, ratio, mode = b.input(0), b.arg(1), b.arg(2)
    share = 0.5 if ratio is None else b.scalar(ratio)
    training = False if mode is None else b.scalar(mode)
    masked = bool(len(node.outputs) > 1 and node.outputs[1])
    if training in (0, False) or share == 0:
        return (x, b.map(x.shape, lambda index: Const(True, "bool"),
                         [b.scalar_val(True, "bool")], out=1)) if masked else x
    b.need(x, "f")
    bits = drawn(b, x.shape)

    def drop() -> Expr:
        r = const(0.5, "f32") if ratio is None else cast("f32", b.at(ratio, _zeros(ratio)))
        on: Expr = Const(True, "bool") if mode is None else b.at(mode, _zeros(mode))
        return Where(on, r, const(0.0, "f32"))
    kept = b.map(x.shape, lambda i: compare("ge", uniform(b.at(bits, i)), drop()),
                 [v for v in (bits, ratio, mode) if v is not None], "" if masked else "kept", 1)

    def body(i: Index) -> Expr:
        scaled = b.at(x, i) / (const(1.0, x.dtype) - cast(x.dtype, drop()))
        return Where(b.at(kept, i), scaled, const(0.0, x.dtype))
    y = b.map(x.shape, body, [v for v in (x, kept, ratio, mode) if v is not None])
    return (y, kept) if masked else y


def _zeros(v: Val) -> Index:
    return (Const(0),) * v.rank

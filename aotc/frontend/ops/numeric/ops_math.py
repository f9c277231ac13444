"""Elementwise arithmetic, comparison, logic and conversion."""

import math
from collections.abc import Callable, Sequence
from functools import partial

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import Build, op
from aotc.frontend.building.stored import convert_to_stored
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import At, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.read.read_types import dtype_name, stored_name
from aotc.ir.dtypes import CHARS, DTYPES, STORED, TEXT, is_float, is_int
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Unary,
    Where,
    binary,
    compare,
    depends_on_data,
    maximum,
)
from aotc.ir.simplify import lower, simplify, upper

F, I, U, B = "f", "i", "u", "b"

# ONNX name, expression op, kinds of dtype it is defined on
_UNARY = (
    *((n, e, F) for n, e in (
        ("Sqrt", "sqrt"), ("Exp", "exp"), ("Log", "log"), ("Erf", "erf"), ("Tanh", "tanh"),
        ("Sin", "sin"), ("Cos", "cos"), ("Tan", "tan"), ("Asin", "asin"), ("Acos", "acos"),
        ("Atan", "atan"), ("Sinh", "sinh"), ("Cosh", "cosh"), ("Asinh", "asinh"),
        ("Acosh", "acosh"), ("Atanh", "atanh"), ("Floor", "floor"), ("Ceil", "ceil"),
        ("Round", "round"), ("IsNaN", "isnan"))),
    ("Neg", "neg", F + I), ("Abs", "abs", F + I + U), ("Sign", "sign", F + I + U),
    ("Not", "not", B))
_COMPARE = (("Equal", "eq", F + I + U + B), ("Less", "lt", F + I + U),
            ("LessOrEqual", "le", F + I + U), ("Greater", "gt", F + I + U),
            ("GreaterOrEqual", "ge", F + I + U))
_BINARY = (("Add", "add", F + I + U), ("Sub", "sub", F + I + U), ("Mul", "mul", F + I + U),
           ("And", "and", B), ("Or", "or", B), ("Xor", "xor", B), ("BitwiseAnd", "and", I + U),
           ("BitwiseOr", "or", I + U), ("BitwiseXor", "xor", I + U))
_VARIADIC = (("Max", "max", F + I + U), ("Min", "min", F + I + U), ("Sum", "add", F))


def unary(name: str, x: Expr) -> Expr:
    """Unary node; on shape values negation is a subtraction and logic folds."""
    if name == "neg" and x.dtype == "i64":
        return binary("sub", 0, x)
    if name == "not" and isinstance(x, Const):
        return Const(not x.value, "bool")
    if name in ("floor", "ceil", "round") and is_int(x.dtype):
        return x
    if name in ("sign", "abs") and DTYPES[x.dtype].kind == "u":
        return x if name == "abs" else cast(x.dtype, compare("ne", x, const(0, x.dtype)))
    return Unary(name, x)


def _unary_op(name: str, kinds: str) -> Build:
    def build(node: Node, b: Builder) -> Result:
        x = b.input(0)
        b.need(x, kinds)
        return b.elementwise(lambda e: unary(name, e), x)
    return build


def _binary_op(fn: Callable[[Expr, Expr], Expr], kinds: str) -> Build:
    def build(node: Node, b: Builder) -> Result:
        x, y = b.input(0), b.input(1)
        b.same_dtype(x, y)
        b.need(x, kinds)
        return b.elementwise(fn, x, y)
    return build


RUN = 32  # operands of one expression: hundreds would nest too deep, and be one kernel's to inline


def _over_all(b: Builder, fn: Callable[[Expr, Expr], Expr],
              vals: Sequence[Val]) -> tuple[Callable[..., Expr], Sequence[Val]]:
    """``fn`` over all ``vals`` from the left; of many, over runs of them first, each a tensor."""
    def folded(*elements: Expr) -> Expr:
        out = elements[0]
        for e in elements[1:]:
            out = fn(out, e)
        return out
    depth = 0
    while len(vals) > RUN:
        runs = [vals[i:i + RUN] for i in range(0, len(vals), RUN)]
        vals = [run[0] if len(run) == 1 else b.elementwise(folded, *run, tag=f"run_{depth}_{k}")
                for k, run in enumerate(runs)]
        depth += 1
    return folded, vals


def _variadic_op(name: str, kinds: str) -> Build:
    def build(node: Node, b: Builder) -> Result:
        vals = b.inputs()
        b.same_dtype(*vals)
        b.need(vals[0], kinds)
        if len(vals) == 1:
            return vals[0]
        folded, parts = _over_all(b, lambda x, y: binary(name, x, y), vals)
        return b.elementwise(folded, *parts)
    return build


for _name, _e, _kinds in _UNARY:
    op(_name)(_unary_op(_e, _kinds))
for _name, _e, _kinds in _COMPARE:
    op(_name)(_binary_op(partial(compare, _e), _kinds))
for _name, _e, _kinds in _BINARY:
    op(_name)(_binary_op(partial(binary, _e), _kinds))
for _name, _e, _kinds in _VARIADIC:
    op(_name)(_variadic_op(_e, _kinds))


@op("Mean")
def mean(node: Node, b: Builder) -> Result:
    vals = b.inputs()
    b.same_dtype(*vals)
    b.need(vals[0], F)

    part = const(1 / len(vals), vals[0].dtype)
    folded, parts = _over_all(b, lambda x, y: x + y, vals)
    return b.elementwise(lambda *elements: folded(*elements) * part, *parts)


def quotient(x: Expr, y: Expr) -> Expr:
    """ONNX Div: integers truncate toward zero; on non-negative indices that is floor division."""
    if x.dtype == "i64":
        lo, div = lower(x), lower(y)
        if lo is not None and lo >= 0 and div is not None and div > 0:
            return simplify(x // y)
        if isinstance(x, Const) and isinstance(y, Const) and y.value:
            return Const(int(math.trunc(x.value / y.value)) if abs(x.value) < 1 << 52
                         else abs(x.value) // abs(y.value) * (1 if x.value * y.value > 0 else -1))
        if not depends_on_data(x) and not depends_on_data(y):
            return _truncated(x, y)
    return binary("div", x, y)


def _truncated(x: Expr, y: Expr) -> Expr:
    """The quotient of indices of any sign in floor divisions, which bounds are known of and C has:
    half of what a crop leaves, say, which is less than nothing where it is none."""
    least, most = lower(y), upper(y)
    if most is not None and most < 0:
        return _truncated(simplify(0 - x), simplify(0 - y))
    zero = Const(0)
    if least is not None and least > 0:
        return simplify(maximum(x, zero) // y - maximum(0 - x, zero) // y)
    whole = maximum(x, 0 - x) // maximum(maximum(y, 0 - y), Const(1))
    negative = Where(compare("lt", y, zero), whole, 0 - whole)
    found = Where(compare("lt", x, zero), negative, Where(compare("lt", y, zero), 0 - whole, whole))
    return simplify(Where(compare("eq", y, zero), zero, found))


op("Div")(_binary_op(quotient, F + I + U))


@op("Mod")
def mod(node: Node, b: Builder) -> Result:
    x, y = b.input(0), b.input(1)
    b.same_dtype(x, y)
    b.need(x, F + I + U)
    if is_float(x.dtype) and not node.attr("fmod", 0):
        return b.elementwise(_floor_mod, x, y)
    if not node.attr("fmod", 0) or is_float(x.dtype):
        return b.elementwise(lambda p, q: binary("mod", p, q), x, y)
    return b.elementwise(_remainder, x, y)


def _remainder(p: Expr, q: Expr) -> Expr:
    """Integers: of a quotient that truncates; 0 of a division by zero."""
    rest, zero = p - quotient(p, q) * q, const(0, p.dtype)
    if isinstance(q, Const):
        return rest if q.value else zero
    return Where(compare("eq", q, zero), zero, rest)


def _floor_mod(p: Expr, q: Expr) -> Expr:
    """Floats: fmod, moved to the divisor's sign."""
    r, zero = binary("mod", p, q), const(0, p.dtype)
    other = Binary("ne", compare("lt", r, zero), compare("lt", q, zero))
    return Where(Binary("and", compare("ne", r, zero), other), r + q, r)


@op("Pow")
def power(node: Node, b: Builder) -> Result:
    x, y = b.input(0), b.input(1)
    b.need(x, F + I)
    exponent = b.scalar(y)
    one = const(1, x.dtype)
    known: dict[float | None, At] = {1: lambda e: e, 2: lambda e: e * e, 3: lambda e: e * e * e,
                                     0: lambda e: one}
    if is_float(x.dtype):
        known |= {0.5: lambda e: Unary("sqrt", e), -1: lambda e: one / e,
                  -0.5: lambda e: one / Unary("sqrt", e)}
    if exponent in known:
        # the exponent still takes part in broadcasting: it may have more dimensions
        return b.elementwise(lambda e, _: known[exponent](e), x, y)
    if is_int(x.dtype) and is_float(y.dtype):
        return b.elementwise(lambda e, p: cast(x.dtype, Binary("pow", cast("f64", e),
                                                               cast("f64", p))), x, y)
    return b.elementwise(lambda e, p: Binary("pow", e, cast(x.dtype, p)), x, y)


@op("Reciprocal")
def reciprocal(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, F)
    return b.elementwise(lambda e: const(1, x.dtype) / e, x)


@op("BitShift", since=11)
def bit_shift(node: Node, b: Builder) -> Result:
    x, y = b.input(0), b.input(1)
    b.same_dtype(x, y)
    b.need(x, I + U)
    name = {"LEFT": "shl", "RIGHT": "shr"}[node.attr("direction")]
    return b.elementwise(lambda p, q: Binary(name, p, q), x, y)


@op("BitwiseNot", since=18)
def bitwise_not(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, I + U)
    ones = const(-1, x.dtype)
    return b.elementwise(lambda e: binary("xor", e, ones), x)


@op("IsInf", since=10)
def is_inf(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, F)
    up, down = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    if up and down:
        return b.elementwise(lambda e: Unary("isinf", e), x)
    if not up and not down:
        return b.elementwise(lambda e: Const(False, "bool"), x)
    inf = const(math.inf if up else -math.inf, x.dtype)
    return b.elementwise(lambda e: compare("eq", e, inf), x)


@op("Where", since=9)
def where(node: Node, b: Builder) -> Result:
    cond, x, y = b.inputs()
    b.same_dtype(x, y)
    if cond.dtype != "bool":
        raise b.bad("the condition must be bool")
    return b.elementwise(Where, cond, x, y)


@op("Cast")
def cast_op(node: Node, b: Builder) -> Result:
    to = dtype_name(node.attr("to")) or stored_name(node.attr("to"))
    return _convert(b, b.input(0), to)


@op("CastLike", since=15)
def cast_like(node: Node, b: Builder) -> Result:
    return _convert(b, b.input(0), b.kinds.get(1) or b.input(1).dtype)


def _convert(b: Builder, x: Val, to: str | None) -> Val:
    if to is None or to == TEXT:
        raise b.unsupported("conversion to this dtype", f"use one of {', '.join(DTYPES)}")
    if to in STORED:
        return convert_to_stored(b, x, to, 0, bool(b.node.attr("saturate", 1)),
                                 str(b.node.attr("round_mode", "up")))
    if to == x.dtype:
        return x
    return b.elementwise(lambda e: cast(to, e), x)


def clamp(b: Builder, x: Val, lo: Val | None, hi: Val | None, tag: str = "") -> Val:
    """min(max(x, lo), hi) with either bound None; bounds are Vals of one element."""
    bounds = [v for v in (lo, hi) if v is not None]
    if not bounds:
        return x
    b.same_dtype(x, *bounds)

    def body(index: Index) -> Expr:
        e = b.at(x, index)
        for v, name in ((lo, "max"), (hi, "min")):
            if v is not None:
                e = binary(name, e, b.at(v, (Const(0),) * v.rank))
        return e
    return b.map(x.shape, body, [x] + bounds, tag)


@op("Clip")
def clip_by_attributes(node: Node, b: Builder) -> Result:
    x = b.input(0)
    lo, hi = (b.scalar_val(node.attrs[k], x.dtype) if k in node.attrs else None
              for k in ("min", "max"))
    return clamp(b, x, lo, hi)


@op("Clip", since=11)
def clip(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, F + I + U)
    return clamp(b, x, b.arg(1), b.arg(2))


@op("Identity")
def identity(node: Node, b: Builder) -> Result:
    v = b.env[node.inputs[0]]
    return b.input(0) if isinstance(v, Val) and v.stored != CHARS else v  # lists as they are

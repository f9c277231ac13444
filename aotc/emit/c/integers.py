"""C text of integer arithmetic on data, defined for every operand (aotc_num.h), and of casts.

Sums and products of i32 and i64 wrap: they are written in the unsigned type of the same width and
cast back once per expression.  Index arithmetic (cexpr.py) cannot overflow and stays plain.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, TypeGuard

from aotc.emit.text.cexpr import ATOM
from aotc.ir.dtypes import BF16, DTYPES, HALVES, INDEX, DType
from aotc.ir.expr import Binary, Cast, Const, Expr, Guarded, Load, Unary, children, walk
from aotc.ir.simplify import lower

if TYPE_CHECKING:
    from aotc.emit.c.scalars import Scalars

CAST = 14  # C precedence of a cast or another prefix operator
_RING = {"add": ("+", 12, 12, 13), "sub": ("-", 12, 12, 13), "mul": ("*", 13, 13, 14)}
_UNSIGNED = {"i32": "uint32_t", "i64": "uint64_t", "u16": "uint32_t"}
# op -> functions for signed and for unsigned operands
_CALLS = {"div": ("aotc_idiv", "aotc_udiv"), "floordiv": ("aotc_ifloordiv", "aotc_udiv"),
          "mod": ("aotc_ifloormod", "aotc_umod"), "pow": ("aotc_ipow", "aotc_upow"),
          "min": ("aotc_min", "aotc_umin"), "max": ("aotc_max", "aotc_umax"),
          "shl": ("aotc_shl", "aotc_shl"), "shr": ("aotc_ishr", "aotc_ushr")}
# where the divisor is known to be positive
_PLAIN = {("div", "i"): "/", ("div", "u"): "/", ("floordiv", "u"): "/", ("mod", "u"): "%"}
_POSITIVE = {"floordiv": "aotc_floordiv", "mod": "aotc_floormod"}
_INDEX_OPS = {"add", "sub", "mul", "floordiv", "mod", "min", "max", "lt", "le", "gt", "ge", "eq",
              "ne"}


def is_index(e: Expr, known: Collection[Expr] = ()) -> bool:
    """True if ``e`` is arithmetic over loop variables, symbols and constants alone, as ``c_index``
    writes it.  ``known``: variables that stand for other text."""
    return all(n not in known and _is_index_node(n) for n in walk(e))


def _is_index_node(n: Expr) -> bool:
    if isinstance(n, Binary):
        return n.op in _INDEX_OPS or n.dtype == "bool" and n.op in ("and", "or")
    if isinstance(n, Unary):
        return (n.op, n.dtype) in (("neg", INDEX), ("sqrt", INDEX), ("not", "bool"))
    return not isinstance(n, (Load, Cast)) and n.dtype in (INDEX, "bool")


def is_unchecked_data(e: Expr, known: Collection[Expr] = ()) -> bool:
    """True if ``e`` has a value from data in it that no ``checked`` has bounded."""
    if isinstance(e, Load) or e in known:
        return True
    return not (isinstance(e, Guarded) and e.op == "checked") and any(
        is_unchecked_data(k, known) for k in children(e))


def may_wrap(e: Expr, known: Collection[Expr] = ()) -> TypeGuard[Binary]:
    """True for sums and products whose overflow C leaves undefined."""
    return (isinstance(e, Binary) and e.op in _RING and e.dtype in _UNSIGNED
            and (e.dtype != "u16" or e.op == "mul")
            and (e.dtype != INDEX or is_unchecked_data(e, known)))


def wrap_text(s: "Scalars", e: Binary) -> tuple[str, int]:
    """(text, precedence) of a sum or product that wraps."""
    text, _ = _ring(s, e)
    return f"({DTYPES[e.dtype].c})({text})", CAST


def _ring(s: "Scalars", e: Binary) -> tuple[str, int]:
    """The same in the unsigned type; operands that are such sums themselves are not cast back."""
    sign, level, left, right = _RING[e.op]
    parts = []
    for k, least, first in ((e.a, left, True), (e.b, right, False)):
        if e.dtype != "u16" and may_wrap(k, s.env["vars"]) and k not in s.known and k not in s.many:
            text, inner = _ring(s, k)
            parts.append(f"({text})" if inner < least else text)
        elif not first and isinstance(k, Const) and 0 <= k.value < 1 << 31:
            parts.append(str(k.value))
        else:
            parts.append(f"({_UNSIGNED[e.dtype]}){s.text(k, CAST)}")
    return f"{parts[0]} {sign} {parts[1]}", level


def integer_call(s: "Scalars", e: Binary) -> tuple[str, int]:
    """(text, precedence) of a division, remainder, power, shift, min or max of integers."""
    t = DTYPES[e.a.dtype]
    unsigned = t.kind == "u"
    if e.op in ("div", "floordiv", "mod") and _positive(e.b):
        sign = _PLAIN.get((e.op, t.kind))
        if sign is None:
            return _narrowed(t, f"{_POSITIVE[e.op]}({s.text(e.a)}, {s.text(e.b)})")
        text = f"{s.text(e.a, 13)} {sign} {s.text(e.b, CAST)}"
        return (text, 13) if t.size >= 4 else (f"({t.c})({text})", CAST)
    call = _CALLS[e.op][unsigned]
    if t.name == "u64" or e.op not in ("min", "max"):
        width = f", {8 * t.size}" if e.op in ("shl", "shr") else ""
        return _narrowed(t, f"{call}({s.text(e.a)}, {s.text(e.b)}{width})", e.op == "shl")
    return _narrowed(t, f"{_CALLS[e.op][0]}({s.text(e.a)}, {s.text(e.b)})")


def _narrowed(t: DType, call: str, always: bool = False) -> tuple[str, int]:
    """A call that gives 64 bits, as the dtype."""
    if t.size == 8 and not always:
        return call, ATOM
    return f"({t.c}){call}", CAST


def _positive(e: Expr) -> bool:
    """The divisor is known to be positive."""
    if isinstance(e, Const):
        return bool(e.value > 0)
    low = lower(e) if e.dtype == INDEX and is_index(e) else None
    return low is not None and low > 0


def integer_unary(e: Unary, x: str) -> str | None:
    """C text of neg, abs or sign of an integer; ``x`` is the operand's, None if it is no such
    operator."""
    t = DTYPES[e.dtype]
    if e.op == "abs":
        return x if t.kind == "u" else f"(({t.c})aotc_iabs({x}))"
    if e.op == "sign":
        return f"(({t.c})({x} > 0))" if t.kind == "u" else f"(({t.c})aotc_isign({x}))"
    if e.op == "neg":
        if t.name in ("i32", "i64"):
            return f"(({t.c})(0u - ({_UNSIGNED[t.name]}){x}))"
        return f"(({t.c})(-{x}))"
    return None


def cast(e: Cast, x: str) -> str:
    """C text of a Cast; ``x`` is the operand's text, an atom."""
    source, to = DTYPES[e.x.dtype], DTYPES[e.dtype]
    if source.name in HALVES:
        source, x = DTYPES["f32"], f"aotc_{source.name}_to_f32({x})"
    if to.name == BF16:
        return f"aotc_f32_to_bf16({x if source.name == 'f32' else f'(float){x}'})"
    if to.name == "f16":
        return f"aotc_{'f32' if source.name == 'f32' else 'f64'}_to_f16({x})"
    if to.kind == "b":
        return f"{x} != 0"
    if source.kind != "f" or to.kind == "f":
        return f"(({to.c}){x})"
    if to.name == "u64":
        return f"aotc_f64_to_u64({x})"
    if to.name in ("i64", "u32"):
        call = f"aotc_f64_to_i64({x})"
        return call if to.name == "i64" else f"((uint32_t){call})"
    call = f"aotc_{source.name}_to_i32({x})"
    return call if to.name == "i32" else f"(({to.c}){call})"

"""C text of index expressions (extents, offsets, tile counts, conditions on them).

Every operand is int64_t; a symbol is read from the frame ``f``, axes and variables are C
variables of the same name.
"""

from dataclasses import fields

from aotc.emit.text.c_names import identifier
from aotc.errors import AotcError
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Sym, Unary, Var, Where, show
from aotc.ir.simplify import lower
from aotc.ir.statements import WORKERS

_INFIX = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "eq": "==", "ne": "!=", "and": "&&", "or": "||", "xor": "^"}
_CALL = {"min": "aotc_min", "max": "aotc_max", "floordiv": "aotc_floordiv",
         "mod": "aotc_floormod"}
_TRUNCATING = {"floordiv": "/", "mod": "%"}


def sym_field(name: str) -> str:
    """The frame's field that holds a symbol's value."""
    return "workers" if name == WORKERS.name else f"sym_{identifier(name)}"


class Argument(Sym):
    """A symbol that is no field of a frame but an argument of the function."""

    @staticmethod
    def of(s: Sym) -> "Argument":
        return Argument(**{f.name: getattr(s, f.name) for f in fields(s)})


def c_int(value: int) -> str:
    """An integer literal whose type holds the value; ``-`` needs no parentheses around it."""
    if value == -(1 << 63):
        return "INT64_MIN"
    text = str(value) if abs(value) < 1 << 31 else f"INT64_C({abs(value)})"
    return f"(-{text.lstrip('-')})" if value < 0 else text


def plus(text: str, n: int) -> str:
    """C text of an address ``n`` elements behind another."""
    return f"{text} + {n}" if n else text


def constant(e: Expr) -> int:
    """The value of an index expression that a Plan has as a number, such as the extent of a tap."""
    assert isinstance(e, Const), f"{show(e)} is no constant"
    return int(e.value)


ATOM = 20  # C precedence: a name, a call, anything in brackets
_LEVEL = {"or": 4, "and": 5, "xor": 7, "eq": 9, "ne": 9, "lt": 10, "le": 10, "gt": 10, "ge": 10,
          "add": 12, "sub": 12, "mul": 13, "floordiv": 13, "mod": 13}


def bracket(text: str, level: int, least: int) -> str:
    """``text`` of an operator at ``level``, in brackets where the context binds tighter."""
    return f"({text})" if level < least else text


def c_index(e: Expr, least: int = ATOM) -> str:
    """C text of an index expression or a condition on indices; in brackets unless its precedence
    is at least ``least``.

    AotcError for a node that is no index arithmetic (a load, a float, a checked index).
    """
    text, level = _index(e)
    return bracket(text, level, least)


def c_size(e: Expr) -> str:
    """C text of an index expression, never negative, as a factor of a size in bytes."""
    text = c_index(e)
    return text if isinstance(e, Const) else f"(size_t){text}"


def _index(e: Expr) -> tuple[str, int]:
    if isinstance(e, Const):
        return c_int(int(e.value)), ATOM
    if isinstance(e, Argument):
        return sym_field(e.name), ATOM
    if isinstance(e, Sym):
        return f"f->{sym_field(e.name)}", ATOM
    if isinstance(e, (Axis, Var)):
        return e.name, ATOM
    if isinstance(e, Where):
        return f"{c_index(e.cond, 6)} ? {_wide(e.a, 6)} : {c_index(e.b, 6)}", 3
    if isinstance(e, Cast) and e.dtype == "i64":
        return f"(int64_t){c_index(e.x)}", 14
    if isinstance(e, Unary) and e.op == "sqrt" and e.dtype == "i64":
        return f"aotc_isqrt({c_index(e.x, 0)})", ATOM
    if isinstance(e, Unary) and e.op in ("neg", "not"):
        return (f"-{_wide(e.x)}" if e.op == "neg" else f"!{c_index(e.x)}"), 14
    if isinstance(e, Binary) and e.op in _TRUNCATING and _not_negative(e):
        return f"{_left(e, 13)} {_TRUNCATING[e.op]} {c_index(e.b, 14)}", 13
    if isinstance(e, Binary) and e.op in _CALL:
        return f"{_CALL[e.op]}({c_index(e.a, 0)}, {c_index(e.b, 0)})", ATOM
    if isinstance(e, Binary) and e.op == "add" and isinstance(e.b, Const) and e.b.value > 0:
        e = _from_constant(e.a, e.b) or e
    if isinstance(e, Binary) and e.op in _INFIX:
        level = _LEVEL[e.op]
        # compilers ask for brackets where comparisons mix, or && and ||, or ^ and +
        left, right = (level, level + 1) if level >= 12 else (9, 9) if level < 7 else (
            13, 13) if level < 9 else (11, 11)
        if level < 9 and isinstance(e.a, Binary) and e.a.op == e.op:
            left = level
        return f"{_left(e, left)} {_INFIX[e.op]} {c_index(e.b, right)}", level
    raise AotcError(f"{show(e)}: no index expression, cannot be written as C index arithmetic")


def _from_constant(e: Expr, c: Const) -> Binary | None:
    """``c - x`` of ``0 - x + c``, where ``e`` is all but the constant; None for others."""
    if not isinstance(e, Binary) or e.op not in ("add", "sub"):
        return None
    if e.op == "sub" and e.a == Const(0):
        return Binary("sub", c, e.b)
    first = _from_constant(e.a, c)
    return None if first is None else Binary(e.op, first, e.b)


def _left(e: Binary, least: int) -> str:
    """The left operand: a constant before a constant gets 64 bits."""
    return _wide(e.a, least) if isinstance(e.b, Const) else c_index(e.a, least)


def _wide(e: Expr, least: int = ATOM) -> str:
    """A constant in 64 bits, so that nothing that it meets is computed in int."""
    if isinstance(e, Const) and e.dtype == "i64" and 0 <= e.value < 1 << 31:
        return f"INT64_C({e.value})"
    return c_index(e, least)


def _not_negative(e: Binary) -> bool:
    """True where C's truncating division gives floor division: proved not negative, by what is
    proved positive."""
    low, divisor = lower(e.a), lower(e.b)
    return low is not None and divisor is not None and low >= 0 and divisor > 0

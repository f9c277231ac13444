"""C text of value expressions: scalar code, with shared sub-expressions in named constants."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np

from aotc.emit.c.arrays import element
from aotc.emit.c.integers import (
    CAST,
    cast,
    integer_call,
    integer_unary,
    is_index,
    is_unchecked_data,
    may_wrap,
    wrap_text,
)
from aotc.emit.text.cexpr import ATOM, _index, bracket, c_index
from aotc.emit.text.env import Env
from aotc.errors import UnsupportedError
from aotc.ir.dtypes import BF16, DTYPES, INDEX, to_bf16
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    Unary,
    Var,
    Where,
    children,
    show,
)
from aotc.ir.kernel.plan_kernels import Kernel, Rule
from aotc.ir.numbers.fixed_point import match_rescaled, match_shifted

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">",
          "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^"}
LEVEL = {"or": 6, "xor": 7, "and": 8, "eq": 9, "ne": 9, "lt": 10, "le": 10, "gt": 10, "ge": 10,
          "add": 12, "sub": 12, "mul": 13, "div": 13}
CONDITION = 9  # of ? and :, in front of which compilers ask for brackets around & | ^
_SIGN = 11  # a sign stands alone, or behind a comparison: in sums it has brackets
_LIBM = {"sqrt", "exp", "log", "erf", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
         "cosh", "asinh", "acosh", "atanh", "floor", "ceil"}
_LIBM_NAME = {"round": "nearbyint", "abs": "fabs"}
_FLOAT_CALLS = {"mod": "fmod", "pow": "pow"}


def literal(value: Any, dtype: str) -> str:
    """C literal of a constant, in brackets if it has a sign; hexadecimal floats are exact."""
    text, level = signed_literal(value, dtype)
    return bracket(text, level, ATOM)


def signed_literal(value: Any, dtype: str) -> tuple[str, int]:
    """(C literal of a constant, its precedence)."""
    if dtype not in ("f32", "f64") or not value < 0 or value == float("-inf"):
        return _unsigned(value, dtype), ATOM
    return _decimal(value, dtype) + ("f" if dtype == "f32" else ""), _SIGN


def _unsigned(value: Any, dtype: str) -> str:
    if dtype == "bool":
        return "1" if value else "0"
    if dtype in ("f32", "f64"):
        suffix = "f" if dtype == "f32" else ""
        if value != value:
            return "NAN" if dtype == "f32" else "(double)NAN"
        if value in (float("inf"), float("-inf")):
            return ("-" if value < 0 else "") + ("INFINITY" if dtype == "f32" else "HUGE_VAL")
        return _decimal(value, dtype) + suffix
    if dtype == BF16:
        return f"(uint16_t)0x{int(to_bf16(np.asarray(value))):04x}"
    if dtype == "f16":  # the bits
        return f"(uint16_t)0x{DTYPES[dtype].numpy.type(value).view('uint16'):04x}"
    if dtype == INDEX:
        return c_index(Const(value), 0)
    if dtype == "u64":
        return f"UINT64_C({value})"
    return f"({DTYPES[dtype].c})({value})"


def _decimal(value: Any, dtype: str) -> str:
    """Shortest decimal that reads back as the same value of the dtype."""
    exact = DTYPES[dtype].numpy.type(value)
    text = repr(exact.item()) if dtype == "f64" else str(exact)
    if DTYPES[dtype].numpy.type(float(text)) != exact:
        text = repr(float(exact))
    return text if any(c in text for c in ".en") else text + ".0"


def find_shared(roots: Iterable[Expr]) -> set[Expr]:
    """Non-trivial nodes used more than once below the roots."""
    todo = list(roots)
    count, seen = Counter(todo), set[Expr]()
    while todo:
        n = todo.pop()
        if n in seen:
            continue
        seen.add(n)
        for k in children(n):
            count[k] += 1
            todo.append(k)
    return {n for n, c in count.items() if c > 1 and not isinstance(n, (Const, Axis, Sym, Var))}


def rule_call(rules: Sequence[Rule], kernel: Kernel, prefix: str,
              first: str) -> Callable[[Guarded], str]:
    """Function from a Guarded of the kernel to the start of the C call that keeps its rule, told by
    its number among ``rules``: of the function ``prefix_checked`` or ``prefix_expected``, whose
    first argument is ``first``."""
    number = {rule: i for i, rule in enumerate(rules)}
    return lambda e: f"{prefix}_{e.op}({first}, {number[kernel.rule(e)]}, "


class LocalNames:
    """Fresh names of local constants inside one kernel."""

    def __init__(self) -> None:
        self.count = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"


class Scalars:
    """Straight-line scalar C.  ``lines`` collects the declarations that ``text`` needs.

    env: {"buffer": name -> C pointer, "rule": Guarded -> C text of its call's first arguments}.
    """

    def __init__(self, env: Env, names: LocalNames, roots: Iterable[Expr] = ()) -> None:
        self.env, self.names = env, names
        self.lines: list[str] = []
        self.known: dict[Expr, str] = {}
        self.many = find_shared(roots)

    def text(self, e: Expr, least: int = 0) -> str:
        """C expression of ``e`` (in brackets unless it binds at least as tight as ``least``);
        shared parts become constants declared in ``lines``."""
        if e in self.known:
            return self.known[e]
        out, level = self._node(e)
        if e in self.many and not isinstance(e, (Const, Axis, Sym, Var)):
            name = self.names.fresh("s")
            self.lines.append(f"const {DTYPES[e.dtype].c} {name} = {out};")
            out, level = name, ATOM
            self.known[e] = out
        return bracket(out, level, least)

    def _node(self, e: Expr) -> tuple[str, int]:
        """(text, precedence)."""
        if isinstance(e, Const):
            return signed_literal(e.value, e.dtype)
        if isinstance(e, Var):
            return self.env["vars"].get(e, e.name), ATOM
        if isinstance(e, Load):
            get = self.env.get("get")
            return (element(self.env, e.buffer, e.index[0], self.text) if get is None else
                    get(e.buffer, self.text(e.index[0]), e.dtype)), ATOM
        if isinstance(e, Cast):
            fixed = match_rescaled(e)
            if fixed is not None:
                x, m, shift = fixed
                return f"aotc_rescale({self.text(x)}, {self.text(m)}, {shift})", ATOM
            whole = match_shifted(e)
            if whole is not None:
                return f"aotc_shift({self.text(whole[0])}, {whole[1]})", ATOM
            if e.dtype == "bool":
                return cast(e, self.text(e.x, ATOM)), LEVEL["ne"]
            return cast(e, self.text(e.x, ATOM)), ATOM
        if e.dtype == INDEX and is_index(e, self.env["vars"]):
            return c_index(e, 0), _index(e)[1]
        if isinstance(e, Where):
            return (f"{self.text(e.cond, CONDITION)} ? {self._branch(e.a, e.cond)} : "
                    f"{self._branch(e.b)}", 3)
        if isinstance(e, Unary):
            return self._unary(e), ATOM
        assert isinstance(e, Binary), e  # axes and symbols are indices
        return self._binary(e)

    def _binary(self, e: Binary) -> tuple[str, int]:
        t = DTYPES[e.a.dtype]
        if isinstance(e, Guarded):
            return f"{self.env['rule'](e)}{self.text(e.a)}, {self.text(e.b)})", ATOM
        if t.kind == "f" and e.op not in _INFIX:
            return self._float_call(e), ATOM
        if may_wrap(e, self.env["vars"]):
            return wrap_text(self, e)
        if e.op not in _INFIX or e.op == "div" and t.kind != "f":
            return integer_call(self, e)
        if t.size >= 4 or e.dtype == "bool":
            return self._infix(e)
        text = f"({self.text(e.a, ATOM)} {_INFIX[e.op]} {self.text(e.b, ATOM)})"
        return f"({t.c}){text}", CAST

    def _infix(self, e: Binary) -> tuple[str, int]:
        level = LEVEL[e.op]
        # compilers ask for brackets around what is no plain operand of & | ^, and around shifts
        # and comparisons in comparisons
        left, right = (level, level + 1) if level >= 12 else (14, 14) if level <= 8 else (11, 11)
        if level < 12 and isinstance(e.a, Binary) and e.a.op == e.op and e.op in ("and", "or"):
            left = level
        return f"{self.text(e.a, left)} {_INFIX[e.op]} {self.text(e.b, right)}", level

    def _branch(self, e: Expr, cond: Expr | None = None) -> str:
        """A branch's own sub-expressions are written in place: never evaluated if not taken.
        ``x + n`` where x is negative cannot overflow, n being an extent."""
        inner = Scalars(self.env, self.names)
        inner.known = self.known
        if _counts_from_end(e, cond):
            return f"{inner.text(e.a, 12)} + {inner.text(e.b, 13)}"
        return inner.text(e, 11)

    def _unary(self, e: Unary) -> str:
        t, op = DTYPES[e.x.dtype], e.op
        x = self.text(e.x, 0 if op in _LIBM or op in _LIBM_NAME else ATOM)
        if op == "not":
            return f"(!{x})"
        if op in ("bits", "float"):
            return x if "f16" in (e.dtype, e.x.dtype) else f"aotc_{op}_{t.name}({x})"
        if op in ("isnan", "isinf"):
            return f"({op}({x}) != 0)"
        if t.kind != "f":
            text = integer_unary(e, self.text(e.x, ATOM))
            if text is None:
                raise UnsupportedError(f"{show(e)}: {op} of {t.name} has no C form")
            return text
        if op == "neg":
            return f"(-{x})"
        if op == "sign":
            return f"aotc_{'f' if t.name == 'f32' else 'd'}sign({x})"
        if op not in _LIBM and op not in _LIBM_NAME:
            raise UnsupportedError(f"{show(e)}: no C function for {op}")
        return f"{_LIBM_NAME.get(op, op)}{'f' if t.name == 'f32' else ''}({x})"

    def _float_call(self, e: Binary) -> str:
        t = e.a.dtype
        a, b, f = self.text(e.a), self.text(e.b), "f" if t == "f32" else ""
        if e.op in ("min", "max"):
            return f"aotc_{'f' if t == 'f32' else 'd'}{e.op}({a}, {b})"
        if e.op == "floordiv":
            return f"floor{f}({self.text(e.a, 13)} / {self.text(e.b, 14)})"
        if e.op not in _FLOAT_CALLS:
            raise UnsupportedError(f"{show(e)}: no C form of {e.op} for {t}")
        return f"{_FLOAT_CALLS[e.op]}{f}({a}, {b})"


def _counts_from_end(e: Expr, cond: Expr | None) -> TypeGuard[Binary]:
    return (isinstance(e, Binary) and e.op == "add" and e.dtype == INDEX
            and cond == Binary("lt", e.a, Const(0)) and not is_unchecked_data(e.b))

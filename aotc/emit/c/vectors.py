"""C text of f32 value expressions over vector lanes, in a target's dialect.

The lane axis's C variable holds the first lane's index.  A load with unit stride is a vector
load, one that does not move along the lanes is a broadcast, everything else is gathered lane by
lane; so any expression can stand in a vector nest.
"""

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from aotc.emit.c.arrays import address
from aotc.emit.c.half_lanes import HALVES, bits, widen_lanes
from aotc.emit.c.lane_bounds import lanes_between
from aotc.emit.c.narrow_lanes import convert_to_float
from aotc.emit.c.scalars import (
    CONDITION,
    LEVEL,
    LocalNames,
    Scalars,
    find_shared,
    literal,
    signed_literal,
)
from aotc.emit.text.cexpr import ATOM, bracket, c_index
from aotc.emit.text.dialect import Dialect, OperandText
from aotc.emit.text.env import KernelEnv
from aotc.emit.text.math_forms import scaled_argument, sigmoid_argument
from aotc.ir.access import stride
from aotc.ir.contents import names_in
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    Where,
    loads,
    substitute,
    walk,
)
from aotc.ir.simplify import simplify

_INFIX = ("add", "sub", "mul", "div")
_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
_UNARY = ("exp", "log", "erf", "tanh", "sqrt", "abs", "sin", "cos", "floor", "ceil", "round")
_BINARY = ("min", "max", "pow")


Stretch = tuple[str, str]  # C names of the first of some neighbouring lanes and of their end


class Vectors:
    """Straight-line vector C for one step of the lane axis.

    say: the Dialect.  count: C text of the number of live lanes, or "" if all are.  fill: value of
    dead lanes.  acc: {Var: C vector}.  guard: a condition (Expr) under which loads may happen, or
    None.
    """

    def __init__(self, env: KernelEnv, names: LocalNames, lane: Axis, say: Dialect, count: str,
                 roots: Iterable[Expr], acc: Mapping[Var, str] | None = None,
                 fill: str = "0.0f") -> None:
        self.env, self.names, self.lane, self.say = env, names, lane, say
        self.count, self.fill, self.acc = count, fill, acc or {}
        self.lines: list[str] = []
        self.known: dict[Expr, OperandText] = {}
        self.many = find_shared(roots)
        self.guard: Expr | None = None
        self.summed = False
        self.stretches: dict[Expr, Stretch | None] = {}
        self.stretch: Stretch | None = None

    def text(self, e: Expr, least: int = 0) -> str:
        """C expression of a vector for an f32 expression, or of lanes of bits for one of 16 bits;
        in brackets unless it binds at least as tight as ``least``."""
        return self._vector(self.operand(e), least)

    def operand(self, e: Expr) -> OperandText:
        """Operand of an f32 expression: a scalar where every lane is the same and the dialect
        takes scalars."""
        if e in self.known:
            return self.known[e]
        out = self._node(e)
        out = out if isinstance(out, OperandText) else OperandText(out)
        if e in self.many or isinstance(e, Where):
            name = self.names.fresh("v")
            self.lines.append(f"const float {name} = {out};" if out.fixed
                              else self.say.constant(name, out))
            self.known[e] = out = OperandText(name, out.fixed)
        return out

    def _vector(self, x: OperandText, least: int = 0) -> str:
        return self.say.splat(x) if x.fixed else bracket(x.text, x.level, least)

    def _atom(self, e: Expr) -> OperandText:
        """The Operand of an expression, in brackets if it is an operator's."""
        x = self.operand(e)
        return OperandText(bracket(x.text, x.level, ATOM), x.fixed)

    def fixed(self, e: Expr) -> bool:
        """The value is the same in every lane."""
        return not any(n == self.lane or n in self.acc for n in walk(e))

    def _node(self, e: Expr) -> str | OperandText:
        if isinstance(e, Var) and e in self.acc:
            return self.acc[e]
        if e.dtype in HALVES:
            lanes = bits(self, e)
            if lanes is not None:
                return lanes
            assert isinstance(e, Where), e
            return self._where(e)
        if self.fixed(e) and (self.guard is None or not any(
                isinstance(n, Load) for n in walk(e))):
            return self._broadcast(e)
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, Where):
            return self._where(e)
        say = self.say
        if isinstance(e, Cast) and e.x.dtype in HALVES:
            return widen_lanes(self, e)
        if isinstance(e, Cast) and e.dtype == "f32":
            text = convert_to_float(self, e)
            if text is not None:
                return text
        if isinstance(e, Unary) and e.op == "neg":
            return say.negative(self._atom(e.x))
        if say.facts.forms and self.env["math"] == "fast":
            text = self._form(e)
            if text is not None:
                return text
        if isinstance(e, Unary) and e.op in _UNARY:
            return say.call(e.op, self.text(e.x))
        if say.facts.quotients and self._has_one_divisor(e):
            return say.over(self.text(e.a), self._scalar(e.b))
        if isinstance(e, Binary) and e.op in _INFIX:
            return self._arithmetic(e)
        if isinstance(e, Binary) and e.op in ("min", "max"):
            for c, x in ((e.a, e.b), (e.b, e.a)):
                if isinstance(c, Const) and c.value == c.value:  # NaN is no bound
                    computed = isinstance(x, Binary) and x.op in _INFIX or (
                        self.summed and x in self.acc)
                    return say.bound(e.op, self.operand(c), self.text(x), computed)
        if isinstance(e, Binary) and e.op in _BINARY:
            return say.call2(e.op, self.text(e.a), self.text(e.b))
        return self._gather(e)

    def _arithmetic(self, e: Binary) -> str | OperandText:
        say = self.say
        if not say.facts.infix:
            text: str = say.arithmetic(e.op, self.operand(e.a), self.operand(e.b))
            return text
        level = LEVEL[e.op]
        a, b = self.text(e.a, level), self.text(e.b, level + 1)
        return OperandText(f"{a} {say.facts.infix[e.op]} {b}", level=level)

    def _form(self, e: Expr) -> str | None:
        """C text of an expression that the vector math computes as a whole; None for others."""
        x = sigmoid_argument(e, self.many)
        if x is not None:
            return self.say.sigmoid(self.text(x))
        scaled = scaled_argument(e, self.many)
        if scaled is None:
            return None
        function, argument, scale = scaled
        return self.say.scaled(function, self.text(argument), repr(scale))

    def _broadcast(self, e: Expr) -> OperandText:
        if is_scalar(self.say):
            return OperandText(self._one_lane(e))
        return self._same(signed_literal(e.value, "f32")[0] if isinstance(e, Const)
                          else self._scalar(e))

    def _scalar(self, e: Expr) -> str:
        """C text of a value that is the same in every lane."""
        inner = Scalars(self.env, self.names, (e,))
        text = inner.text(e)
        self.lines += inner.lines
        return text

    def _has_one_divisor(self, e: Expr) -> TypeGuard[Binary]:
        """True for a division whose divisor is the same in every lane, computed here only."""
        return isinstance(e, Binary) and e.op == "div" and not isinstance(e.b, Const) and (
            self.fixed(e.b) and self.guard is None and e.b not in self.many)

    def _same(self, text: str) -> OperandText:
        """Operand of a C scalar."""
        return OperandText(text,
                           True) if self.say.facts.scalars else OperandText(self.say.splat(text))

    def _load(self, e: Load) -> str:
        step = stride(e.index[0], self.lane)
        data = bool(loads(e.index[0]))
        part = self._part_step(e)
        if part and (self.stretch is not None or part == 2 and self.guard is None):
            return self._load_part(e, part)
        if self.guard is not None or e.dtype != "f32" or (
                data and self._moves_data(e.index[0])):
            return self._gather(e)
        if is_scalar(self.say) and not (self.count or self.env.get("reads")):
            return self._one_lane(e)
        if step != Const(1):
            return self._load_strided(e, step)
        p = self.pointer(e.buffer, e.index[0])
        if self.count:
            return self.say.load_n(p, self.count, self.fill)
        return self.say.load(p)

    def _load_strided(self, e: Load, step: Expr | None) -> str:
        if step is None or loads(step):
            return self._gather(e)
        if self.say.facts.apart and not self.count:
            return self.say.load_apart(self.pointer(e.buffer, e.index[0]), c_index(step, 0))
        if not self.say.facts.strided:
            return self._gather(e)
        return self.say.load_strided(self.pointer(e.buffer, e.index[0]), c_index(step, 13))

    def _part_step(self, e: Expr) -> int:
        """Elements between the lanes of a load that may take a part of them; 0 for others."""
        if not self.say.facts.parts or not isinstance(e, Load) or e.dtype != "f32" or (
                self._moves_data(e.index[0])):
            return 0
        step = stride(e.index[0], self.lane)
        return step.value if step in (Const(1), Const(2)) else 0

    def _load_part(self, e: Load, step: int) -> str:
        """The lanes that are live, of neighbouring elements or of every second one."""
        p = self.pointer(e.buffer, e.index[0])
        stretch = self.stretch or self.count and ("0", self.count)
        if not stretch:
            return self.say.load_second(p)
        load = self.say.load_between if step == 1 else self.say.load_second_between
        return load(p, *stretch, self.fill)

    def pointer(self, buffer: str, index: Expr) -> str:
        """C text of the address of an element, an additive expression, from which the lanes are
        loaded."""
        inner = Scalars(self.env, self.names, (index,))
        at = address(self.env, buffer, index, inner.text, sure=self.guard is None)
        self.lines += inner.lines
        reads = self.env.get("reads")
        return reads(buffer, at, self.count or str(self.say.lanes)) if reads else at

    def _moves_data(self, index: Expr) -> bool:
        return any(isinstance(n, Load) and not self.fixed(n) for n in walk(index))

    def _per_lane(self, e: Expr) -> Expr:
        """The expression for lane ``l``: the lane axis becomes its own variable."""
        return simplify(substitute(e, {self.lane: Axis(f"{self.lane.name}_l", self.lane.extent)}))

    def _lane_loop(self, ctype: str, array: str, e: Expr, inner: Scalars, value: str) -> None:
        """Fill an array lane by lane with ``value``, C text made of ``e`` by ``inner``."""
        name = self.lane.name
        self.lines += [self.say.array(ctype, array), self.say.each("")]
        if f"{name}_l" in names_in(e):
            self.lines.append(f"    const int64_t {name}_l = {name} + l;")
        self.lines += [f"    {x}" for x in inner.lines]
        self.lines += [f"    {array}[l] = {self.say.live(value, self.count)};", "}"]

    def _gather(self, e: Expr) -> str:
        """Evaluate lane by lane into an array; dead lanes and guarded-off lanes are zero."""
        if is_scalar(self.say) and not self.env.get("get"):
            return self._one_lane(e if self.guard is None else Where(
                self.guard, e, Const(0, e.dtype)))
        return self.say.load(self.gathered(e, "float"))

    def gathered(self, e: Expr, ctype: str) -> str:
        """C name of an array with the values of all lanes; dead and guarded-off ones are zero."""
        array = self.names.fresh("g")
        acc: dict[Expr, str] = {}
        for n in walk(e):
            if isinstance(n, Var) and n in self.acc:
                spill = self.names.fresh("g")
                self.lines += [self.say.array("float", spill),
                               self.say.spill(spill, self.acc[n])] if n.dtype == "f32" else [
                    self.say.array("int32_t", spill), self.say.int_store(32, spill, self.acc[n])]
                acc[n] = f"{spill}[l]"
        whole = e if self.guard is None else Where(self.guard, e, Const(0, e.dtype))
        env: KernelEnv = {**self.env, "vars": {**self.env["vars"], **acc}}
        inner = Scalars(env, self.names)
        one = self._per_lane(whole)
        self._lane_loop(ctype, array, one, inner, inner.text(one, 4))
        return array

    def _one_lane(self, e: Expr) -> str:
        """C text, an atom, of what is evaluated lane by lane where there is one lane."""
        known: dict[Expr, str] = {**self.env["vars"]}
        known.update(self.acc.items())
        env: KernelEnv = {**self.env, "vars": known}
        inner = Scalars(env, self.names)
        text = inner.text(e, ATOM)
        self.lines += inner.lines
        return text

    def _where(self, e: Where) -> str | OperandText:
        if self.fixed(e.cond):
            return self._branches(e)
        if self.say.facts.parts and self.guard is None and isinstance(e.b, Const) and (
                e.dtype not in HALVES):
            stretch = self._stretch_of(e.cond)
            if stretch is not None:
                return self._between(e, stretch, literal(e.b.value, "f32"))
        mask = self._mask(e.cond)
        unsafe = any(isinstance(n, Load) for b in (e.a, e.b) for n in walk(b))
        indexed = unsafe and not _is_value_test(e.cond)
        a = self._under(e.cond, e.a) if indexed else self.operand(e.a)
        b = self._under(Unary("not", e.cond), e.b) if indexed else self.operand(e.b)
        return self.say.select(mask, a, b)

    def _stretch_of(self, cond: Expr) -> Stretch | None:
        """C names (first, end) of the lanes for which integer comparisons hold; None if they are
        others."""
        if cond not in self.stretches:
            ends, stretch = lanes_between(cond, self.lane), None
            if ends is not None:
                inner = Scalars(self.env, self.names)
                most = self.count or str(self.say.lanes)
                texts = [inner.text(simplify(ends[0] - self.lane)), most]
                if ends[1] is not None:
                    texts[1] = f"aotc_min({inner.text(simplify(ends[1] - self.lane))}, {most})"
                stretch = self.names.fresh("at"), self.names.fresh("at")
                self.lines += inner.lines + [f"const int64_t {n} = {t};"
                                             for n, t in zip(stretch, texts)]
            self.stretches[cond] = stretch
        return self.stretches[cond]

    def _between(self, e: Where, stretch: Stretch, fill: str) -> str:
        """``e.a`` in a run of lanes, a constant (its C text) in the others."""
        outer = self.guard, self.stretch, self.fill, self.known
        self.guard, self.stretch, self.fill, self.known = e.cond, stretch, fill, dict(self.known)
        value = self.text(e.a)
        self.guard, self.stretch, self.fill, self.known = outer
        return value if self._part_step(e.a) else self.say.keep_between(value, *stretch, fill)

    def _under(self, cond: Expr, e: Expr) -> OperandText:
        """Operand of a branch whose loads happen only in lanes where ``cond`` holds."""
        outer = self.guard, self.stretch, self.known
        self.guard = cond if self.guard is None else Binary("and", self.guard, cond)
        self.stretch, self.known = None, dict(self.known)
        out = self.operand(e)
        self.guard, self.stretch, self.known = outer
        return out

    def _branches(self, e: Where) -> str | OperandText:
        """A condition that is the same in all lanes: a real branch."""
        inner, constants = Scalars(self.env, self.names), all(
            isinstance(b, Const) for b in (e.a, e.b))
        cond = inner.text(e.cond, CONDITION if constants else 0)
        self.lines += inner.lines
        if constants:
            a, b = self.operand(e.a), self.operand(e.b)
            return OperandText(f"({cond} ? {a} : {b})", a.fixed and b.fixed)
        name = self.names.fresh("v")
        self.lines.append(self.say.declare(name))
        for head, branch in ((f"if ({cond}) {{", e.a), ("} else {", e.b)):
            self.lines.append(head)
            outer = self.lines, self.known, self.many, self.stretches
            self.lines, self.known, self.many, self.stretches = (
                [], dict(self.known), set(), dict(self.stretches))
            text = self.text(branch)
            lines = [f"    {x}" for x in self.lines] + [f"    {name} = {text};"]
            self.lines, self.known, self.many, self.stretches = outer
            self.lines += lines
        self.lines.append("}")
        return name

    def _mask(self, cond: Expr) -> str:
        """C text of a mask for a condition that differs between lanes."""
        if isinstance(cond, Binary) and cond.op in _COMPARE and cond.a.dtype == "f32":
            return self.say.compare(cond.op, self._compared(cond.a), self._compared(cond.b))
        if isinstance(cond, Unary) and cond.op == "not":
            return self.say.invert(self._mask(cond.x))
        if self.say.facts.masks and self._as_mask(cond):
            if isinstance(cond, Load):
                return self.say.load_bool(self.pointer(cond.buffer, cond.index[0]))
            assert isinstance(cond, Binary), cond
            return self.say.combine(cond.op, self._mask(cond.a), self._mask(cond.b))
        array = self.names.fresh("m")
        acc = any(n in self.acc for n in walk(cond))
        if acc:
            spilled = OperandText(self._gather(Cast("f32", cond)))
            return self.say.compare("ne", spilled, self._same("0.0f"))
        whole = cond if self.guard is None else Binary("and", self.guard, cond)
        if is_scalar(self.say) and not self.env.get("get"):
            return self._one_lane(whole)
        inner = Scalars(self.env, self.names)
        one = self._per_lane(whole)
        value = f"{inner.text(one, CONDITION)} ? -1 : 0"
        self._lane_loop("int32_t", array, one, inner, f"({value})" if self.count else value)
        return self.say.load_mask(array)


    def _compared(self, e: Expr) -> OperandText:
        x = self.operand(e)
        return OperandText(bracket(x.text, x.level, LEVEL["lt"] + 1), x.fixed)

    def _as_mask(self, cond: Expr) -> bool:
        """True for a byte per lane side by side, and for tests of values joined by and, or."""
        if isinstance(cond, Load):
            return (self.guard is None and stride(cond.index[0], self.lane) == Const(1)
                    and not loads(cond.index[0]))
        if isinstance(cond, Binary) and cond.op in ("and", "or"):
            return self._as_mask(cond.a) and self._as_mask(cond.b)
        return _is_value_test(cond)


def is_scalar(say: Dialect) -> bool:
    """True where a vector is one scalar."""
    return bool(say.vectors.fixed and say.lanes == 1)


def _is_value_test(cond: Expr) -> bool:
    """A comparison of values only: it says nothing about which indices are legal."""
    return isinstance(cond, Binary) and cond.a.dtype == "f32"


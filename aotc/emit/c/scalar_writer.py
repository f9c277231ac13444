"""Statements -> C text, those of scalars: what every target that speaks C has in common."""

from collections.abc import Sequence
from typing import Any

from aotc.emit.c.arrays import element
from aotc.emit.c.integers import is_index
from aotc.emit.c.loop_text import BracedLines, brace_lines, indent, loop
from aotc.emit.c.scalars import LocalNames, Scalars, literal
from aotc.emit.text.c_names import c_comment
from aotc.emit.text.cexpr import ATOM, c_index
from aotc.emit.text.env import Env
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Binary, Const, Expr, Var
from aotc.ir.program import FOLD_STEP, neutral_value
from aotc.ir.statements import (
    Accumulate,
    Declare,
    For,
    If,
    Let,
    Range,
    Scope,
    Section,
    Start,
    Stmt,
    Store,
    Update,
)


def neutral_text(fold: str, dtype: str) -> str:
    """C literal of a fold's neutral element."""
    return literal(neutral_value(fold, dtype).value, dtype)


class ScalarWriter:
    """C text of one kernel's statements.  Everything is as they say; here it is only spelled."""

    def __init__(self, env: Env, names: LocalNames) -> None:
        self.env, self.names = env, names

    def body(self, body: Sequence[Stmt]) -> list[str]:
        """C lines of statements, in order."""
        out: list[str] = []
        done = 0
        for i, s in enumerate(body):
            if i < done:
                continue
            done = i + self.together(body[i:])
            if done > i + 1:
                out += self.lets([x for x in body[i:done] if isinstance(x, Let)])
            else:
                out += brace_lines(self.statement(s))
        return out

    def statement(self, s: Stmt) -> list[str]:
        """C lines of one statement, a ``BracedLines`` where its names end with it."""
        write: Any = getattr(self, s.METHOD)
        lines: list[str] = write(s)
        return lines

    def together(self, body: Sequence[Stmt]) -> int:
        """How many statements at the start of ``body`` are names that are computed together, since
        none of them uses another."""
        bound: set[str] = set()
        for i, s in enumerate(body):
            if not isinstance(s, Let) or bound & names_in(s.value):
                return i
            bound.add(s.var.name)
        return len(body)

    # ------------------------------------------------------------ control

    def loop(self, s: For) -> list[str]:
        note = f" /* {s.note} */" if s.note else ""
        if s.kind == "tile":
            return self._written_out(s)
        if s.step == 1:
            return loop(Range(s.axis, s.lo, s.hi), self.inside(s.body), note)
        name, lo, hi = s.axis.name, c_index(s.lo, 0), c_index(s.hi, 11)
        body = indent(self.inside(s.body))
        if not s.rest:
            return [f"for (int64_t {name} = {lo}; {name} < {hi}; {name} += {s.step}) {{{note}",
                    *body, "}"]
        return BracedLines([
            f"int64_t {name} = {lo};",
            f"for (; {name} + {s.step} <= {hi}; {name} += {s.step}) {{", *body, "}",
            f"for (; {name} < {hi}; ++{name}) {{", *indent(self.inside(s.rest)), "}"])

    def _written_out(self, s: For) -> list[str]:
        """A loop over a tile that the compiler writes out, of a constant number of turns; it may
        end before."""
        body, most, name = self.inside(s.body), s.hi, s.axis.name
        if isinstance(most, Binary):
            assert most.op == "min", s
            most, there = sorted((most.a, most.b), key=lambda e: not isinstance(e, Const))
            body = [f"if ({name} >= {c_index(there, 10)}) {{", *indent(["break;"]), "}", *body]
        assert isinstance(most, Const) and s.lo == Const(0), s
        return [f"AOTC_UNROLL for (int64_t {name} = 0; {name} < {c_index(most, 0)}; ++{name}) {{",
                *indent(body), "}"]

    def condition(self, s: If) -> list[str]:
        lines = [f"if ({c_index(s.cond, 0)}) {{", *indent(self.inside(s.body))]
        if len(s.other) == 1 and isinstance(s.other[0], If):
            first, *rest = self.condition(s.other[0])
            return [*lines, f"}} else {first}", *rest]
        other = ["} else {", *indent(self.inside(s.other))] if s.other else []
        return [*lines, *other, "}"]

    def inside(self, body: Sequence[Stmt]) -> list[str]:
        """C lines of all that is between one pair of braces."""
        if len(body) != 1:
            return self.body(body)
        lines = self.statement(body[0])
        return lines.alone() if isinstance(lines, BracedLines) else lines

    def scope(self, s: Scope) -> list[str]:
        return BracedLines(self.inside(s.body))

    def section(self, s: Section) -> list[str]:
        return [*heading(s), *self.body(s.body)]

    # ------------------------------------------------------------ names and folds

    def let(self, s: Let) -> list[str]:
        return self.lets([s])

    def lets(self, lets: Sequence[Let]) -> list[str]:
        """Scalars that are computed together."""
        block = Scalars(self.env, self.names, [
            s.value for s in lets if not is_index(s.value, self.env["vars"])])
        texts = [block.text(s.value) for s in lets]
        return block.lines + [f"const {self.ctype(s.var)} {s.var.name} = {text};"
                              for s, text in zip(lets, texts)]

    def ctype(self, var: Var | Axis) -> str:
        """The C type of a name."""
        return "int" if var.dtype == "bool" else DTYPES[var.dtype].c

    def start(self, s: Start) -> list[str]:
        return [f"{DTYPES[s.var.dtype].c} {s.var.name} = {neutral_text(s.fold, s.var.dtype)};"]

    def accumulate(self, s: Accumulate) -> list[str]:
        return [x for v, e in s.steps for x in self._step(s.fold, v, e)]

    def _step(self, fold: str, acc: Var, value: Expr) -> list[str]:
        if fold == "sum" and isinstance(value, Var) and value not in self.env["vars"]:
            return [f"{acc.name} += {value.name};"]
        if fold == "sum" and value.dtype == acc.dtype and acc.dtype in ("f32", "f64"):
            block = Scalars(self.env, self.names, (value,))
            text = block.text(value)
            return [*block.lines, f"{acc.name} += {text};"]
        element = Var("x", acc.dtype)
        block = Scalars(self.env, self.names, (value,))
        x = block.text(value, ATOM)
        if value.dtype != acc.dtype:
            x = f"(({DTYPES[acc.dtype].c}){x})"
        env: Env = {**self.env, "vars": {**self.env["vars"], element: x}}
        text = Scalars(env, self.names).text(Binary(FOLD_STEP[fold], acc, element))
        return block.lines + [f"{acc.name} = {text};"]

    def declare(self, s: Declare) -> list[str]:
        block = Scalars(self.env, self.names)
        text = block.text(s.value)
        return block.lines + [f"{DTYPES[s.var.dtype].c} {s.var.name} = {text};"]

    def update(self, s: Update) -> list[str]:
        block = Scalars(self.env, self.names, s.values)
        if len(s.vars) == 1:
            text = block.text(s.values[0])
            return [*block.lines, f"{s.vars[0].name} = {text};"]
        new = [(v, self.names.fresh("n"), block.text(e)) for v, e in zip(s.vars, s.values)]
        return [*block.lines, *(f"const {DTYPES[v.dtype].c} {n} = {text};" for v, n, text in new),
                *(f"{v.name} = {n};" for v, n, _ in new)]

    # ------------------------------------------------------------ memory

    def store(self, s: Store) -> list[str]:
        block = Scalars(self.env, self.names, [x for p in s.puts for x in (p.offset, p.value)])
        put = self.env.get("put")
        if put is not None:
            lines = [put(p.buffer, block.text(p.offset), block.text(p.value), p.value.dtype)
                     for p in s.puts]
        else:
            lines = [f"{element(self.env, p.buffer, p.offset, block.text)} = "
                     f"{block.text(p.value)};" for p in s.puts]
        return block.lines + lines


def heading(s: Section) -> list[str]:
    """The comment above a stage."""
    lines = [f"/* {c_comment(s.title)}", *(f" *   {c_comment(x)}" for x in s.says)]
    return [*lines[:-1], f"{lines[-1]} */"]


__all__ = ["ScalarWriter", "heading", "neutral_text"]

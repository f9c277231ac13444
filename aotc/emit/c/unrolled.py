"""C text of Unrolled stages: loops around straight-line vector code."""

from typing import TypeGuard

from aotc.emit.c.nests import indent, lane_loop, loops, store_lines
from aotc.emit.c.scalars import Names
from aotc.emit.c.vectors import Vectors
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.env import KernelEnv
from aotc.ir.expr import Axis, Binary, Const, Expr, Var, Where
from aotc.ir.plan import Let, Unrolled


def unrolled_lines(stage: Unrolled, env: KernelEnv, names: Names) -> list[str]:
    """C lines of an Unrolled: the loops over points, the flags of a point, then its statements for
    every step of the lanes."""
    lane, say = stage.ranges[-1], env["dialect"]
    if say.strip_mined:  # many values live at once: one register each
        say = say.of_width(say.groups[-1])
    flags = [f"const int {v.name} = {c_index(cond, 0)};" for v, cond in stage.flags]
    return loops(stage.ranges[:-1], flags + lane_loop(
        lane, say, lambda count: _point(stage, lane.axis, say, count, env, names)))


def _point(stage: Unrolled, lane: Axis, say: Dialect, count: str, env: KernelEnv,
           names: Names) -> list[str]:
    known: dict[Var, str] = {}
    lines: list[str] = []
    for s in stage.body:
        if isinstance(s, Let):
            block = Vectors(env, names, lane, say, count, (s.value,), dict(known))
            lines += _let(s.var.name, s.value, block)
            known[s.var] = s.var.name
            continue
        put = store_lines((s,), lane, say, count, env, names, dict(known))
        lines += put if s.guard is None else [
            f"if ({c_index(s.guard, 0)}) {{", *indent(put), "}"]
    return lines


def _let(name: str, value: Expr, block: Vectors) -> list[str]:
    """Statements that bind a name: a load, zero where its flags fail, or a sum of multiples."""
    say = block.say
    if isinstance(value, Where):
        zero = say.define(name, block.text(value.b))
        text = block.text(value.a)
        return [zero, f"if ({c_index(value.cond, 0)}) {{",
                *indent(block.lines + [f"{name} = {text};"]), "}"]
    steps: list[Binary] = []
    while isinstance(value, Binary) and value.op == "add" and _is_multiple(value.b):
        steps.insert(0, value.b)  # rest + constant * value
        value = value.a
    if not steps:
        text = block.text(value)
        return [*block.lines, say.constant(name, text)]
    lines = [say.define(name, block.text(value))]
    lines += [say.fma(block.operand(x.a), block.operand(x.b), name) for x in steps]
    return block.lines + lines


def _is_multiple(e: Expr) -> TypeGuard[Binary]:
    return isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Const)


__all__ = ["unrolled_lines"]

"""Statements -> CUDA text of the kernels of blocks of threads.

The innermost loop runs over neighbouring threads, so that neighbouring elements are read and
written together.
"""

from collections.abc import Collection, Sequence

from aotc.emit.bundle.library_sources import device_call_lines
from aotc.emit.c.loop_text import BracedLines, indent
from aotc.emit.c.scalar_writer import ScalarWriter
from aotc.emit.c.scalars import LocalNames, Scalars
from aotc.emit.simt.dependency_wait import DependencyWait
from aotc.emit.text.cexpr import ATOM, c_index, c_int
from aotc.emit.text.env import Env
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Binary, Const, Var, maximum
from aotc.ir.kernel.plan_stages import Call, points
from aotc.ir.program import FOLD_STEP
from aotc.ir.simplify import simplify
from aotc.ir.statements import Barrier, First, Range, Spread, Start, Stmt, Total

WARP = 32


class BlockWriter(ScalarWriter):
    """CUDA text of the statements of a block of ``threads`` threads.  ``base``: byte offset of the
    block's memory for what threads of several warps fold.  ``small``: names of numbers
    of 32 bits."""

    def __init__(self, env: Env, names: LocalNames, threads: int, base: int) -> None:
        super().__init__(env, names)
        self.threads, self.base = threads, base
        self.small: frozenset[str] = frozenset()

    def spread(self, s: Spread) -> list[str]:
        if s.over == "groups" and s.size > WARP:
            return self._teams(s)
        first, step = {"threads": ("threadIdx.x", self.threads),
                       "group": (f"threadIdx.x % {s.size}", s.size),
                       "groups": (f"threadIdx.x / {s.size}", self.threads // s.size)}[s.over]
        before, total, kind, extents = flat_count(s.ranges, self.names)
        at = self.names.fresh("at")
        binds = unflatten(s.ranges, extents, at, kind, self.names, names_in(s.body),
                          self.small)
        inside = binds + self.inside(s.body)
        count = points(s.ranges)
        if count is not None and count <= step:  # compilers do not know that there is one turn
            if count == step and binds and total == f"{count}u":
                named = any(at in x for x in binds)  # of one point nothing asks for the number
                return BracedLines([f"const {kind} {at} = {first};"] * named + inside)
            lines = [f"if (const {kind} {at} = {first}; {at} < {total}) {{", *indent(inside), "}"]
            return BracedLines(before + lines) if before else lines
        lines = [f"for ({kind} {at} = {first}; {at} < {total}; {at} += {step}) {{",
                 *indent(inside), "}"]
        return BracedLines(before + lines) if before else lines

    def first(self, s: First) -> list[str]:
        return [f"if (threadIdx.x % {s.size} == 0) {{", *indent(self.inside(s.body)), "}"]

    def ctype(self, var: Var | Axis) -> str:
        return "int32_t" if var.name in self.small else super().ctype(var)

    def total(self, s: Total) -> list[str]:
        return [f"{s.var.name} = aotc_warp_{s.fold}({s.var.name});"]

    def call(self, s: Call) -> list[str]:
        return device_call_lines(s, self.env)

    def dependency_wait(self, s: DependencyWait) -> list[str]:
        return ["aotc_grid_dependency_wait();", "aotc_grid_launch_dependents();"]

    def barrier(self, s: Barrier) -> list[str]:
        return ["aotc_syncthreads();"]

    def _teams(self, s: Spread) -> list[str]:
        """Several warps fold a row, each its part; the first thread of the team folds the parts and
        goes on.  There are no more rows than teams, so every thread comes to the barrier."""
        total = next(i for i, x in enumerate(s.body) if isinstance(x, Total))
        (start, *share), fold, after = s.body[:total], s.body[total], s.body[total + 1:]
        assert isinstance(start, Start) and isinstance(fold, Total), s
        (first,) = after
        assert isinstance(first, First), s
        names, warps, acc = self.names, s.size // WARP, fold.var.name
        c = DTYPES[fold.var.dtype].c
        ranges = s.ranges
        before, rows, kind, extents = flat_count(ranges, names)
        row, parts, part = names.fresh("row"), names.fresh("parts"), names.fresh("part")
        folded, inner = self.body(share), self.body(first.body)
        x = Var("x", fold.var.dtype)
        step = Scalars({**self.env, "vars": {**self.env["vars"], x: f"{parts}[{part}]"}}, names)
        update = step.text(Binary(FOLD_STEP[fold.fold], fold.var, x))
        return BracedLines([
            f"const aotc_shared<{c}> {parts} = aotc_slice<{c}>(shared, {self.base}, "
            f"{self.threads // WARP});",
            *before, f"const {kind} {row} = threadIdx.x / {s.size};",
            *self.start(start), f"if ({row} < {rows}) {{",
            *indent(unflatten(ranges, extents, row, kind, names, names_in(tuple(share))) + folded),
            "}", *self.total(fold), f"if (threadIdx.x % {WARP} == 0)",
            f"    {parts}[threadIdx.x / {WARP}] = {acc};", "aotc_syncthreads();",
            f"if (threadIdx.x % {s.size} == 0 && {row} < {rows}) {{",
            *indent(unflatten(ranges, extents, row, kind, names, names_in(first.body)) + [
                f"for (uint32_t {part} = {row} * {warps} + 1; {part} < ({row} + 1) * {warps}; "
                f"++{part})", f"    {acc} = {update};", *inner]), "}"])


def flat_count(ranges: Sequence[Range], names: LocalNames,
               bounded: bool = True) -> tuple[list[str], str, str, list[str]]:
    """(declarations, text of the number of points, C type that counts them, text of each extent).
    32 bits where they are enough: divisions are much cheaper.  bounded: the extent of the outermost
    range is asked for, too, which the digits of a point's number do not need."""
    extents = [simplify(r.hi - r.lo) for r in ranges]
    count = points(ranges)
    small = count is not None and count < 1 << 31
    kind, suffix = ("uint32_t", "u") if small else ("int64_t", "")
    before, texts = [], []
    for e in extents:
        if isinstance(e, Const):
            texts.append(f"{max(e.value, 0)}{suffix}" if small else c_int(max(e.value, 0)))
            continue
        if not bounded and not texts:
            texts.append("outermost")
            continue
        name = names.fresh("n")
        value = c_index(simplify(maximum(e, Const(0))), ATOM if small else 0)
        before.append(f"const {kind} {name} = {f'({kind}){value}' if small else value};")
        texts.append(name)
    live = [t for t in texts if t not in ("1u", "1")]
    return before, " * ".join(live) or f"1{suffix}", kind, texts


def unflatten(ranges: Sequence[Range], extents: Sequence[str], at: str, kind: str,
              names: LocalNames, uses: Collection[str], small: Collection[str] = ()) -> list[str]:
    """Lines that bind the axes among the names ``uses`` at the flat position ``at``; those among
    ``small`` have 32 bits."""
    out = []
    used = [r.axis.name in uses for r in ranges]
    outer = next((i for i, n in enumerate(extents) if n not in ("1u", "1")), len(extents))
    for i in range(len(ranges) - 1, -1, -1):
        r, n = ranges[i], extents[i]
        lo = "" if r.lo == Const(0) else f"{c_index(r.lo, 12)} + "
        ctype = "int32_t" if r.axis.name in small else "int64_t"
        if n in ("1u", "1"):
            if used[i]:
                out.append(f"const {ctype} {r.axis.name} = {c_index(r.lo, 0)};")
            continue
        if used[i]:
            digit = at if i == outer else f"{at} % {n}"
            out.append(f"const {ctype} {r.axis.name} = {lo}{digit};")
        if i > outer and any(used[:i]):
            left = names.fresh("left")
            out.append(f"const {kind} {left} = {at} / {n};")
            at = left
    return out


__all__ = ["BlockWriter", "Stmt", "flat_count", "unflatten"]

"""CUDA text of Nest stages: the threads of a block share the points of the loops.

The innermost loop runs over neighbouring threads, so that neighbouring elements are read and
written together.  A reduction whose lanes lie along the reduced axis gives each row to a warp.
"""

import re
from collections.abc import Iterable, Sequence

from aotc.emit.c.nests import indent, scalar_fold_loops, stateful_fold
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.text.cexpr import c_index, c_int
from aotc.emit.text.env import Env
from aotc.ir.expr import Binary, Const, Var, maximum
from aotc.ir.plan import Nest, Put, Range, points
from aotc.ir.program import FOLD_STEP
from aotc.ir.simplify import simplify

WARP = 32
_WARP_FOLD = {"sum": "aotc_warp_sum", "max": "aotc_warp_max", "min": "aotc_warp_min"}


def nest_lines(nest: Nest, env: Env, names: Names, threads: int, base: int) -> list[str]:
    """CUDA lines of a Nest, for a block of ``threads`` threads.  base: byte offset of the block's
    memory for sums in parts."""
    if nest.folds_lanes:
        return (_warp_rows(nest, env, names, threads) if nest.team == 1 else
                _team_rows(nest, env, names, threads, nest.team, base))
    return spread(nest.ranges, point_lines(nest, env, names), names, "threadIdx.x", threads)


def spread(ranges: Sequence[Range], body: list[str], names: Names, first: str,
           step: int) -> list[str]:
    """Loop of one thread over its share of the points of ``ranges``: every ``step``-th from
    ``first`` on, the innermost range counting fastest.  ``body``: lines that use the axes."""
    before, total, kind, extents = flat_count(ranges, names)
    at = names.fresh("at")
    binds = unflatten(ranges, extents, at, kind, names, body)
    return ["{"] + indent(before + [
        f"for ({kind} {at} = {first}; {at} < {total}; {at} += {step}) {{"]
        + indent(binds + body) + ["}"]) + ["}"]


def flat_count(ranges: Sequence[Range], names: Names) -> tuple[list[str], str, str, list[str]]:
    """(declarations, text of the number of points, C type that counts them, text of each extent).
    32 bits where they are enough: divisions are much cheaper."""
    extents = [simplify(r.hi - r.lo) for r in ranges]
    count = points(ranges)
    small = count is not None and count < 1 << 31
    kind, suffix = ("uint32_t", "u") if small else ("int64_t", "")
    before, texts = [], []
    for e in extents:
        if isinstance(e, Const):
            texts.append(f"{max(e.value, 0)}{suffix}" if small else c_int(max(e.value, 0)))
            continue
        name = names.fresh("n")
        value = c_index(simplify(maximum(e, Const(0))), 0)
        before.append(f"const {kind} {name} = {f'({kind})({value})' if small else value};")
        texts.append(name)
    live = [t for t in texts if t not in ("1u", "1")]
    return before, " * ".join(live) or f"1{suffix}", kind, texts


def unflatten(ranges: Sequence[Range], extents: Sequence[str], at: str, kind: str, names: Names,
              body: Iterable[str]) -> list[str]:
    """Lines that bind the axes that ``body`` uses at the flat position ``at``."""
    text, out = "\n".join(body), []
    used = [bool(re.search(rf"\b{re.escape(r.axis.name)}\b", text)) for r in ranges]
    outer = next((i for i, n in enumerate(extents) if n not in ("1u", "1")), len(extents))
    for i in range(len(ranges) - 1, -1, -1):
        r, n = ranges[i], extents[i]
        lo = "" if r.lo == Const(0) else f"{c_index(r.lo, 12)} + "
        if n in ("1u", "1"):
            if used[i]:
                out.append(f"const int64_t {r.axis.name} = {c_index(r.lo, 0)};")
            continue
        if used[i]:
            digit = at if i == outer else f"{at} % {n}"
            out.append(f"const int64_t {r.axis.name} = {lo}{digit};")
        if i > outer and any(used[:i]):
            left = names.fresh("left")
            out.append(f"const {kind} {left} = {at} / {n};")
            at = left
    return out


def point_lines(nest: Nest, env: Env, names: Names) -> list[str]:
    """Lines of one point: its fold, if it has one, by this thread alone, then its stores."""
    lines = fold_lines(nest, env, names) if nest.fold != "none" else []
    return lines + put_lines(nest.puts, env, names)


def put_lines(puts: Sequence[Put], env: Env, names: Names) -> list[str]:
    """Lines that evaluate and store ``puts``."""
    block = Scalars(env, names, [x for p in puts for x in (p.offset, p.value)])
    stores = [f"{env['buffer'](p.buffer)}[{block.text(p.offset)}] = {block.text(p.value)};"
              for p in puts]
    return block.lines + stores


def fold_lines(nest: Nest, env: Env, names: Names) -> list[str]:
    """The fold in loops of one thread."""
    if not isinstance(nest.fold, str):
        return stateful_fold(nest, env, names)
    return scalar_fold_loops(nest, env, names)


def _shared_fold(nest: Nest, env: Env, names: Names, threads: int) -> list[str]:
    """The share that one of ``threads`` threads side by side has of a row's fold; the first line
    declares the accumulator."""
    return scalar_fold_loops(nest, env, names, lambda ranges, body: spread(
        ranges, body, names, f"threadIdx.x % {threads}", threads))


def _team_rows(nest: Nest, env: Env, names: Names, threads: int, warps: int,
               base: int) -> list[str]:
    """Several warps fold a row, each its part; the first thread of the team folds the parts and
    stores.  There are no more rows than teams, so every thread comes to the barriers."""
    acc, team = nest.acc[0].name, warps * WARP
    before, rows, kind, extents = flat_count(nest.ranges, names)
    row, parts, part = names.fresh("row"), names.fresh("parts"), names.fresh("part")
    start, *fold = _shared_fold(nest, env, names, team)
    step = Scalars({**env, "vars": {**env["vars"], Var("x", "f32"): f"{parts}[{part}]"}}, names)
    update = step.text(Binary(FOLD_STEP[nest.fold_name], nest.acc[0], Var("x", "f32")))
    store = put_lines(nest.puts, env, names)
    return ["{", *indent([
        f"const aotc_shared<float> {parts} = aotc_slice<float>(shared, {base}, {threads // WARP});",
        *before, f"const {kind} {row} = threadIdx.x / {team};",
        start, f"if ({row} < {rows}) {{",
        *indent(unflatten(nest.ranges, extents, row, kind, names, fold) + fold), "}",
        f"{acc} = {_WARP_FOLD[nest.fold_name]}({acc});", f"if (threadIdx.x % {WARP} == 0)",
        f"    {parts}[threadIdx.x / {WARP}] = {acc};", "aotc_syncthreads();",
        f"if (threadIdx.x % {team} == 0 && {row} < {rows}) {{",
        *indent(unflatten(nest.ranges, extents, row, kind, names, store) + [
            f"for (uint32_t {part} = {row} * {warps} + 1; {part} < ({row} + 1) * {warps}; "
            f"++{part})", f"    {acc} = {update};", *store]), "}", "aotc_syncthreads();"]), "}"]


def _warp_rows(nest: Nest, env: Env, names: Names, threads: int) -> list[str]:
    """Each warp folds a row, its lanes side by side along it; the first lane stores."""
    acc = nest.acc[0].name
    body = _shared_fold(nest, env, names, WARP) + [
        f"{acc} = {_WARP_FOLD[nest.fold_name]}({acc});", f"if (threadIdx.x % {WARP} == 0) {{"]
    body += indent(put_lines(nest.puts, env, names)) + ["}"]
    return spread(nest.ranges, body, names, f"threadIdx.x / {WARP}", threads // WARP)

"""C text of Nest stages: scalar loops, loops with vector lanes, and reductions across lanes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from aotc.emit.c import half_lanes as halves
from aotc.emit.c.ahead import ahead_lines
from aotc.emit.c.aligned import by_vectors
from aotc.emit.c.digit_loops import by_digits, is_run
from aotc.emit.c.lookups import looked_up
from aotc.emit.c.narrow_lanes import store, stored
from aotc.emit.c.scalars import Names, Scalars, literal
from aotc.emit.c.vectors import Vectors
from aotc.emit.text.cexpr import ATOM, c_index, constant
from aotc.emit.text.dialect import Dialect, Operand
from aotc.emit.text.env import Env, KernelEnv
from aotc.ir.access import affine_stride, is_woven, stride
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Var, axes_of, substitute
from aotc.ir.plan import Nest, Put, Range
from aotc.ir.program import FOLD_STEP, NEUTRAL, Fold
from aotc.ir.simplify import simplify, upper

Around = Callable[[Sequence[Range], list[str]], list[str]]  # (loops, lines) -> lines
INDENT = "    "
LONG_FOLD = 32  # steps from which vectors of columns stand side by side
MOST_COLUMNS = 8  # each needs a register


def neutral(fold: str, dtype: str) -> str:
    """C literal of a fold's neutral element."""
    if DTYPES[dtype].kind != "f" and fold in ("max", "min"):
        bits = DTYPES[dtype].size * 8
        signed = DTYPES[dtype].kind == "i"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return literal(low if fold == "max" else high, dtype) if dtype != "bool" else \
            ("0" if fold == "max" else "1")
    return literal(NEUTRAL[fold], dtype)


def indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return [INDENT * depth + x if x else x for x in lines]


def loop(r: Range, body: Sequence[str]) -> list[str]:
    """``for`` over a Range around ``body`` lines; no loop where it runs exactly once from 0."""
    if simplify(r.hi - r.lo) == Const(1):
        return [f"{{ /* {r.axis.name} */", f"{INDENT}const int64_t {r.axis.name} = "
                f"{c_index(r.lo, 0)};", f"{INDENT}(void){r.axis.name};"] + indent(body) + ["}"]
    name, lo, hi = r.axis.name, c_index(r.lo, 0), c_index(r.hi, 11)
    head = f"for (int64_t {name} = {lo}; {name} < {hi}; ++{name}) {{"
    return [head] + indent(body) + ["}"]


def loops(ranges: Sequence[Range], body: list[str]) -> list[str]:
    for r in reversed(ranges):
        body = loop(r, body)
    return body


def nest_lines(nest: Nest, env: KernelEnv, names: Names) -> list[str]:
    """C lines of a Nest."""
    if not nest.vector:
        nest = by_digits(nest, names)
        if is_run(nest):
            return loops(nest.ranges[:-1], _run_copy(nest, env, names))
        return loops(nest.ranges, _scalar_point(nest, env, names))
    lane = next((r for r in nest.ranges if r.axis.name == nest.vector), None)
    if lane is not None and nest.block > 1 and nest.fold == "none":
        return _exchange_loops(nest, lane, env, names)
    if lane is not None and nest.block > 1:
        return _blocked_loops(nest, lane, env, names)
    if lane is not None:
        outer = [r for r in nest.ranges if r is not lane]
        say = of_width(env["dialect"], lane.hi - lane.lo)
        nest, places = looked_up(nest, lane, outer, env, names)
        wide, rest = _columns(nest, lane, say)
        whole = by_vectors(nest, lane, env)
        lines = [] if rest is None else lane_loop(rest, say, lambda count: _vector_point(
            whole, lane.axis, say, count, env, names))
        if wide:
            lines = _column_loop(nest, lane, wide, say, env, names) + lines
        return loops(outer, places + lines)
    return loops(nest.ranges, _across_point(nest, env, names))


def fold_loops(nest: Nest, accs: Sequence[str], define: Callable[[str], str],
               add: Callable[[str, str], str], step: Callable[[Sequence[str]], list[str]],
               names: Names, around: Around = loops) -> list[str]:
    """Loops over a Nest's reduction around ``step(accumulators)``, behind ``define(accumulator)``.
    Each part of a sum has accumulators of its own, which ``add(accumulator, part)`` joins to the
    whole.  around: makes the loops of one part."""
    lines = [define(a) for a in accs]
    if not nest.parts:
        return lines + around(nest.reduce, step(accs))
    own = [names.fresh("part") for _ in accs]
    part = [define(p) for p in own] + around(nest.reduce[nest.parts:], step(own))
    return lines + loops(nest.reduce[:nest.parts], part + [add(a, p) for a, p in zip(accs, own)])


# ---------------------------------------------------------------- scalar

def _scalar_point(nest: Nest, env: KernelEnv, names: Names) -> list[str]:
    lines = []
    if nest.fold != "none":
        lines += _scalar_fold(nest, env, names)
    block = Scalars(env, names, [x for p in nest.puts for x in (p.offset, p.value)])
    stores = [f"{env['buffer'](p.buffer)}[{block.text(p.offset)}] = {block.text(p.value)};"
              for p in nest.puts]
    return lines + block.lines + stores


def _run_copy(nest: Nest, env: KernelEnv, names: Names) -> list[str]:
    """The innermost loop of a Nest that copies elements which lie side by side."""
    (put,), r = nest.puts, nest.ranges[-1]
    load = put.value
    assert isinstance(load, Load), load  # so ``is_run`` says
    block = Scalars(env, names)
    to, place = (f"{env['buffer'](b)} + {block.text(simplify(substitute(at, {r.axis: r.lo})), 13)}"
                 for b, at in ((put.buffer, put.offset), (load.buffer, load.index[0])))
    size = f"sizeof({DTYPES[put.value.dtype].c})"
    return block.lines + [f"memcpy({to}, {place}, {c_index(simplify(r.hi - r.lo), 13)} * {size});"]


def _scalar_fold(nest: Nest, env: Env, names: Names) -> list[str]:
    if not isinstance(nest.fold, str):
        return stateful_fold(nest, env, names)
    return scalar_fold_loops(nest, env, names)


def scalar_fold_loops(nest: Nest, env: Env, names: Names, around: Around = loops) -> list[str]:
    """The fold of scalars; ``around`` as in ``fold_loops``."""
    acc = nest.acc[0]
    start = f"{DTYPES[acc.dtype].c} {{}} = {neutral(nest.fold_name, acc.dtype)};"
    return fold_loops(nest, [acc.name], start.format, "{} += {};".format,
                      lambda accs: fold_step(nest, env, names, accs[0]), names, around)


def fold_step(nest: Nest, env: Env, names: Names, into: str) -> list[str]:
    """Lines that fold one element into the C variable ``into``."""
    acc, element = nest.acc[0], Var("x", nest.acc[0].dtype)
    block = Scalars(env, names, (nest.body,))
    x = block.text(nest.body, ATOM)
    if nest.body.dtype != acc.dtype:
        x = f"(({DTYPES[acc.dtype].c}){x})"
    step = Scalars({**env, "vars": {**env["vars"], element: x, acc: into}}, names)
    return block.lines + [f"{into} = {step.text(Binary(FOLD_STEP[nest.fold_name], acc, element))};"]


def stateful_fold(nest: Nest, env: Env, names: Names) -> list[str]:
    """A fold with several states: all new ones are computed before any is replaced."""
    fold, first = nest.fold, Scalars(env, names)
    assert isinstance(fold, Fold), fold
    lines = [f"{DTYPES[v.dtype].c} {v.name} = {first.text(e)};"
             for v, e in zip(nest.acc, fold.init)]
    element = Var("x", nest.body.dtype)
    block = Scalars(env, names, (nest.body,))
    x = names.fresh("x")
    inner = [f"const {DTYPES[element.dtype].c} {x} = {block.text(nest.body)};"]
    inner = block.lines + inner
    step = Scalars({**env, "vars": {**env["vars"], element: x}}, names, fold.update)
    new = [(v, names.fresh("n"), step.text(e)) for v, e in zip(nest.acc, fold.update)]
    inner += step.lines + [f"const {DTYPES[v.dtype].c} {n} = {text};" for v, n, text in new]
    return first.lines + lines + loops(nest.reduce, inner + [f"{v.name} = {n};"
                                                             for v, n, _ in new])


# ---------------------------------------------------------------- lanes over an output axis

def of_width(say: Dialect, lanes: Expr, values: int = 1) -> Dialect:
    """The dialect with the widest vector values that ``lanes`` (an extent) fill at a usual vector
    length and that leave registers for ``values`` accumulators."""
    if not say.strip_mined:
        return say
    most = upper(simplify(lanes))
    fits = [g for g in say.groups if (most is None or g * say.usual <= most)
            and (values == 1 or g <= 2)]
    return say.of_width(fits[0] if fits else say.groups[-1])


def _strip_loop(r: Range, say: Dialect, body: Callable[[str], list[str]]) -> list[str]:
    """One loop whose every step takes as many lanes as there are and as the CPU has."""
    inner = body("")
    capped = any(say.cap in line for line in inner)
    name, lo, hi = r.axis.name, c_index(r.lo, 0), c_index(r.hi, 12)
    first = say.lines("step_length", f"{hi} - {name}", capped)
    return [f"for (int64_t {name} = {lo}; {name} < {hi};) {{"] + indent(
        first + inner + [say.strip_end(name)]) + ["}"]


def fitted_loop(r: Range, say: Dialect, body: Callable[[Dialect], list[str]],
                most: int) -> list[str]:
    """Like ``_strip_loop``, every step with the narrowest vector values that hold what is left, of
    at most ``most`` registers: ``body(dialect)`` is written once per width."""
    name = r.axis.name
    widths = [say.of_width(g) for g in reversed(say.groups) if g <= most]
    lines = [f"const int64_t {name}_n = {c_index(r.hi, 12)} - {name};"]
    for i, w in enumerate(widths):
        inner = body(w)
        capped = any(w.cap in line for line in inner)
        head = f"if ({w.fits(f'{name}_n')}) {{" if w is not widths[-1] else "{"
        lines += [("} else " if i else "") + head]
        lines += indent(w.lines("step_length", f"{name}_n", capped) + inner
                        + [w.strip_end(name)])
    head = f"for (int64_t {name} = {c_index(r.lo, 0)}; {name} < {c_index(r.hi, 11)};) {{"
    return [head] + indent(lines + ["}"]) + ["}"]


def lane_loop(r: Range, say: Dialect, body: Callable[[str], list[str]]) -> list[str]:
    """Full vectors, then the remainder with a lane count.  ``body(count)`` -> lines; count is the
    C text of the number of live lanes or "" for all."""
    if say.strip_mined:
        return _strip_loop(r, say, body)
    name, lo, hi, lanes = r.axis.name, c_index(r.lo, 0), c_index(r.hi, 12), say.lanes
    extent = simplify(r.hi - r.lo)
    if lanes == 1:
        return loop(r, body(""))
    whole = simplify(extent % lanes) == Const(0)
    top = upper(extent)
    if top is not None and top < lanes:
        return ["{", f"{INDENT}const int64_t {name} = {lo}, {name}_n = {hi} - {name};"] + indent(
            [f"if ({name}_n > 0) {{"] + indent(body(f"{name}_n")) + ["}"]) + ["}"]
    if whole:
        return [f"for (int64_t {name} = {lo}; {name} < {hi}; {name} += {lanes}) {{"] + indent(
            body("")) + ["}"]
    rest = [f"if ({name} < {hi}) {{", f"{INDENT}const int64_t {name}_n = {hi} - {name};"] + indent(
        body(f"{name}_n")) + ["}"]
    return ["{", f"{INDENT}int64_t {name} = {lo};"] + indent(
        [f"for (; {name} + {lanes} <= {hi}; {name} += {lanes}) {{"] + indent(body("")) + ["}"]
        + rest) + ["}"]


def _vector_point(nest: Nest, lane: Axis, say: Dialect, count: str, env: KernelEnv,
                  names: Names) -> list[str]:
    acc, lines = {}, []
    if nest.fold != "none":
        name = names.fresh("acc")
        acc = {nest.acc[0]: name}
        lines += _vector_fold(nest, [name], say, names, lambda accs: _vector_step(
            nest, Vectors(env, names, lane, say, count, (nest.body,)), accs[0]))
    return lines + store_lines(nest.puts, lane, say, count, env, names, acc,
                               summed=nest.fold == "sum")


def _columns(nest: Nest, lane: Range, say: Dialect) -> tuple[int, Range | None]:
    """(vectors side by side, Range of the lanes behind them) of a fold whose steps lie outside the
    lanes in memory, in as few passes as there can be; (0, the whole Range) for other nests, None
    for a Range that is empty.

    One vector after another would come back to every row's cache lines, and each step waits for
    the one before it.  Side by side they share the lines and their chains overlap; every lane
    folds its values in the same order either way."""
    extent, steps = simplify(lane.hi - lane.lo), simplify(
        prod((r.hi - r.lo for r in nest.reduce), start=Const(1)))
    if nest.fold == "none" or say.strip_mined or say.lanes == 1 or not (
            isinstance(extent, Const) and _beside(nest.body, lane.axis)) or (
            isinstance(steps, Const) and steps.value < LONG_FOLD):
        return 0, lane
    vectors = extent.value // say.lanes
    if vectors < 2:
        return 0, lane
    wide = min(range(MOST_COLUMNS, 1, -1), key=lambda w: vectors // w + vectors % w)
    done = vectors // wide * wide * say.lanes
    return wide, None if done == extent.value else replace(lane, lo=simplify(lane.lo + done))


def _beside(e: Expr, lane: Axis) -> bool:
    """True for elements, and sums, differences and products of some, whose lanes lie side by side
    in memory or are all the same."""
    if isinstance(e, Binary):
        return e.op in ("add", "sub", "mul") and all(_beside(x, lane) for x in (e.a, e.b))
    if isinstance(e, Cast) and e.x.dtype == halves.HALF:
        e = e.x
    return isinstance(e, Const) or isinstance(e, Load) and e.dtype in ("f32", halves.HALF) and (
        stride(e.index[0], lane) in (Const(0), Const(1)))


def _column_loop(nest: Nest, lane: Range, wide: int, say: Dialect, env: KernelEnv,
                 names: Names) -> list[str]:
    """The vectors of lanes that stand side by side, ``wide`` at a time."""
    step = wide * say.lanes
    accs = [names.fresh("acc") for _ in range(wide)]
    at = [simplify(lane.axis + u * say.lanes) for u in range(wide)]
    bodies = [simplify(substitute(nest.body, {lane.axis: e})) for e in at]
    lines = _vector_fold(nest, accs, say, names, lambda accs: [
        x for a, body in zip(accs, bodies) for x in _vector_step(
            nest, Vectors(env, names, lane.axis, say, "", (body,)), a, body)])
    for a, e in zip(accs, at):
        puts = tuple(Put(p.buffer, *(simplify(substitute(x, {lane.axis: e}))
                                     for x in (p.offset, p.value))) for p in nest.puts)
        lines += store_lines(puts, lane.axis, say, "", env, names, {nest.acc[0]: a},
                             summed=nest.fold == "sum")
    name, first = lane.axis.name, c_index(lane.lo, 0)
    end = c_index(simplify(lane.lo + constant(simplify(lane.hi - lane.lo)) // step * step), 11)
    return [f"for (int64_t {name} = {first}; {name} < {end}; {name} += {step}) {{",
            *indent(lines), "}"]


def _blocked_loops(nest: Nest, lane: Range, env: KernelEnv, names: Names) -> list[str]:
    """Loops in which the block axis advances by ``block`` outputs at once, then one by one."""
    at = next(i for i, r in enumerate(nest.ranges) if r.axis.name == nest.block_axis)
    before, r = nest.ranges[:at], nest.ranges[at]
    after = [x for x in nest.ranges[at + 1:] if x is not lane]
    say = of_width(env["dialect"], lane.hi - lane.lo, nest.block)

    def body(count: int) -> list[str]:
        return loops(after, lane_loop(lane, say, lambda live: _blocked_point(
            nest, lane.axis, say, r.axis, count, live, env, names)))

    name, hi = r.axis.name, c_index(r.hi, 11)
    lines = ["{", f"{INDENT}int64_t {name} = {c_index(r.lo, 0)};"] + indent(
        [f"for (; {name} + {nest.block} <= {hi}; {name} += {nest.block}) {{"]
        + indent(body(nest.block)) + ["}", f"for (; {name} < {hi}; ++{name}) {{"]
        + indent(body(1)) + ["}"]) + ["}"]
    return loops(before, lines)


def _blocked_point(nest: Nest, lane: Axis, say: Dialect, axis: Axis, count: int, live: str,
                   env: KernelEnv, names: Names) -> list[str]:
    """``count`` neighbouring outputs: taps written out, equal loads shared."""
    taps = next(r for r in nest.reduce if r.axis.name == nest.taps)
    outer = tuple(r for r in nest.reduce if r is not taps)
    accs = [names.fresh("acc") for _ in range(count)]
    bodies = [(u, simplify(substitute(nest.body, {axis: axis + u, taps.axis: Const(t)})))
              for t in range(constant(taps.axis.extent)) for u in range(count)]
    block = Vectors(env, names, lane, say, live, [b for _, b in bodies])
    lines = _vector_fold(replace(nest, reduce=outer), accs, say, names, lambda accs: [
        x for u, b in bodies for x in _vector_step(nest, block, accs[u], b)])
    if count == nest.block:
        lines += ahead_lines(nest, lane, axis, env)
    for u, a in enumerate(accs):
        puts = tuple(Put(p.buffer, *(simplify(substitute(e, {axis: axis + u}))
                                     for e in (p.offset, p.value))) for p in nest.puts)
        lines += store_lines(puts, lane, say, live, env, names, {nest.acc[0]: a},
                             summed=nest.fold == "sum")
    return lines


def _exchange_loops(nest: Nest, lane: Range, env: KernelEnv, names: Names) -> list[str]:
    """A move that reads neighbours along the lane axis and writes them along the block axis."""
    block = next(r for r in nest.ranges if r.axis.name == nest.block_axis)
    put, load = nest.puts[0], nest.puts[0].value
    assert isinstance(load, Load), load  # a move
    first = {r.axis: r.lo for r in (lane, block)}
    ends = []
    for buffer, at, across in ((load.buffer, load.index[0], block), (put.buffer, put.offset, lane)):
        start = c_index(simplify(substitute(at, first)), 13)
        ends += [f"{env['buffer'](buffer)} + {start}", c_index(affine_stride(at, across.axis), 0)]
    counts = [c_index(simplify(r.hi - r.lo), 0) for r in (block, lane)]
    outer = [r for r in nest.ranges if r not in (lane, block)]
    if is_woven(put.offset, lane.axis, block.axis) and (block.lo, block.hi) == (
            Const(0), block.axis.extent):
        return loops(outer, env["dialect"].lines("woven", *ends[:3], *counts))
    return loops(outer, env["dialect"].lines("transposed", *ends, *counts))


def _vector_fold(nest: Nest, accs: Sequence[str], say: Dialect, names: Names,
                 step: Callable[[Sequence[str]], list[str]]) -> list[str]:
    """``fold_loops`` of vectors: ``step(accumulators)``."""
    def define(a: str) -> str:
        return say.define(a, say.splat(neutral(nest.fold_name, "f32")))

    return fold_loops(nest, accs, define, lambda a, part: say.step("sum", a, part), step, names)


def _vector_step(nest: Nest, block: Vectors, acc: str, body: Expr | None = None) -> list[str]:
    """Lines that fold ``body`` into the vector ``acc``."""
    step = _fold_step(nest, block, acc, body)
    lines, block.lines = block.lines + [step], []
    return lines


def _fold_step(nest: Nest, block: Vectors, acc: str, body: Expr | None = None) -> str:
    body = nest.body if body is None else body
    if nest.fold == "sum" and isinstance(body, Binary) and body.op == "mul":
        a, b = block.operand(body.a), block.operand(body.b)
        return block.say.fma(a, b, acc)
    return block.say.step(nest.fold, acc, block.text(body))


def store_lines(puts: Sequence[Put], lane: Axis, say: Dialect, count: str, env: KernelEnv,
                names: Names, acc: Mapping[Var, str], known: Mapping[Expr, Operand] | None = None,
                summed: bool = False) -> list[str]:
    """Evaluate the puts at the lane axis and store: contiguous, with a stride, or lane by lane.
    ``known``: {expression: Operand} evaluated before.  ``summed``: accumulators hold sums."""
    block = Vectors(env, names, lane, say, count, [p.value for p in puts], acc)
    block.known.update(known or {})
    block.summed = summed
    values = [(p, _value(block, p.value)) for p in puts]
    lines, block.lines = block.lines, []
    for p, (v, converts) in values:
        step = stride(p.offset, lane)
        out = env["buffer"](p.buffer)
        at = f"{out} + {c_index(p.offset, 13)}"
        if p.value.dtype == halves.HALF:
            lines += _half_stores(p, (v, converts), lane, step, say, count, names, at)
        elif step == Const(1) and p.value.dtype != "f32":
            lines.append(store(p, v, count, at))
        elif step == Const(1):
            lines.append(say.store_n(at, v, count) if count else say.store(at, v))
        elif step is not None and say.strided:
            lines.append(say.store_strided(at, c_index(step, 13), v))
        else:
            lines += _scattered(p, v, lane, say, count, out, names)
    return lines


def _value(block: Vectors, e: Expr) -> tuple[str, bool]:
    """(what a put of ``e`` stores, in lanes: floats, i32 or half precision, True if it is floats
    that the store converts)."""
    if e.dtype == halves.HALF:
        return halves.put(block, e)
    return block.text(e) if e.dtype == "f32" else stored(block, e), False


def _half_stores(put: Put, value: tuple[str, bool], lane: Axis, step: Expr | None, say: Dialect,
                 count: str, names: Names, at: str) -> list[str]:
    """Store half precision: contiguous, with a stride, or lane by lane."""
    if step == Const(1):
        return [halves.store(say, at, value, count)]
    lanes = halves.as_bits(say, value)
    if step is not None and say.strided:
        return [say.half_put_apart(at, c_index(step, 13), lanes)]
    return _scattered(put, lanes, lane, say, count, at.partition(" + ")[0], names)


def _scattered(put: Put, value: str, lane: Axis, say: Dialect, count: str, out: str,
               names: Names) -> list[str]:
    """Store a vector lane by lane."""
    spill = names.fresh("g")
    one = Axis(f"{lane.name}_l", lane.extent)
    at = simplify(substitute(put.offset, {lane: one}))
    kept = f"{spill}[l]"
    if put.value.dtype == halves.HALF:
        lines = [say.array("uint16_t", spill), say.half_put(spill, value), say.each(count)]
    elif put.value.dtype == "f32":
        lines = [say.array("float", spill), say.spill_result(spill, value), say.each(count)]
    else:
        lines = [say.array("int32_t", spill), f"aotc_store_i32({spill}, {value});",
                 say.each(count)]
        kept = f"({DTYPES[put.value.dtype].c}){kept}"
    if one in axes_of(at):  # an axis of extent one is in no offset
        lines.append(f"{INDENT}const int64_t {one.name} = {lane.name} + l;")
    return lines + [f"{INDENT}{out}[{c_index(at, 0)}] = {kept};", "}"]


# ---------------------------------------------------------------- lanes over a reduction axis

def _across_point(nest: Nest, env: KernelEnv, names: Names) -> list[str]:
    lane = nest.reduce[-1]
    name, fill, acc = names.fresh("acc"), neutral(nest.fold_name, "f32"), nest.acc[0].name
    say = of_width(env["dialect"], lane.hi - lane.lo)

    def step(count: str) -> list[str]:
        block = Vectors(env, names, lane.axis, say, count, (nest.body,))
        body = nest.body
        if not count and nest.fold == "sum" and isinstance(body, Binary) and body.op == "mul":
            text = say.fma_across(block.operand(body.a), block.operand(body.b), name)
        else:
            text = say.step_across(nest.fold, name, block.text(body), count, fill)
        return block.lines + [text]

    lines = [say.define_across(name, fill)] + loops(nest.reduce[nest.parts:-1],
                                                    lane_loop(lane, say, step))
    if nest.parts:
        part = lines + [f"{acc} += {say.across(nest.fold, name)};"]
        lines = [f"float {acc} = {fill};"] + loops(nest.reduce[:nest.parts], part)
    else:
        lines.append(f"const float {acc} = {say.across(nest.fold, name)};")
    block = Scalars(env, names, [x for p in nest.puts for x in (p.offset, p.value)])
    stores = [f"{env['buffer'](p.buffer)}[{block.text(p.offset)}] = {block.text(p.value)};"
              for p in nest.puts]
    return ["{"] + indent(lines + block.lines + stores) + ["}"]

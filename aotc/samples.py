"""Random inputs that mean something to a model, and recorded runs for a bundle's own test.

What an integer input is for is read off the Program: a buffer that ends up inside a ``checked``
index counts rows of a table, one that is only compared or converted is a mask.
"""

import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from aotc.errors import AotcError, FaultError
from aotc.ir.bundle import Sample
from aotc.ir.dtypes import CHARS, DTYPES, STORED, TEXT, Array, is_float
from aotc.ir.expr import (
    COMPARE,
    Binary,
    Cast,
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    Where,
    axes_of,
    children,
    int_of,
    loads,
    substitute,
    walk,
)
from aotc.ir.program import Branch, Compute, Loop, Program, Step, flops
from aotc.ir.simplify import simplify, split_linear
from aotc.oracle.eval_expr import EvalScope, index_value
from aotc.oracle.evaluate import evaluate, infer_syms, input_arrays
from aotc.passes.regions import all_steps

# Recorded outputs come from the numpy evaluator, which is exact and slow (a few GFLOP/s).
# Beyond this many operations a bundle records none; `aotc verify` covers such models.
SAMPLE_FLOPS = 2.5e10
SAMPLE_BYTES = 64 << 20  # of the tensors of one run that are alive at once
STEP_FLOPS = 2_000_000  # that starting a step of a region takes as long as, every time
LIBRARY_FLOPS = 4000  # that the numpy twin of a library kernel counts for, per element it reads
MEASURED = 2  # sets of inputs that errors are measured on
# Largest extents tried for a symbol: enough to cross every tile edge, quick to run.
EXTENT_CAP = 160

Box = Mapping[str, tuple[int, int | None]]  # symbol -> lowest and highest extent
Syms = Mapping[str, int]  # symbol -> its value
Feeds = dict[str, Array]  # by ONNX name
Role = int | str | Expr  # what an element is for: a table's rows, or how it is used


@dataclass(frozen=True)
class InputKind:
    """``kind``: normal | table (integers in 0..high-1) | mask (0/1) | small (1..8) | bool | bytes
    (any of 8 bits) | expected (what must equal an extent), or a type that is stored only, for its
    bits.  ``extent``: of a table as long as symbols say, or what is expected."""

    kind: str
    high: int = 0
    extent: Expr | None = None


def input_kinds(program: Program) -> dict[str, InputKind]:
    """{input buffer name: InputKind} for every input of the Program."""
    tables, rooms, masks = _index_uses(program)
    wanted = _expected(program)
    out = {}
    for name in program.inputs:
        dtype, stored = program.dtype(name), program.buffers[name].stored
        if stored:
            out[name] = InputKind(stored, len(program.texts))
        elif is_float(dtype):
            out[name] = InputKind("normal")
        elif program.buffers[name].scale is not None:
            out[name] = InputKind("bytes")
        elif dtype == "bool":
            out[name] = InputKind("bool")
        elif name in wanted:
            out[name] = InputKind("expected", extent=wanted[name])
        elif name in tables:
            out[name] = InputKind("table", tables[name])
        elif name in rooms:
            out[name] = InputKind("table", extent=rooms[name])
        else:
            out[name] = InputKind("mask" if name in masks else "small")
    return out


def _expected(program: Program) -> dict[str, Expr]:
    """{input: the extent that it must equal}, of those that are looked at as they are, or with a
    number added."""
    out: dict[str, Expr] = {}
    for step in program.steps:
        e = step.body if isinstance(step, Compute) else None
        if not isinstance(e, Binary) or e.op != "expected":
            continue
        value, extent = e.a, e.b
        while isinstance(value, (Cast, Binary)):
            if isinstance(value, Binary):
                if value.op != "add" or not isinstance(value.b, Const):
                    break
                extent = extent - value.b
            value = value.x if isinstance(value, Cast) else value.a
        if isinstance(value, Load) and value.buffer in program.inputs and not axes_of(
                extent) and not any(isinstance(n, Load) for n in walk(extent)):
            out[value.buffer] = extent
    return out


def _index_uses(program: Program) -> tuple[dict[str, int], dict[str, Expr], set[str]]:
    """({buffer: rows of the smallest table it indexes}, {buffer: extent that it indexes, where that
    depends on symbols}, {buffers only compared or converted}).

    Consumers come first, so that a buffer that is merely moved or converted on its way into an
    index inherits what its consumer is used for."""
    tables: dict[str, int] = {}
    rooms: dict[str, Expr] = {}
    other: set[str] = set()
    for step in reversed(program.steps):
        if not isinstance(step, Compute):
            count = step.count if isinstance(step, Loop) else ""
            rounds = _rounds_inside(step) if count and isinstance(step, Loop) else None
            other.update(i for i in step.inputs if rounds is None or i != count)
            if isinstance(rounds, Const):
                tables[count] = int_of(rounds) + 1
            elif rounds is not None:
                rooms[count] = simplify(rounds + 1)
            continue
        inherited = tables.get(step.out) if step.fold == "none" else None
        if step.fold == "none" and step.out in rooms:  # of a number that is merely moved
            rooms.update((n.buffer, rooms[step.out]) for n, role in _roles(step.body, "value")
                         if role == "value")
        passes_on = step.fold == "none" and step.out in other
        for load, role in _roles(step.body, "arith" if passes_on else "value"):
            if isinstance(role, int):
                tables[load.buffer] = min(role, tables.get(load.buffer, role))
            elif isinstance(role, Expr):
                rooms.setdefault(load.buffer, role)
            elif role == "arith":
                other.add(load.buffer)
            elif role == "value" and inherited is not None:
                tables[load.buffer] = min(inherited, tables.get(load.buffer, inherited))
    integers = {n for n in program.inputs if not is_float(program.dtype(n))}
    return tables, rooms, integers - other - set(tables) - set(rooms)


def _rounds_inside(loop: Loop) -> Expr | None:
    """The most rounds in which what a body reads at the place of the round lies inside; None if
    nothing says that."""
    found: list[Expr] = []
    for s in all_steps(loop.body.steps):
        for n in walk(s.body) if isinstance(s, Compute) else ():
            if isinstance(n, Guarded) and n.op == "checked" and not loads(n.b):
                parts = None if loads(n.a) else split_linear(n.a, loop.round)
                if parts is not None and parts[0] == Const(1) and isinstance(parts[1], Const):
                    found.append(simplify(n.b - parts[1]))
    least = [e for e in found if isinstance(e, Const)]
    return min(least, key=int_of) if least else found[0] if found else None


def _roles(e: Expr, role: Role) -> Iterator[tuple[Load, Role]]:
    """(Load, role) pairs under ``e``.  role: an int or extent (inside ``checked`` so), "test"
    (inside a comparison), "arith" (an operand of integer arithmetic), "value" (passed through)."""
    if isinstance(e, Load):
        yield e, role
        for i in e.index:
            yield from _roles(i, "arith")
    elif isinstance(e, Where):
        yield from _roles(e.cond, "test")
        yield from _roles(e.a, role)
        yield from _roles(e.b, role)
    elif isinstance(e, Cast) and (is_float(e.dtype) or e.dtype == "bool"):
        yield from _roles(e.x, "test")
    elif isinstance(e, Binary) and e.op == "checked":
        whole = not axes_of(e.b) and not loads(e.b)
        yield from _roles(e.a, e.b.value if isinstance(e.b, Const) else e.b if whole else role)
    elif isinstance(e, Binary) and e.op in COMPARE:
        yield from _roles(e.a, "test")
        yield from _roles(e.b, "test")
    elif isinstance(e, Binary):
        # i + n, the wrapped form of a negative index, is still that index
        inner = role if isinstance(role, (int, Expr)) or role == "test" else "arith"
        yield from _roles(e.a, inner)
        yield from _roles(e.b, inner)
    else:
        for child in children(e):
            yield from _roles(child, role)


def random_inputs(program: Program, sym_values: Syms, seed: int = 0,
                  kinds: Mapping[str, InputKind] | None = None) -> Feeds:
    """{ONNX input name: array}: floats normal, table indices over the whole range with both ends
    present, masks 0/1 with a one in front (a fully masked row has no meaning to most models)."""
    kinds = kinds or input_kinds(program)
    feeds = {}
    for name in program.inputs:
        buf = program.buffers[name]
        shape = tuple(index_value(d, sym_values) for d in buf.shape)
        key = buf.onnx or name
        rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
        kind = kinds[name]
        if kind.extent is not None:
            kind = replace(kind, high=index_value(kind.extent, sym_values))
        feeds[key] = _draw(rng, kind, shape).astype(DTYPES[buf.dtype].numpy)
    return feeds


def _draw(rng: np.random.Generator, kind: InputKind, shape: tuple[int, ...]) -> Array:
    if kind.kind == "normal":
        return rng.standard_normal(shape)
    if kind.kind == "bytes":
        return rng.integers(0, 256, shape, np.uint8)  # the bits of i8, too
    if kind.kind == CHARS:
        array = rng.integers(ord("a"), ord("f"), shape)
        array[np.arange(shape[-1]) >= rng.integers(0, shape[-1] + 1, (*shape[:-1], 1))] = 0
        return array
    if kind.kind == TEXT:
        return rng.integers(-1, kind.high, shape)
    if kind.kind in STORED:
        return _codes(rng, kind.kind, shape)
    if kind.kind == "expected":
        return np.full(shape, kind.high)
    if kind.kind == "table":
        array = np.asarray(rng.integers(0, max(kind.high, 1), shape))
        ends = [kind.high - 1, 0][:array.size]
        array.reshape(-1)[:len(ends)] = ends
        return array
    if kind.kind == "small":
        return rng.integers(1, 9, shape)
    array = np.asarray(rng.integers(0, 2, shape))
    if array.size:
        array.reshape(shape or 1)[..., :1] = 1
    return array


def _codes(rng: np.random.Generator, stored: str, shape: tuple[int, ...]) -> Array:
    """Bits of numbers of middling size, of integers any."""
    if stored == "bf16":
        return rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16
    if stored == "f8e8m0":
        return rng.integers(120, 134, shape)
    if STORED[stored].bits == 8:
        return rng.integers(0x20, 0x50, shape) | rng.integers(0, 2, shape) << 7
    return rng.integers(0, 1 << STORED[stored].bits, shape)


def extents(program: Program, cap: int = EXTENT_CAP,
            room: int | None = None) -> list[dict[str, int]]:
    """Symbol values to try, as dicts without repeats: all lowest, all highest (at most ``cap``),
    all in the middle, odd and unequal, one that broadcasts 1 beside others; lower ones where a
    run's tensors would take more than ``room`` bytes (``_chosen``).  Of choices that break an entry
    check one dimension is moved to where it holds (``total`` to ``past + seq``), or they are left
    out; without symbols the one choice is {}."""
    if not program.syms:
        return [{}]
    tops = {s.name: max(s.lo, min(s.reach, cap)) for s in program.syms}
    lows = {s.name: s.lo for s in program.syms}
    mids = {n: (lows[n] + tops[n]) // 2 for n in tops}
    odd = {n: min(tops[n], max(lows[n], 13 + 6 * k)) for k, n in enumerate(tops)}
    out: list[dict[str, int]] = []
    for values in (mids, lows, odd, tops, *(mids | {n: 1} for n in _broadcast(program))):
        values = _chosen(program, values, lows, room)
        if values not in out and all(_holds(c.cond, values) for c in program.checks):
            out.append(values)
    return out


def _broadcast(program: Program) -> list[str]:
    """The first symbol of a condition with alternatives: an extent equal to another, or 1."""
    found = (n.name for c in program.checks if isinstance(c.cond, Binary) and c.cond.op == "or"
             for n in walk(c.cond) if isinstance(n, Sym) and n.lo <= 1)
    return list(found)[:1]


def _chosen(program: Program, values: dict[str, int], lows: Syms,
            room: int | None) -> dict[str, int]:
    """Symbol values in agreement with the entry checks.  All are moved half their way to ``lows``
    until the tensors of a run that are alive at once take at most ``room`` bytes (None: any
    number), or there is no way left."""
    while True:
        agreed = values
        for c in program.checks:
            agreed = _agreeing(program, c.cond, agreed)
        if room is None or values == lows or not all(
                _holds(c.cond, agreed) for c in program.checks) or (
                live_bytes(program, agreed) <= room):
            return agreed
        values = {n: (v + lows[n]) // 2 for n, v in values.items()}


def _holds(cond: Expr, values: Syms) -> bool:
    return bool(EvalScope({}, None, values).value(cond))


def _agreeing(program: Program, cond: Expr, values: dict[str, int]) -> dict[str, int]:
    """Symbol values under which an equation holds, or one of several: the first symbol that can
    make it so is moved, within its range; where one side must not be larger, the last.  Other
    conditions, and what no symbol alone can mend, stay as they are."""
    if _holds(cond, values) or not isinstance(cond, Binary) or cond.op not in (
            "eq", "le", "and", "or"):
        return values
    if cond.op in ("and", "or"):
        for part in (cond.a, cond.b):
            moved = _agreeing(program, part, values)
            if cond.op == "or" and _holds(cond, moved):
                return moved
            values = moved if cond.op == "and" else values
        return values
    for s in program.syms if cond.op == "eq" else reversed(program.syms):
        gap, after = (EvalScope({}, None, v).value(cond.a - cond.b)
                      for v in (values, values | {s.name: values[s.name] + 1}))
        step = after - gap
        moved = values | {s.name: int(values[s.name] - gap // step)} if step else values
        if moved[s.name] >= s.lo and (s.hi is None or moved[s.name] <= s.hi) and _holds(
                cond, moved):
            return moved
    return values


def border_extents(program: Program, boxes: Sequence[Box], cap: int = EXTENT_CAP,
                   room: int | None = None) -> list[dict[str, int]]:
    """Symbol values at both ends of each of ``boxes`` ({symbol: (lowest, highest)}), as dicts
    without repeats; in agreement with the entry checks and within ``room`` bytes, as ``extents``.
    Ranges of the last box, and those that a box does not name, are tried up to ``cap`` behind their
    beginning."""
    out: list[dict[str, int]] = []
    for i, box in enumerate(boxes):
        ends = {s.name: box.get(s.name, (s.lo, s.hi)) for s in program.syms}
        lows = {n: lo for n, (lo, _) in ends.items()}
        exact = () if i + 1 == len(boxes) else box
        highs = {n: hi if hi is not None and (n in exact or hi < lo + cap) else lo + cap
                 for n, (lo, hi) in ends.items()}
        for values in (lows, highs):
            values = _chosen(program, values, lows, room)
            if values not in out and all(_holds(c.cond, values) for c in program.checks):
                out.append(values)
    return out


def record_samples(program: Program, limit: float = SAMPLE_FLOPS,
                   boxes: Sequence[Box] = ()) -> tuple[Sample, ...]:
    """Recorded runs (a tuple of Sample) for the bundle's own test, from the numpy evaluator; the
    empty tuple if one run would cost more than ``limit`` operations or SAMPLE_BYTES of tensors at
    once, or random inputs lead to an index outside its table.  ``boxes``: ranges of extents that
    code of their own serves; they are run at both ends, as many as ``limit`` has operations for."""
    out: list[Sample] = []
    chosen = extents(program, cap=16)[:2]
    ends = [s for s in border_extents(program, boxes) if s not in chosen]
    for syms in (*chosen, *_quickest(program, ends, limit)):
        if run_work(program, syms) <= limit and live_bytes(program, syms) <= SAMPLE_BYTES:
            feeds = random_inputs(program, syms, seed=len(out))
            try:
                results = evaluate(program, feeds, syms)
            except FaultError:
                continue  # an index computed from inputs in a way that random ones do not meet
            named = {program.buffers[n].onnx or n: a for n, a in results.items()}
            out.append(Sample(syms, feeds, named))
    return tuple(out)


def _quickest(program: Program, runs: Sequence[dict[str, int]],
              limit: float) -> list[dict[str, int]]:
    """As many of ``runs`` as take at most ``limit`` operations together, in order."""
    taken, spent = [], 0.0
    for work, i in sorted((run_work(program, syms), i) for i, syms in enumerate(runs)):
        spent += work
        taken += [i] if spent <= limit else []
    return [runs[i] for i in sorted(taken)]


def read_feeds(path: str | Path, fixed: Collection[str] = (),
               program: Program | None = None) -> Feeds:
    """The arrays of an .npz file by input name, without the ``fixed`` ones; floats where a Program
    takes 8 bits instead are rounded so.  AotcError if it is none."""
    scales = {} if program is None else program.scales
    try:
        with np.load(path, allow_pickle=False) as data:
            feeds = {n: data[n] for n in data.files if n not in fixed}
        return {n: scales[n].to_bytes(a) if n in scales and a.dtype.kind == "f" else a
                for n, a in feeds.items()}
    except (OSError, ValueError) as err:
        raise AotcError(f"inputs {path}: not an .npz file of plain arrays: {err}") from None


def measuring_feeds(program: Program, given: Feeds | None = None) -> tuple[list[Feeds], float]:
    """(inputs to measure errors on, operations of one run on the evaluator): those ``given``, or
    random ones of the largest extents that do not take it long, several sets where that is quick.
    """
    if given is not None:
        syms = infer_syms(program, input_arrays(program, given), None)
        return [given], run_work(program, syms)
    works = [(run_work(program, syms), i, syms) for i, syms in enumerate(extents(program))]
    work, _, syms = max((w for w in works if w[0] <= SAMPLE_FLOPS), default=min(works))
    kinds, runs = input_kinds(program), MEASURED if work <= SAMPLE_FLOPS / 10 else 1
    return [random_inputs(program, syms, seed, kinds) for seed in range(runs)], work


def run_work(program: Program, syms: Syms) -> int:
    """Operations of one run on the numpy evaluator."""
    return sum(_work(program, s, syms) for s in program.steps)


def _work(program: Program, step: Step, syms: Syms) -> int:
    """Operations of a step; of a library call, what its slow twin needs for elements one by one."""
    if isinstance(step, Compute):
        return _counted(flops(step), syms)
    if isinstance(step, (Loop, Branch)):
        rounds = index_value(step.trip, syms) if isinstance(step, Loop) else 1
        inner = {**syms, step.round.name: 0} if isinstance(step, Loop) else syms
        return rounds * sum(STEP_FLOPS + _work(b, s, inner) for b in step.bodies for s in b.steps)
    return LIBRARY_FLOPS * sum(math.prod(index_value(d, syms) for d in program.shape(b))
                               for b in step.inputs)


def _counted(e: Expr, syms: Syms) -> int:
    """A number of operations under ``syms``, exactly: of absurd extents it is more than an index
    holds."""
    values: dict[Expr, Expr] = {n: Const(syms[n.name]) for n in walk(e) if isinstance(n, Sym)}
    count = simplify(substitute(e, values))
    return int(count.value) if isinstance(count, Const) else index_value(count, syms)


def live_bytes(program: Program, syms: Syms) -> int:
    """Most bytes of tensors, weights aside, that are alive at once while the steps run in order:
    each from its step to its last reader."""
    size = {n: DTYPES[b.dtype].size * math.prod(
        d.value if isinstance(d, Const) else index_value(d, syms) for d in b.shape)
        for n, b in program.buffers.items() if b.role != "const"}
    last = {b: s for s in program.steps for b in s.inputs}
    alive = most = sum(size[n] for n in program.inputs)
    for step in program.steps:
        alive += sum(size[o] for o in step.outs)
        inner = {**syms, step.round.name: 0} if isinstance(step, Loop) else syms
        bodies = step.bodies if isinstance(step, (Loop, Branch)) else ()
        most = max(most, alive + max((live_bytes(b, inner) for b in bodies), default=0))
        alive -= sum(size.get(b, 0) for b in set(step.inputs)
                     if last[b] is step and b not in program.results)
    return most

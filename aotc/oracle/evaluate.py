"""The oracle: a Program evaluated in numpy, straight from its meaning.

    evaluate(program, feeds) -> {output buffer: array}
    eval_compute(compute, box, read, syms) -> array over the box

Elementwise arithmetic happens in the dtype of each node, as in C; transcendental functions go
through f64 and are rounded once; reductions of floats accumulate in f64 and are rounded once.
Order is fixed and no BLAS is used, so a result does not depend on threads or tuning.  Work is
cut into pieces so that no intermediate array holds more than ``CHUNK`` elements.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aotc.errors import FaultError, UnsupportedError
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Binary, Expr, Sym, children, show
from aotc.ir.library import LIBRARY, Run
from aotc.ir.program import Branch, Compute, Entry, Fold, Loop, Program, Region, Step
from aotc.oracle.eval_expr import EvalScope, Read, index_value

Arrays = dict[str, Array]
Feeds = Mapping[str, Array]
RunBody = Callable[[int, Program, Feeds, Mapping[str, int]], Arrays]
Box = tuple[tuple[int, int], ...]  # (first index, extent) per axis
CHUNK = 1 << 21  # elements per intermediate array: 16 MB in f64
COMBINE: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum,
                                "min": np.minimum}


def evaluate(program: Program, feeds: Mapping[str, Array],
             sym_values: Mapping[str, int] | None = None,
             libcalls: Mapping[str, Run] | None = None) -> dict[str, Array]:
    """Outputs of ``program`` for input arrays: ``{output buffer name: array}``.

    feeds: array per input, by buffer name or by its ONNX name, of exactly the buffer's dtype.
    sym_values: values of symbols that no input shape determines.
    libcalls: kernel name -> function(attrs dict, input arrays, output shapes) -> output arrays,
    for kernels that are not in ``ir/library.py``.
    Raises ValueError for missing, ill-shaped or contradictory inputs, FaultError for an index
    out of range or a failed entry check, UnsupportedError for a LibCall without a function.
    """
    arrays = input_arrays(program, feeds)
    syms = infer_syms(program, arrays, sym_values)
    for check in program.checks:
        if not EvalScope({}, None, syms).value(check.cond):
            raise FaultError(f"requires {show(check.cond)}: {check.why}")
    arrays.update(program.consts)
    last = {b: s for s in program.steps for b in s.inputs}
    for step in program.steps:
        for name, array in zip(step.outs, run_step(program, step, arrays, syms, libcalls or {})):
            arrays[name] = array
        for b in set(step.inputs):
            if last[b] is step and b not in program.results:
                del arrays[b]
    return {name: arrays[name] for name in program.outputs}


def input_arrays(program: Program, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs as arrays by buffer name; ValueError names what is missing or ill-typed."""
    arrays = {}
    for name in program.inputs:
        buf = program.buffers[name]
        key = name if name in feeds else buf.onnx
        if key not in feeds:
            raise ValueError(f"input {buf} is missing; given: {', '.join(feeds) or 'nothing'}")
        array = np.asarray(feeds[key])
        if array.dtype != DTYPES[buf.dtype].numpy or array.ndim != len(buf.shape):
            raise ValueError(f"input {buf} was given as {array.dtype}{list(array.shape)}")
        arrays[name] = array
    return arrays


def infer_syms(program: Program, arrays: Mapping[str, Array],
               sym_values: Mapping[str, int] | None = None) -> dict[str, int]:
    """Symbol values ``{name: int}`` from the shapes of the input ``arrays``: an extent that is
    one symbol defines it, every other extent is checked.  ValueError if they disagree, if a
    symbol is out of its range, or if one is left open."""
    syms = dict(sym_values or {})
    dims = [(program.buffers[n], d, e) for n in program.inputs
            for d, e in zip(program.buffers[n].shape, arrays[n].shape)]
    for buf, d, extent in dims:
        if isinstance(d, Sym) and syms.setdefault(d.name, extent) != extent:
            raise ValueError(f"input {buf}: {d.name} is {extent} here but {syms[d.name]} "
                             "elsewhere")
    for s in program.syms:
        if s.name not in syms:
            raise ValueError(f"symbol {s.name} is in no input's shape; pass sym_values")
        if syms[s.name] < s.lo or s.hi is not None and syms[s.name] > s.hi:
            raise ValueError(f"{s.name} is {syms[s.name]}, must be in {s.range}")
    for buf, d, extent in dims:
        if index_value(d, syms) != extent:
            raise ValueError(f"input {buf}: extent {show(d)} is {index_value(d, syms)} but the "
                             f"array has {extent}")
    return syms


def run_step(program: Program, step: Step, arrays: Mapping[str, Array], syms: Mapping[str, int],
             libcalls: Mapping[str, Run]) -> tuple[Array, ...]:
    """Output arrays of one step; UnsupportedError for a LibCall that libcalls does not know."""
    if isinstance(step, Compute):
        out = eval_compute(step, None, arrays.__getitem__, syms)
        return out if isinstance(out, tuple) else (out,)
    if isinstance(step, (Loop, Branch)):
        def run_body(_: int, body: Program, feeds: Feeds, inner: Mapping[str, int]) -> Arrays:
            return evaluate(body, feeds, inner, libcalls)
        return run_region(program, step, arrays, syms, run_body)
    run = LIBRARY[step.kernel].run if step.kernel in LIBRARY else libcalls.get(step.kernel)
    if run is None:
        raise UnsupportedError(f"{step.kernel} ({', '.join(step.origin)}) is a library kernel; "
                               "pass its reference in libcalls to evaluate it")
    shapes = [tuple(index_value(d, syms) for d in program.shape(o)) for o in step.outs]
    numbers = LIBRARY[step.kernel].numbers if step.numbers else ()
    attrs = dict(step.attrs) | {n: index_value(e, syms) for n, e in zip(numbers, step.numbers)}
    return run(attrs, [arrays[b] for b in step.inputs], shapes)


def run_region(program: Program, region: Region, arrays: Mapping[str, Array],
               syms: Mapping[str, int], run_body: RunBody) -> tuple[Array, ...]:
    """Output arrays of a region.  run_body(number of the body, body, its inputs by name, values of
    symbols) -> its outputs by name."""
    if isinstance(region, Loop):
        return _run_loop(program, region, arrays, syms, run_body)
    which = 0 if arrays[region.cond].reshape(-1)[0] else 1
    body = region.bodies[which]
    made = run_body(which, body, {n: arrays[n] for n in body.inputs}, _symbols(body, syms))
    return tuple(made[n] for n in body.outputs)


def _symbols(body: Program, syms: Mapping[str, int]) -> dict[str, int]:
    return {s.name: syms[s.name] for s in body.syms}


def _run_loop(program: Program, loop: Loop, arrays: Mapping[str, Array], syms: Mapping[str, int],
              run_body: RunBody) -> tuple[Array, ...]:
    trip = wanted = index_value(loop.trip, syms)
    if loop.count:
        wanted = int(arrays[loop.count].reshape(-1)[0])
    elif loop.again:
        wanted = trip + 1
    rounds = min(trip, wanted)
    going = not loop.going or bool(arrays[loop.going].reshape(-1)[0])
    outer = {o: np.zeros([index_value(d, syms) for d in program.shape(o)],
                         DTYPES[program.dtype(o)].numpy) for o in loop.outs}
    states = {s.before: arrays[s.start] for s in loop.states}
    seen, r = {n: arrays[n] for n in loop.captured}, 0
    while r < rounds and going:
        def entry(part: Entry, r: int = r) -> int:
            return trip - 1 - r if part.backward else r
        feeds = states | seen | {s.part: arrays[s.whole][entry(s)] for s in loop.slices}
        made = run_body(0, loop.body, feeds, _symbols(loop.body, {**syms, loop.round.name: r}))
        states = {s.before: made[s.after] for s in loop.states}
        for s in loop.stacks:
            outer[s.whole][entry(s)] = made[s.part]
        going = not loop.again or bool(made[loop.again].reshape(-1)[0])
        r += 1
    outer |= {s.last: states[s.before] for s in loop.states}
    if loop.ran:
        outer[loop.ran].reshape(-1)[0] = r + (going and wanted > r == trip)
    return tuple(outer[o] for o in loop.outs)


def eval_compute(compute: Compute, box: Iterable[tuple[int, int]] | None, read: Read,
                 syms: Mapping[str, int], wide: bool = False) -> Array | tuple[Array, ...]:
    """Values of a Compute over a box, as an array of the box's shape (a tuple of arrays, one per
    state, if its fold has states).

    box: ((lo, size), ...) per axis, optionally followed by the reduction axes (which default to
    their whole range); None is everything.  read(buffer): its array, or (window, index of the
    window's first element).  syms: {name: int}.  wide: floats in f64, rounded at the end only.
    Raises FaultError if an index leaves its buffer or window at a point that counts.
    """
    axes = compute.axes + compute.raxes
    box = tuple(box or ())
    box += tuple((0, index_value(a.extent, syms)) for a in axes[len(box):])
    n = len(compute.axes)
    split = _chunks(_axis_sets(compute), dict(zip(axes, (size for _, size in box))))
    outs = _allocate(compute, [size for _, size in box[:n]])
    with np.errstate(all="ignore"):
        inner = list(_parts(axes[n:], box[n:], split))
        for part in _parts(axes[:n], box[:n], split):
            values = _fold(compute, part, inner, read, syms, wide)
            where = tuple(slice(lo - b, lo - b + s) for (lo, s), (b, _) in zip(part, box))
            for out, value in zip(outs, values):
                out[where] = value
    return tuple(outs) if isinstance(compute.fold, Fold) else outs[0]


def _parts(axes: Sequence[Axis], box: Iterable[tuple[int, int]],
           split: Mapping[Axis, int]) -> Iterator[Box]:
    """Every piece of the box, row-major: tuples of (lo, size)."""
    ranges = [[(at, min(split[a], lo + size - at)) for at in range(lo, lo + size, split[a])]
              for a, (lo, size) in zip(axes, box)]
    return itertools.product(*ranges)


def _allocate(compute: Compute, shape: list[int]) -> list[Array]:
    names = [d for _, d in compute.fold.states] if isinstance(compute.fold, Fold) else [
        compute.body.dtype]
    return [np.empty(shape, DTYPES[d].numpy) for d in names]


def _axis_sets(compute: Compute) -> list[frozenset[Axis]]:
    """The sets of axes over which intermediate arrays extend: every node, but in a sum of
    products only the factors, because the product itself is never stored."""
    memo: dict[Expr, frozenset[Axis]] = {}
    for e in _factors(compute.body) if compute.fold == "sum" else (compute.body,):
        _axes_under(e, memo)
    sets = {*memo.values(), frozenset(compute.axes)}
    return [s for s in sets if not any(s < other for other in sets)]


def _axes_under(e: Expr, memo: dict[Expr, frozenset[Axis]]) -> frozenset[Axis]:
    """The axes in ``e``; ``memo``: those of every node seen so far."""
    if e not in memo:
        own = frozenset((e,) if isinstance(e, Axis) else ())
        memo[e] = own.union(*(_axes_under(k, memo) for k in children(e)))
    return memo[e]


def _chunks(sets: Iterable[frozenset[Axis]], sizes: Mapping[Axis, int]) -> dict[Axis, int]:
    """Extent of a piece along each axis such that every set's product stays within CHUNK."""
    split = {a: max(size, 1) for a, size in sizes.items()}
    for s in sets:
        while np.prod([float(split[a]) for a in s if a in split]) > CHUNK:
            widest = max((a for a in s if a in split), key=lambda a: (split[a], a.name))
            split[widest] = (split[widest] + 1) // 2
    return split


def _factors(e: Expr) -> tuple[Expr, ...]:
    """Factors of a product, left to right."""
    if isinstance(e, Binary) and e.op == "mul":
        return _factors(e.a) + _factors(e.b)
    return (e,)


# ---------------------------------------------------------------- folds

def _fold(compute: Compute, part: Box, inner: Sequence[Box], read: Read, syms: Mapping[str, int],
          wide: bool) -> tuple[Array, ...]:
    """Values over one piece of the output, one per output buffer."""
    def scope(more: Iterable[tuple[int, int]] = (),
              variables: Mapping[str, Array] | None = None) -> EvalScope:
        ranges = dict(zip(compute.axes + compute.raxes, tuple(part) + tuple(more)))
        return EvalScope(ranges, read, syms, variables, wide, compute.origin)

    if compute.fold == "none":
        return (scope().value(compute.body),)
    shape = [size for _, size in part]
    if isinstance(compute.fold, Fold):
        return _fold_states(compute, compute.fold, scope, inner, shape)
    total = np.full(shape, _neutral(compute))
    for more in inner:
        s = scope(more)
        if compute.fold == "sum":
            partial = _sum_of_products(s, _factors(compute.body), total.dtype, len(shape))
        else:
            whole = np.broadcast_to(s.value(compute.body), [n for _, n in s.ranges.values()])
            over = tuple(range(len(shape), whole.ndim))
            partial = COMBINE[compute.fold].reduce(whole, axis=over, dtype=total.dtype)
        total = COMBINE[compute.fold](total, partial)
    if not wide and compute.acc:
        total = total.astype(DTYPES[compute.acc].numpy)
    return (total.astype(DTYPES[compute.body.dtype].numpy),)


def _neutral(compute: Compute) -> Any:
    """Neutral element of the fold as a numpy scalar of the dtype it accumulates in."""
    dtype = DTYPES[compute.acc_dtype].numpy
    if compute.fold in ("sum", "prod"):
        wide = {"f": np.float64, "u": np.uint64}.get(dtype.kind, np.int64)
        return wide(compute.fold == "prod")
    if dtype.kind == "f":
        return np.float64(-np.inf if compute.fold == "max" else np.inf)
    if dtype.kind == "b":
        return np.bool_(compute.fold == "min")
    info = np.iinfo(dtype)
    return dtype.type(info.min if compute.fold == "max" else info.max)


def _sum_of_products(scope: EvalScope, factors: Iterable[Expr], dtype: np.dtype[Any],
                     rank: int) -> Array:
    """Sum over the dimensions from ``rank`` on of the product of factors, each evaluated over
    the axes it depends on only."""
    values = [np.asarray(scope.value(f)).astype(dtype, order="C") for f in factors]
    sizes = [n for _, n in scope.ranges.values()]
    if 0 in sizes:
        return np.zeros(sizes[:rank], dtype)
    values = _merge([v.reshape(v.shape or (1,) * len(sizes)) for v in values])
    args: list[Any] = []
    covered: set[int] = set()
    for v in values:
        dims = [d for d, n in enumerate(v.shape) if n > 1]
        covered.update(dims)
        args += [v.reshape([v.shape[d] for d in dims]), dims]
    out = sorted(d for d in covered if d < rank)
    total = np.einsum(*args, out, optimize=False)
    repeats = np.prod([n for d, n in enumerate(sizes) if d >= rank and d not in covered])
    total = np.reshape(total, [sizes[d] if d in out else 1 for d in range(rank)])
    return np.broadcast_to(total * dtype.type(repeats), sizes[:rank])


def _merge(values: Iterable[Array]) -> list[Array]:
    """Multiply factors into larger ones that cover their dimensions, so few operands remain."""
    values = sorted(values, key=lambda v: -v.size)
    out: list[Array] = []
    for v in values:
        for k, w in enumerate(out):
            if all(n == 1 or n == m for n, m in zip(v.shape, w.shape)):
                out[k] = w * v
                break
        else:
            out.append(v)
    return out


def _fold_states(compute: Compute, fold: Fold, scope: Callable[..., EvalScope],
                 inner: Sequence[Box], shape: list[int]) -> tuple[Array, ...]:
    """Fold with states: the output points side by side, the reduction points one by one."""
    names = [n for n, _ in fold.states]
    first, full = scope(), shape + [1] * len(compute.raxes)
    states = [np.broadcast_to(first.value(e), shape).reshape(full) for e in fold.init]
    for more in inner:
        sizes = shape + [n for _, n in more]
        body = np.broadcast_to(scope(more).value(compute.body), sizes)
        for point in itertools.product(*(range(n) for _, n in more)):
            x = body[(slice(None),) * len(shape) + tuple(slice(p, p + 1) for p in point)]
            variables = dict(zip(names, states), x=x)
            here = scope([(lo + p, 1) for (lo, _), p in zip(more, point)], variables)
            states = [np.broadcast_to(here.value(e), full) for e in fold.update]
    return tuple(np.reshape(s, shape).astype(DTYPES[d].numpy)
                 for s, (_, d) in zip(states, fold.states))

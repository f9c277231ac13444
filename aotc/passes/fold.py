"""Constant folding and merging of what is the same, Program -> Program.

In one pass over the steps: constants with equal bytes become one, loads of one-element constants
become ``Const`` expressions, computes that read only constants are evaluated (f64 inside, fixed
order, no BLAS: the bytes do not depend on the machine), and computes that say the same become
one.  Nothing here knows why a tensor is constant: packed weights fold away because packing is an
ordinary Compute.  A transposed constant whose original is needed too (an embedding that serves a
product as well) is not evaluated: inlining lets its readers read the original.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from aotc.ir.dtypes import DTYPES, Array, dtype_of
from aotc.ir.expr import Const, Expr, Guarded, Load, Sym, Var, loads, rewrite, walk
from aotc.ir.library import LIBRARY
from aotc.ir.program import (
    Branch,
    Buffer,
    Compute,
    Fold,
    LibCall,
    Loop,
    Program,
    Step,
    free_name,
    make_const,
    static_shape,
    update,
)
from aotc.ir.simplify import simplify
from aotc.oracle.evaluate import eval_compute, run_step
from aotc.passes.regions import rename_inputs

GROWTH = 1 << 16  # bytes a constant may exceed what it replaces by


def fold_constants(program: Program, limit_bytes: int = GROWTH,
                   kept: frozenset[str] = frozenset(),
                   grown: frozenset[str] = frozenset()) -> Program:
    """Program with constant computes evaluated, equal constants and computes merged.

    limit_bytes: a compute is left as it is if its result would take that many bytes more than
    the constants it reads (a small table broadcast to a large tensor stays a small table).
    kept: names of computes that are left as they are; grown: of those that are evaluated whatever
    their results take.
    Raises FaultError if a constant index is out of range.
    """
    state = _Folder(program, limit_bytes, kept, grown)
    steps = [new for step in program.steps for new in state.step(step)]
    return update(program, steps=tuple(steps), consts=state.consts,
                  buffers={**program.buffers, **state.buffers})


def float_weights(program: Program) -> frozenset[str]:
    """Names of the computes that make f32 of as many constants of other types (integers, halves)
    for sums alone, in bodies of regions too.  No sum of floats reads weights as fast as stored
    ones, in the order in which it takes them: converted in every call they are neither constants
    nor few bytes.  What is packed, several to a byte, stays so."""
    def as_many(b: str, out: str) -> bool:
        made = static_shape(program.shape(out))
        return made is not None and program.consts[b].size >= prod(made)
    return frozenset(
        s.out for s in program.steps if isinstance(s, Compute) and s.fold == "none"
        and len(s.outs) == 1 and program.buffers[s.out].dtype == "f32"
        and s.out not in program.results and set(s.inputs) <= program.consts.keys()
        and any(program.dtype(b) != "f32" and as_many(b, s.out) for b in s.inputs)
        and _summed(program, s.out))


def _summed(program: Program, name: str) -> bool:
    """True if nothing reads a buffer but sums, those of bodies that capture it among them."""
    def by(step: Step) -> bool:
        if isinstance(step, Compute):
            return step.fold == "sum"
        return name not in _beside_bodies(step) and isinstance(step, Loop | Branch) and all(
            _summed(body, name) for body in step.bodies)
    return name not in program.outputs and all(map(by, program.consumers.get(name, ())))


def _beside_bodies(step: Step) -> set[str]:
    """What a region reads itself, whatever its bodies do."""
    if isinstance(step, Loop):
        return {s.start for s in step.states} | {e.whole for e in step.slices} | {
            step.count, step.going}
    return {step.cond} if isinstance(step, Branch) else set()


def part_constants(program: Program) -> Program:
    """Program whose constants that every load reads at one place along a dimension (the weights of
    a direction of a recurrent layer) are parts: constants of their own, each of which can be laid
    out for its reader, without what nobody reads."""
    found: dict[str, list[Load]] = {}
    for step in program.steps:
        for n in _loads_of(step) if isinstance(step, Compute) else ():
            found.setdefault(n.buffer, []).append(n)
    whole = {b for s in program.steps if not isinstance(s, Compute) for b in s.inputs}
    dims = {b: _dims_at_one_place(program.consts[b].shape, found[b])
            for b in program.consts if b in found and b not in whole}
    dims = {b: d for b, d in dims.items() if d}
    if not dims:
        return program
    buffers, consts = dict(program.buffers), dict(program.consts)
    names: dict[tuple[str, tuple[int, ...]], str] = {}

    def part(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in dims:
            return None
        at = tuple(_place(e, d) for d in dims[e.buffer])
        if (e.buffer, at) not in names:
            names[e.buffer, at] = name = free_name(
                buffers, "_".join(map(str, (e.buffer, *at))))
            array = program.consts[e.buffer]
            for d, i in zip(dims[e.buffer], at):
                array = array.take([i], axis=d)
            consts[name], buffers[name] = array, make_const(name, array)
        index = tuple(Const(0) if d in dims[e.buffer] else i for d, i in enumerate(e.index))
        return Load(names[e.buffer, at], index, e.dtype)

    steps = tuple(_rewritten(s, part) if isinstance(s, Compute) else s for s in program.steps)
    for b in dims:
        del consts[b], buffers[b]
    return update(program, steps=steps, consts=consts, buffers=buffers)


def _loads_of(step: Compute) -> list[Load]:
    fold = step.fold
    more = (*fold.init, *fold.update) if isinstance(fold, Fold) else ()
    return [n for e in (step.body, *more) for n in loads(e)]


def _dims_at_one_place(shape: Sequence[int], reads: Sequence[Load]) -> tuple[int, ...]:
    return tuple(d for d, n in enumerate(shape) if n > 1 and all(
        0 <= _place(r, d) < n for r in reads))


def _place(load: Load, dim: int) -> int:
    """The index of a load along a dimension, -1 where it is not one number."""
    i = load.index[dim]
    return int(i.value) if isinstance(i, Const) else -1


def _rewritten(step: Compute, visit: Callable[[Expr], Expr | None]) -> Compute:
    fold = step.fold
    if isinstance(fold, Fold):
        fold = replace(fold, init=tuple(rewrite(e, visit) for e in fold.init),
                       update=tuple(rewrite(e, visit) for e in fold.update))
    body = rewrite(step.body, visit)
    return step if body == step.body and fold == step.fold else replace(step, body=body, fold=fold)


class _Folder:
    """The pass in progress.  ``names`` maps a dropped buffer to the one that took its place."""

    def __init__(self, program: Program, limit: int, kept: frozenset[str],
                 grown: frozenset[str]) -> None:
        self.program, self.limit, self.kept, self.grown = program, limit, kept, grown
        self.outputs = set(program.outputs)
        # what must keep its name: bodies of regions read buffers around them by it
        self.named = self.outputs.union(*(s.captured for s in program.steps
                                          if isinstance(s, (Loop, Branch))))
        self.names: dict[str, str] = {}
        self.consts: dict[str, Array] = {}
        self.buffers: dict[str, Buffer] = {}
        self.arrays: dict[object, list[str]] = {}
        self.seen: dict[object, Compute] = {}
        for name, array in program.consts.items():
            self.keep(name, array, program.buffers[name].onnx)
        # constants that are read beside data, so that they stay whatever becomes of other readers
        known = _known(program)
        self.read = {self.names.get(b, b) for s in program.steps for b in s.inputs
                     if not known.issuperset(s.inputs)}

    def keep(self, name: str, array: Array, onnx: str = "") -> None:
        """Record a constant; an equal one already known takes its place unless it is an output."""
        bucket = self.arrays.setdefault(_fingerprint(array), [])
        for other in bucket:
            if name not in self.outputs and _same_bytes(self.consts[other], array):
                self.names[name] = other
                return
        bucket.append(name)
        self.consts[name] = array
        self.buffers[name] = make_const(name, array, onnx)

    def step(self, step: Step) -> list[Step]:
        """The steps that replace ``step``: none, one, or one that copies a constant out."""
        if isinstance(step, LibCall):
            return self.call(replace(step, inputs=tuple(self.names.get(b, b)
                                                        for b in step.inputs)))
        if isinstance(step, (Loop, Branch)):
            return [rename_inputs(step, self.names, self.consts)]
        step = self.renamed(step)
        # Shape of a dynamic tensor reads no buffer and is no constant either
        if not self.foldable(step) or _is_symbolic(step):
            return self.merged(step)
        values = eval_compute(step, None, self.consts.__getitem__, {},
                              wide=not isinstance(step.body, Load))
        copies: list[Step] = []
        for out, value in zip(step.outs, values if isinstance(values, tuple) else (values,)):
            if out in self.outputs:
                copies += self.copied(step, out, value)
            else:
                self.keep(out, value, self.program.buffers[out].onnx)
        return copies

    def call(self, step: LibCall) -> list[Step]:
        """A library call, or nothing where all it reads is constant."""
        if step.kernel not in LIBRARY or any(b not in self.consts for b in step.inputs) or (
                self.outputs.intersection(step.outs)):
            return [step]
        if any(static_shape(self.program.shape(o)) is None for o in step.outs):
            return [step]
        for out, array in zip(step.outs, run_step(self.program, step, self.consts, {}, {})):
            self.keep(out, array)
        return []

    def renamed(self, step: Compute) -> Compute:
        empty = any(a.extent == Const(0) for a in step.axes + step.raxes)
        # an element that does not exist reads nothing, and its indices may divide by zero
        body = Const(0, step.body.dtype) if empty else simplify(self.expr(step.body))
        fold = step.fold
        if isinstance(fold, Fold):
            fold = replace(fold, init=tuple(self.expr(e) for e in fold.init),
                           update=tuple(self.expr(e) for e in fold.update))
        same = body == step.body and fold == step.fold
        return step if same else replace(step, body=body, fold=fold)

    def expr(self, e: Expr) -> Expr:
        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, Load):
                return None
            name = self.names.get(node.buffer, node.buffer)
            if name in self.consts and self.consts[name].size == 1:
                return Const(self.consts[name].reshape(-1)[0].item(), node.dtype)
            return None if name == node.buffer else Load(name, node.index, node.dtype)
        return rewrite(e, visit)

    def foldable(self, step: Compute) -> bool:
        shape = static_shape(tuple(a.extent for a in step.axes))
        if shape is None or static_shape(tuple(a.extent for a in step.raxes)) is None or (
                any(b not in self.consts for b in step.inputs)) or (
                not self.kept.isdisjoint(step.outs)):
            return False
        if isinstance(step.body, (Load, Const)) and step.fold == "none" and (
                self.outputs.intersection(step.outs)):
            return False  # already the copy that writes an output
        if isinstance(step.body, Load) and _is_permutation(step) and step.body.buffer in self.read:
            return False  # its readers can read the original: one constant instead of two
        if not self.grown.isdisjoint(step.outs):
            return True
        points = int(np.prod(shape, dtype=object)) if shape else 1
        after = sum(points * DTYPES[self.program.buffers[o].dtype].size for o in step.outs)
        before = sum(self.consts[b].nbytes for b in step.inputs)
        return after - before <= self.limit

    def copied(self, step: Compute, out: str, value: Array) -> list[Step]:
        """An output must be written by a step: the constant gets a name of its own."""
        if value.size == 1:
            body: Expr = Const(value.reshape(-1)[0].item(), dtype_of(value))
        else:
            self.keep(f"{out}_const", value)
            name = self.names.get(f"{out}_const", f"{out}_const")
            body = Load(name, step.axes, dtype_of(value))
        return [Compute((out,), step.axes, (), "none", body, origin=step.origin)]

    def merged(self, step: Compute) -> list[Step]:
        key = _canonical(step)
        other = self.seen.setdefault(key, step)
        if other is step or self.named.intersection(step.outs):
            return [step]
        self.names.update(zip(step.outs, other.outs))
        return []


def _known(program: Program) -> set[str]:
    """Names of the constants and of what is computed from them alone, without symbols."""
    known = set(program.consts)
    for step in program.steps:
        if known.issuperset(step.inputs) and not _is_symbolic(step):
            known.update(step.outs)
    return known


def _is_symbolic(step: Step) -> bool:
    return isinstance(step, Compute) and any(isinstance(n, Sym) for n in walk(step.body))


def _is_permutation(step: Compute) -> bool:
    """True if a Compute only stores a buffer's elements in another order of dimensions."""
    return step.fold == "none" and isinstance(step.body, Load) and (
        len(step.axes) == len(set(step.body.index)) and set(step.axes) == set(step.body.index))


def _fingerprint(array: Array) -> tuple[object, ...]:
    """Cheap key: equal arrays have equal keys, most different ones do not."""
    flat = np.ascontiguousarray(array).reshape(-1)
    step = max(1, flat.size // 64)
    return array.shape, array.dtype.str, flat[::step].tobytes()


def _same_bytes(a: Array, b: Array) -> bool:
    one, two = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return np.array_equal(one, two)


def _canonical(step: Compute) -> tuple[object, ...]:
    """What a Compute says, without the names of its axes and outputs and of the nodes that its
    faults would name."""
    axes = step.axes + step.raxes
    to: dict[Expr, Expr] = {a: Var(f"#{k}") for k, a in enumerate(axes)}
    exprs: tuple[Expr, ...] = (step.body,)
    states: tuple[tuple[str, str], ...] = ()
    if isinstance(step.fold, Fold):
        exprs += step.fold.init + step.fold.update
        states = step.fold.states
    memo: dict[Expr, Expr] = {}

    def plain(e: Expr) -> Expr | None:
        return replace(e, why="") if isinstance(e, Guarded) else to.get(e)
    body = tuple(rewrite(e, plain, memo) for e in exprs)
    fold = step.fold if isinstance(step.fold, str) else "states"
    return (tuple(a.extent for a in axes), len(step.axes), fold, states, step.acc, body)

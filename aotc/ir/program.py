"""Program: what is computed, as mathematics.  Grammar and examples: docs/ir.md.

    program = Program(name, inputs, outputs, consts, buffers, steps)
    step    = Compute | LibCall | Loop | Branch     in topological order, each Buffer written once
    compute = Compute(outs, axes, raxes, fold, body, acc, origin)
    loop    = Loop(name, body, trip, round, states, slices, stacks, ...)      a region: its body is
    branch  = Branch(name, cond, bodies, outs, origin)                        a Program of its own

``Compute`` means: for every point of ``axes``, fold ``body`` over ``raxes``; the result is
element ``[axes]`` of the output buffer, so a buffer's shape is the extents of ``axes``.
"""

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from aotc.ir.bundle import Part
from aotc.ir.dtypes import DTYPES, Array, dtype_of
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Guarded,
    Load,
    Shape,
    Sym,
    Unary,
    loads,
    show,
    walk,
)
from aotc.ir.numbers.byte_scale import ByteScale
from aotc.ir.simplify import simplify

Rewrite = tuple[Any, ...]  # (rule, compute, parameters: plain data that the rule explains)
# fold -> the operation that takes one element more, and the number it starts from
FOLD_STEP = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
_NEUTRAL: dict[str, float] = {"sum": 0, "prod": 1, "max": float("-inf"), "min": float("inf")}
FOLDS = ("none", *FOLD_STEP)


def neutral_value(fold: str, dtype: str) -> Const:
    """What a fold of values of ``dtype`` starts from; of integers, the least or the largest."""
    kind = DTYPES[dtype].kind
    if fold in ("max", "min") and kind != "f":
        bits = 1 if dtype == "bool" else 8 * DTYPES[dtype].size
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (
            0, (1 << bits) - 1)
        return Const(low if fold == "max" else high, dtype)
    return Const(_NEUTRAL[fold], dtype)


@dataclass(frozen=True)
class Buffer:
    """A tensor: logical shape (index expressions without axes), dtype and role.

    role: input | output | const | temp.  ``onnx`` keeps the original tensor name; ``stored``: what
    the elements of an input or output are the bits of (``ir.dtypes.STORED``), "" for numbers;
    ``counts``: of an output, the (output, axis) whose elements it counts (ONNX names);
    ``declared``: the dtype that the model gives a temp which is computed wider, "" for its own;
    ``scale``: what the numbers of an 8-bit input or output stand for that the model has as
    floats."""

    name: str
    shape: Shape
    dtype: str
    role: str = "temp"
    onnx: str = ""
    stored: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    declared: str = ""
    scale: ByteScale | None = None

    def __str__(self) -> str:
        return f"{self.name} : {self.dtype}[{', '.join(map(show, self.shape))}]"


@dataclass(frozen=True)
class Fold:
    """A reduction with several states (argmax, Welford, online softmax).

    states: ((name, dtype), ...); init, update: one expression per state.  ``update`` may use
    ``Var(state)``, ``Var("x", dtype of body)`` for the element and the compute's raxes.
    One output buffer per state.  All updates see the states from before the step.
    """

    states: tuple[tuple[str, str], ...]
    init: tuple[Expr, ...]
    update: tuple[Expr, ...]

    def __str__(self) -> str:
        names = ", ".join(n for n, _ in self.states)
        return f"fold({names} = {', '.join(map(show, self.init))}; " \
               f"{', '.join(map(show, self.update))})"


@dataclass(frozen=True)
class Compute:
    """One tensor expression.  ``acc`` is the dtype the fold accumulates in ("" = body's).

    origin: names of the ONNX nodes it came from, for comments, profiles and errors.
    """

    outs: tuple[str, ...]
    axes: tuple[Axis, ...]
    raxes: tuple[Axis, ...]
    fold: str | Fold
    body: Expr
    acc: str = ""
    origin: tuple[str, ...] = ()

    @property
    def out(self) -> str:
        """The first (usually only) output buffer's name."""
        return self.outs[0]

    @property
    def acc_dtype(self) -> str:
        return self.acc or self.body.dtype

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Distinct Load nodes of the body, in a stable order."""
        return tuple(loads(self.body))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the buffers read (also inside indices), in order of first use."""
        return tuple(dict.fromkeys(n.buffer for n in self.loads))

    def __str__(self) -> str:
        names = ", ".join(a.name for a in self.axes)
        red = ", ".join(a.name for a in self.raxes)
        outs = ", ".join(f"{o}[{names}]" for o in self.outs)
        if self.fold == "none":
            return f"{outs} = {show(self.body)}"
        return f"{outs} = {self.fold}({red}) {show(self.body)}"


@dataclass(frozen=True)
class LibCall:
    """A kernel that is no tensor expression (TopK, sort, NMS): a C source of its own.  ``kernel``:
    its name in ``ir/library.py``, where its operands are explained; attrs: ((name, int), ...);
    numbers: index expressions over symbols that its C function gets, too."""

    kernel: str
    attrs: tuple[tuple[str, int], ...]
    inputs: tuple[str, ...]
    outs: tuple[str, ...]
    origin: tuple[str, ...] = ()
    numbers: Shape = ()

    def __str__(self) -> str:
        what = ", ".join((*self.inputs, *map(show, self.numbers)))
        return f"{', '.join(self.outs)} = call {self.kernel}({what})"


@dataclass(frozen=True)
class State:
    """What a round of a Loop leaves to the next one, all of one shape and dtype.  The body reads
    it as ``before`` and makes ``after``; outside, ``start`` is what the first round reads, ``last``
    what the last one has made (``start`` where none ran); rounds write to ``last`` and ``spare``
    in turns."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("start", "before", "after", "last", "spare")
    start: str
    before: str
    after: str
    last: str
    spare: str


@dataclass(frozen=True)
class Entry:
    """One entry per round, along the first axis, of the outer buffer ``whole``: the body's input
    or output ``part`` has its other axes.  ``backward``: the first round has the last entry."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("whole", "part")
    whole: str
    part: str
    backward: bool = False


@dataclass(frozen=True)
class Loop:
    """A region: ``body`` runs round after round, at most ``trip`` (an expression over symbols)
    times.  ``round``: the symbol of the body that counts rounds from 0.  ``count``: buffer of one
    i64, the rounds wanted; ``going``: one bool, false for none; ``again``: what the body makes of
    a state of one bool, false after the last round ("" for each: not asked).  ``ran``: buffer of
    one i64 that gets the number of rounds that ran, one more than ``trip`` where data want more
    ("": nobody asks).  Other inputs of the body
    are buffers of the Program around it, under the same names, the same in every round."""

    name: str
    body: "Program"
    trip: Expr
    round: Sym
    states: tuple[State, ...]
    slices: tuple[Entry, ...]
    stacks: tuple[Entry, ...]
    count: str = ""
    going: str = ""
    again: str = ""
    ran: str = ""
    origin: tuple[str, ...] = ()

    @property
    def bodies(self) -> tuple["Program", ...]:
        return (self.body,)

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """Buffers that all rounds read whole."""
        own = {s.before for s in self.states} | {s.part for s in self.slices}
        return tuple(b for b in self.body.inputs if b not in own)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(s.start for s in self.states), *(
            s.whole for s in self.slices), *filter(None, (self.count, self.going)),
            *self.captured)))

    @cached_property
    def outs(self) -> tuple[str, ...]:
        return (*(s.last for s in self.states), *(s.whole for s in self.stacks),
                *filter(None, (self.ran,)), *(s.spare for s in self.states))

    def __str__(self) -> str:
        more = [f"at most {self.count}"] * bool(self.count)
        more += [f"while {self.again}"] * bool(self.again) + [f"if {self.going}"] * bool(self.going)
        head = f"loop {self.name}: {self.round.name} in 0..{show(self.trip)}"
        lines = [", ".join([head, *more]) + " {"]
        lines += [f"  {s.before} = {s.start}, then {s.after}; last {s.last}" for s in self.states]
        lines += [f"  {s.part} = {s.whole}[{_entry(self, s)}]" for s in self.slices]
        lines += _indented(self.body)
        lines += [f"  {s.whole}[{_entry(self, s)}] = {s.part}" for s in self.stacks]
        return "\n".join([*lines, "}"])


@dataclass(frozen=True)
class Branch:
    """A region: the first of ``bodies`` runs where the one bool in the buffer ``cond`` is true,
    else the second; the outputs of either, in order, are ``outs``.  Inputs of the bodies are
    buffers of the Program around them, under the same names."""

    name: str
    cond: str
    bodies: tuple["Program", "Program"]
    outs: tuple[str, ...]
    origin: tuple[str, ...] = ()

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """Buffers that a body reads."""
        return tuple(dict.fromkeys(b for body in self.bodies for b in body.inputs))

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.cond, *self.captured)))

    def __str__(self) -> str:
        one, two = ([*_indented(body), *(f"  {o} = {p}" for o, p in zip(self.outs, body.outputs))]
                    for body in self.bodies)
        return "\n".join([f"branch {self.name}: if {self.cond} {{", *one, "} else {", *two, "}"])


def _entry(loop: Loop, part: Entry) -> str:
    return show(simplify(loop.trip - 1 - loop.round) if part.backward else loop.round)


def _indented(body: "Program") -> list[str]:
    """Lines of a body's constants and steps."""
    return [f"  {line}" for line in str(body).splitlines() if line.startswith("  ")
            and not line.startswith(("  in ", "  out ", "  sym "))]


Region = Loop | Branch
Whole = LibCall | Loop | Branch  # has a group of its own, works on row-major tensors
Step = Compute | Whole


@dataclass(frozen=True)
class Check:
    """A condition on symbols that must hold at entry; ``why`` names the node that needs it."""

    cond: Expr
    why: str


@dataclass(frozen=True)
class Alias:
    """The output ``present`` lies where the input ``past`` does, in one buffer of the caller's:
    the step that makes it changes nothing but the ``filled`` - ``kept`` entries of ``axis`` from
    ``kept`` on.  The extent of that axis is the room there is; the model has ``filled`` of it."""

    present: str
    past: str
    axis: int
    kept: Expr
    filled: Expr

    def __str__(self) -> str:
        return (f"{self.present} is {self.past}, {show(self.filled)} entries of axis {self.axis}, "
                f"those from {show(self.kept)} on new")


@dataclass(frozen=True)
class Program:
    """``inputs`` and ``outputs`` name buffers in the model's order; ``consts`` maps a const
    buffer to its numpy array; ``syms`` are the symbolic extents in order of first appearance;
    ``rewrites``: those of a Schedule that have been applied; ``halves``: of weights, f16 or bf16;
    ``texts``: what strings are places in; ``lists``: the outputs' tensors, where one is a list;
    ``aliases``: outputs that lie where inputs do."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: dict[str, Buffer] = field(hash=False)
    consts: dict[str, Array] = field(hash=False, repr=False)
    steps: tuple[Step, ...] = ()
    syms: tuple[Sym, ...] = ()
    checks: tuple[Check, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    halves: str = ""
    texts: tuple[str, ...] = ()
    lists: tuple[Part, ...] = ()
    aliases: "tuple[Alias, ...]" = ()

    @cached_property
    def producer(self) -> dict[str, Step]:
        """Buffer name -> the step that writes it."""
        return {o: s for s in self.steps for o in s.outs}

    @cached_property
    def consumers(self) -> dict[str, tuple[Step, ...]]:
        """Buffer name -> tuple of steps that read it, in order."""
        out: dict[str, list[Step]] = {}
        for s in self.steps:
            for b in s.inputs:
                out.setdefault(b, []).append(s)
        return {b: tuple(v) for b, v in out.items()}

    @cached_property
    def results(self) -> frozenset[str]:
        """The outputs and what rules make, as a set: what must be computed and stored."""
        return frozenset(self.outputs).union(*(s.outs for s in self.steps if is_rule(s)))

    @cached_property
    def position(self) -> dict[str, int]:
        """Buffer name -> the place in ``steps`` of the step that writes it."""
        return {o: i for i, s in enumerate(self.steps) for o in s.outs}

    @cached_property
    def memo(self) -> dict[object, Any]:
        """Results of pure functions of this Program, kept by those functions."""
        return {}

    def known(self, *key: Hashable) -> dict[Any, Any]:
        """A dict of what has been found under that key, empty at first; part of ``memo``."""
        found: dict[Any, Any] = self.memo.setdefault(key, {})
        return found

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in self.__dict__.items() if k != "memo"}

    def shape(self, name: str) -> Shape:
        return self.buffers[name].shape

    def dtype(self, name: str) -> str:
        return self.buffers[name].dtype

    @property
    def scales(self) -> dict[str, ByteScale]:
        """{ONNX name: what its numbers stand for} of 8-bit inputs and outputs that the model has as
        floats."""
        return {b.onnx: b.scale for n in (*self.inputs, *self.outputs)
                for b in [self.buffers[n]] if b.scale is not None}

    def __str__(self) -> str:
        lines = [f"program {self.name}"]
        lines += [f"  sym {s.name} in {s.range}" for s in self.syms]
        lines += [f"  require {show(c.cond)}  # {c.why}" for c in self.checks]
        for role, names in (("in", self.inputs), ("out", self.outputs)):
            lines += [f"  {role} {self.buffers[n]}" for n in names]
        lines += [f"  alias {a}" for a in self.aliases]
        lines += [f"  const {self.buffers[n]}" for n in self.consts]
        for s in self.steps:
            shape = ", ".join(map(show, self.buffers[s.outs[0]].shape))
            text = str(s).replace("\n", "\n  ")
            lines.append(f"  {text}  : {self.buffers[s.outs[0]].dtype}[{shape}]")
        return "\n".join(lines)


def static_shape(shape: Iterable[Expr]) -> tuple[int, ...] | None:
    """The shape as ints; None if any extent is symbolic."""
    dims = [simplify(d) for d in shape]
    known = tuple(d.value for d in dims if isinstance(d, Const))
    return known if len(known) == len(dims) else None


def make_const(name: str, array: Array, onnx: str = "") -> Buffer:
    """A const Buffer for a numpy array."""
    return Buffer(name, tuple(Const(d) for d in array.shape), dtype_of(array), "const", onnx)


def free_name(taken: Container[str], name: str) -> str:
    """The name, or a longer one that nothing has."""
    while name in taken:
        name += "_"
    return name


def with_constant(program: Program, name: str, array: Array,
                  dtype: str = "") -> tuple[Program, str]:
    """(the Program with a constant, its name): one of that name and these numbers is shared.
    dtype: what its elements are ("": what numpy says)."""
    buffer = make_const(name, array)
    buffer = replace(buffer, dtype=dtype or buffer.dtype)
    known = program.consts.get(name)
    if known is not None and program.dtype(name) == buffer.dtype and np.array_equal(
            known, array, equal_nan=array.dtype.kind == "f"):
        return program, name
    name = free_name(program.buffers, name)
    return replace(program, buffers={**program.buffers, name: replace(buffer, name=name)},
                   consts={**program.consts, name: array}), name


def is_rule(step: Step) -> bool:
    """True for a Compute that nobody reads: it is there for the fault where data breaks a rule."""
    return isinstance(step, Compute) and isinstance(step.body, Guarded) and (
        step.body.op == "expected")


def update(program: Program, **changes: Any) -> Program:
    """``dataclasses.replace`` that drops unreachable steps, buffers and consts; rules stay."""
    program = replace(program, **changes)
    live = set(program.outputs)
    steps: list[Step] = []
    for s in reversed(program.steps):
        if is_rule(s) or any(o in live for o in s.outs):
            steps.append(s)
            live.update(s.inputs)
            live.update(s.outs)
    live.update(program.inputs)
    return replace(program, steps=tuple(reversed(steps)),
                   buffers={n: b for n, b in program.buffers.items() if n in live},
                   consts={n: a for n, a in program.consts.items() if n in live})


def flops(compute: Compute) -> Expr:
    """Multiply-adds count 2; other floating-point operations 1; as an index expression."""
    points: Expr = Const(1)
    for a in compute.axes + compute.raxes:
        points = points * a.extent
    per = sum(1 for n in walk(compute.body)
              if isinstance(n, (Binary, Unary)) and DTYPES[n.dtype].kind == "f")
    return simplify(points * (per + (compute.fold != "none")))

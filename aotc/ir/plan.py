"""Plan: the C functions with explicit loops, the arena with offsets, the call order.

In a Plan every Load has exactly one index: the element offset from the buffer's base pointer
(layouts are already applied), and loops run over Axis nodes printed as C variables.

    plan    = Plan(name, target, syms, checks, places, slots, kernels, weights, regions)
    kernel  = Kernel(name, title, origin, tiles, let, scratch, stages)
    stage   = Nest | Contract | Unrolled | Call
    range   = Range(axis, lo, hi)       axis runs lo <= axis < hi
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from aotc.ir.access import ArrayForm, ArrayOf
from aotc.ir.contents import buffers_in, guards
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Guarded, Shape, Sym, Var, maximum, show
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.plan_regions import PlanRegion
from aotc.ir.program import Alias, Check, Fold
from aotc.ir.simplify import simplify, upper
from aotc.ir.stage_choice import UNSAID, StageChoice
from aotc.ir.statements import Body, Box, Let, Put, Range, Stmt, text_of

Size = int | Expr  # an expression in the symbols where an extent has no bound
Rule = tuple[str, str]  # (operation, why) of a Guarded
Bindings = tuple[tuple[Axis, Expr], ...]  # (name, what it stands for), in order


@dataclass(frozen=True)
class Place:
    """Where a stored buffer lives.

    storage: input | output (the caller's memory, ``index`` = position in the model's list),
    weights (``offset`` bytes into the weights image), arena (``offset`` bytes into arena slot
    ``slot``), round_in | round_out (where pointer ``index`` of the frame leads in a round of a
    region).  ``elements`` is the physical number of elements, ``shape`` the logical shape.
    ``memory``, ``parts``, ``each``: as of a ``Slot``, with ``stride`` bytes from one cluster's or
    worker's part to the next one's.
    ``sparse``: a run looks up a few of the weights here and leaves most of them untouched;
    ``stored``, ``counts``: as of a Buffer.  ``ring``: a holder has room for so many elements at a
    time, each at its number modulo ``ring`` (0: for all of its part)."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    dtype: str
    shape: Shape
    storage: str
    elements: Expr
    offset: int = 0
    slot: int = 0
    index: int = 0
    onnx: str = ""
    sparse: bool = False
    stored: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    memory: str = ""
    parts: int = 1
    stride: int = 0
    each: int = 0
    ring: int = 0

    @property
    def room(self) -> Expr:
        """Elements that a holder has room for."""
        return Const(self.ring) if self.ring else self.part

    @property
    def part(self) -> Expr:
        """Elements of one part."""
        return simplify(self.elements // self.parts)

    @property
    def holders(self) -> int:
        """Clusters or workers that have room for a part."""
        return self.each or self.parts

    def __str__(self) -> str:
        where = {"arena": f"arena slot {self.slot} + {self.offset}" + (
                     f" in {self.memory}, {self.parts} parts" if self.memory else "") + (
                     f", {self.ring} elements at a time" if self.ring else ""),
                 "weights": f"weights + {self.offset}"}.get(self.storage,
                                                            f"{self.storage} {self.index}")
        return f"{self.name} : {self.dtype}[{', '.join(map(show, self.shape))}] at {where}"


def points(ranges: Iterable[Range]) -> int | None:
    """Upper bound of the number of points of loops; None if there is none."""
    total = 1
    for r in ranges:
        n = _longest(r.lo, r.hi)
        if n is None:
            return None
        total *= max(n, 1)
    return total


def _longest(lo: Expr, hi: Expr) -> int | None:
    """Upper bound of hi - lo; a tile's end is the smaller of two."""
    if isinstance(hi, Binary) and hi.op == "min":
        both = [n for n in (_longest(lo, hi.a), _longest(lo, hi.b)) if n is not None]
        return min(both, default=None)
    return upper(simplify(hi - lo))


@dataclass(frozen=True)
class Nest:
    """Loops over ``ranges``; if there is a fold, inner loops over ``reduce`` fold ``body`` into
    ``acc`` (a Var that ``puts`` use).  ``vector`` names the axis whose loop runs over lanes
    ("" = scalar, the ``loops`` row): an axis of ``ranges`` or of ``reduce``.
    ``lanes`` is the vector length in elements.  ``block`` > 1 computes that many neighbouring
    steps of ``block_axis`` together, with the reduction axis ``taps`` unrolled.  ``team``: warps
    that fold a row together, where threads share a work item.  ``parts``: the first so many of
    ``reduce`` run over parts of the sum, each summed by itself (0: it runs whole).  ``ends``: those
    of ``reduce`` that data says, at a point of ``ranges``.  ``writing``: the Schedule's choices."""

    row: str
    ranges: tuple[Range, ...]
    reduce: tuple[Range, ...]
    fold: str | Fold
    acc: tuple[Var, ...]
    body: Expr
    puts: tuple[Put, ...]
    vector: str = ""
    lanes: int = 1
    block: int = 1
    block_axis: str = ""
    taps: str = ""
    team: int = 1
    parts: int = 0
    ends: Bindings = ()
    writing: StageChoice = UNSAID

    @property
    def fold_name(self) -> str:
        """The name of a fold that is no formula."""
        assert isinstance(self.fold, str), self.fold
        return self.fold

    @property
    def folds_lanes(self) -> bool:
        """True for a fold whose lanes lie along the reduced axis."""
        return bool(self.vector) and any(r.axis.name == self.vector for r in self.reduce)


@dataclass(frozen=True)
class Unrolled:
    """Loops over ``ranges``, the last one over vector lanes (its axis is named ``vector``), around
    the straight-line statements ``body`` (Let | Put, in order).  ``flags``: (Var, condition) pairs,
    the same for all lanes."""

    row: str
    ranges: tuple[Range, ...]
    flags: tuple[tuple[Var, Expr], ...]
    body: tuple[Let | Put, ...]
    vector: str
    lanes: int

    @property
    def puts(self) -> tuple[Put, ...]:
        return tuple(s for s in self.body if isinstance(s, Put))


@dataclass(frozen=True)
class Operand:
    """How a contraction reads one operand.

    mode ``rows`` (A): element (m, tap, k) is ``buffer[offset + k*stride]``; where ``guard`` is
    false the row reads zeros.  mode ``panel`` (B): packed panels, ``offset`` is the panel's first
    element, k-step ``stride`` elements.  mode ``direct`` (B): ``buffer[offset + k*stride + n]``.
    mode ``packed`` (A or B): ``value`` is evaluated into scratch ``buffer`` first.
    ``tap`` is the step of direct B from one tap to the next (None: taps lie side by side).
    ``pad`` (8-bit rows): a row in scratch, filled with ``value``, that is read instead of zeros.
    """

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer", "pad")
    mode: str
    buffer: str
    offset: Expr
    stride: Expr
    guard: Expr | None = None
    value: Expr | None = None
    tap: Expr | None = None
    pad: str = ""

    @property
    def packed(self) -> Expr:
        """What an operand with a value is made of."""
        assert self.value is not None, f"{self.mode} {self.buffer} has no value"
        return self.value


@dataclass(frozen=True)
class Contract(Stmt):
    """C[m, n] = sum over taps and k of A[m, tap, k] * B[tap, k, n], in MR x NR register tiles.

    outer: loops around everything; m: the axes flattened into rows; n: the lane axis;
    taps: outer reduction axes; k: the innermost reduction axis.  ``puts`` use Var ``acc``.
    dtypes: of A, B and the sums.  turned: scratch of ``turned_rows`` rows of results, which lie
    across the lanes in memory: they are stored from there by transposed blocks ("" = stored as
    they come).  slices: scratch for sums that run ``slice`` steps of k at a time ("" = whole), in
    one tap of ``slice_taps``, which ``taps`` has no more.  whole: which of "rows" and "columns"
    fill every register tile; tiles of the others may be cut at their end.  part: steps of the sum,
    over taps and k, that are summed by themselves before they join the rest (0: it runs whole).
    grouping: how the bytes of B's panels hold weights (None: they hold elements); with mode
    "expanded" a panel of them is expanded to f32 in the scratch ``b.pad`` for all rows.  unit: of
    the machine, which multiplies instead of a micro-kernel ("": none does).  again: threads that
    share it wait behind each tile, because what comes next uses the memory of its steps.  fed: what
    engines copy for each slice, and waits for it.
    """

    BUFFERS = ("turned", "slices")
    row: str
    template: str
    mr: int
    nv: int
    lanes: int
    outer: tuple[Range, ...]
    m: tuple[Range, ...]
    n: Range
    taps: tuple[Range, ...]
    k: Range
    a: Operand
    b: Operand
    acc: Var
    puts: tuple[Put, ...]
    note: str = ""
    dtypes: tuple[str, str, str] = ("f32", "f32", "f32")
    turned: str = ""
    turned_rows: int = 0
    slices: str = ""
    slice: int = 0
    slice_taps: tuple[Range, ...] = ()
    whole: tuple[str, ...] = ()
    part: int = 0
    writing: StageChoice = UNSAID
    grouping: Grouping | None = None
    unit: str = ""
    again: bool = False
    fed: Body = ()

    @property
    def row_count(self) -> Expr:
        """Rows, as an expression: none where an axis ends before it begins."""
        n: Expr = Const(1)
        for r in self.m:  # a single axis needs no bound: its loop ends at once
            n = n * (maximum(r.hi - r.lo, Const(0)) if len(self.m) > 1 else r.hi - r.lo)
        return simplify(n)

    def lines(self) -> list[str]:
        out = [f"contract {self.row} {self.mr}x{self.nv * self.lanes}" + (
            f" turned by {self.turned_rows} rows" if self.turned else "") + (
            f" in slices of {self.slice}" if self.slices else "") + "".join(
                f", {r}" for r in self.slice_taps) + (
            f", whole {' and '.join(self.whole)}" if self.whole else "") + (
            f", sums in parts of {self.part}" if self.part else "") + (
            f", weights of {self.grouping}" if self.grouping else "") + (
            f", by {self.unit}" if self.unit else "") + (
            ", memory used again" if self.again else "") + "".join(
            f", {k} {v}" for k, v in self.writing.said.items())]
        out += [f"for {r} {{" for r in self.outer]
        out += [f"rows {', '.join(map(str, self.m))}; columns {self.n}; "
                f"taps {', '.join(map(str, self.taps)) or '-'}; k {self.k}"]
        out += text_of(self.fed, 0)
        for name, x in (("A", self.a), ("B", self.b)):
            out.append(f"{name} {x.mode} {x.buffer}[{show(x.offset)} + k*{show(x.stride)}]")
        return out + [str(p) for p in self.puts]


@dataclass(frozen=True)
class Call(Stmt):
    """One item of a library kernel (``ir/library.py``).  dtype: of its first tensor; ``operands``:
    where the item lies in every buffer, in the order of its C arguments; ``numbers``: extents and
    attributes, which follow."""

    kernel: str
    dtype: str
    operands: tuple[Box, ...]
    numbers: Shape
    puts: tuple[Put, ...] = ()

    @property
    def row(self) -> str:
        return f"library {self.kernel}"

    def lines(self) -> list[str]:
        parts = [f"{x.buffer} + {show(x.offset)}" for x in self.operands]
        parts += [show(e) for e in self.numbers]
        return [f"call {self.kernel}_{self.dtype}({', '.join(parts)})"]


Stage = Nest | Contract | Unrolled | Call


@dataclass(frozen=True)
class Scratch:
    """A per-worker buffer in the slab: ``elements`` of ``dtype`` at byte ``offset``, both ints, or
    expressions over symbols where an extent has no bound.  ``memory``: of the machine, where
    engines copy to and from scratch ("" elsewhere).  ``form``: the indices of a tensor's part."""

    name: str
    dtype: str
    elements: Size
    offset: Size
    memory: str = ""
    form: ArrayForm | None = None


def most(sizes: Iterable[Size]) -> Size:
    """The largest of sizes (ints or expressions), 0 of none: an int if all are."""
    sizes = list(sizes)
    known = max((n for n in sizes if isinstance(n, int)), default=0)
    out: Expr = Const(known)
    for n in dict.fromkeys(n for n in sizes if not isinstance(n, int)):
        out = maximum(out, n)
    out = simplify(out)
    return out.value if isinstance(out, Const) else out


@dataclass(frozen=True)
class Ahead:
    """What a work item that makes steps copies ahead.  ``once``: copies of what all steps read, and
    waits for them; ``lets``: names of a step's boxes from its number, ``NEXT``; ``copies``: of
    these boxes, into the places of even steps and of odd ones."""

    once: Body
    lets: Bindings
    copies: tuple[Body, Body]


@dataclass(frozen=True)
class Kernel:
    """One C function: ``for tile in begin..end``: bind ``let`` (tile origins, box ends), then run
    the stages in order.  ``tiles`` is the number of independent work items, ``threads`` those that
    share each of them (0: one does).  ``flops`` and ``bytes``: what one call computes and must at
    least move, ``plain``: the part of its time that plain loops take, an estimate (for profiles
    only).  With ``steps``, a work item runs its stages so many times,
    ``step_let`` bound anew from the number of the step each time; ``carried`` are (Axis, value in
    the next step), 0 in the first step of the first item that a worker takes, of an item for which
    ``start`` is 0, and of every item without ``start``: what an item keeps serves the next one.
    Where threads share a work item, they all wait for each other in front of the stages whose
    numbers are in ``barriers``, and micro-kernels take ``staged`` bytes behind the scratch.
    ``around``: {number of a stage: what engines are told in front of it}, of their number: behind
    all, as pairs.  ``clusters``: of workers, its items are dealt to so many (0: there are none).
    ``ahead``: what is copied while the step before is computed.  ``says``: of every stage, the
    Program's lines that it computes, for readers.  ``arrays``: what its text indexes as arrays.
    ``function``: the first of the kernels that have one function with it, which differ in the
    tensors they touch only ("": it has its own)."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("reads", "writes")
    name: str
    title: str
    origin: tuple[str, ...]
    tiles: Expr
    let: Bindings
    scratch: tuple[Scratch, ...]
    stages: tuple[Stage, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    flops: Expr = Const(0)
    bytes: Expr = Const(0)
    threads: int = 0
    steps: Expr | None = None
    step_let: Bindings = ()
    carried: Bindings = ()
    start: Expr | None = None
    barriers: tuple[int, ...] = ()
    staged: int = 0
    plain: float = 0.0
    around: tuple[tuple[int, Body], ...] = ()
    body: Body = ()
    kept: tuple[Axis, ...] = ()
    clusters: int = 0
    ahead: Ahead | None = None
    says: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    arrays: tuple[ArrayOf, ...] = ()
    function: str = field(default="", compare=False)

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The tensors that its statements touch, in the order in which they do: those that they
        only read, then the others."""
        found = [b for b in buffers_in(self.body) if b in {*self.reads, *self.writes}]
        return tuple(sorted(found, key=lambda b: b in self.writes))

    def reads_alone(self, plan: "Plan", name: str) -> bool:
        """True for a tensor that it only reads, where nothing it writes lies: an input that dies
        here may lie where the output goes."""
        written = {(p.storage, p.slot, p.offset) for p in map(plan.place, self.writes)
                   if p.storage == "arena"}
        p = plan.place(name)
        return name not in self.writes and (p.storage, p.slot, p.offset) not in written

    def rule(self, guarded: Guarded) -> Rule:
        """(operation, why) of a Guarded; where that does not say why, the kernel's nodes do."""
        return guarded.op, guarded.why or ", ".join(self.origin)

    @property
    def slab_bytes(self) -> Size:
        """Bytes of scratch one worker needs, rounded up to 64; an expression where they depend on
        an extent without a bound."""
        end = most(s.offset + s.elements * DTYPES[s.dtype].size for s in self.scratch)
        return most([(end + 63) // 64 * 64])

    def __str__(self) -> str:
        shared = self.function not in ("", self.name)
        out = [f"{self.name}: {self.title}" + f", the function of {self.function}" * shared,
               f"  for ~tile in 0..{show(self.tiles)} parallel"]
        return "\n".join(out + text_of(self.body, 2))


@dataclass(frozen=True)
class Plan:
    """Everything the emitter needs.  ``slots``: byte sizes of the arena's slots (expressions in
    the symbols; one slot with fixed offsets when all shapes are static).  ``kernels`` are in call
    order.  ``weights`` is the image: (place name, numpy array in physical order) pairs.  ``math``
    and ``optimize`` are the Schedule's.  ``defaults``: (input, its place in the image) of inputs
    that a caller may leave out.  ``regions``: kernels that run in rounds or not always, an outer
    one before those inside it.  ``texts``: what strings of the interface are places in.
    ``aliases``: outputs that lie where inputs do.
    ``memories``: (name, capacity in bytes) of those that scratch and places name.
    ``engines``: (name, memory, memory that it copies to), "" for what holds everything.
    ``units``: (name, memory that its operands have to be in).
    ``turns``: (number of a kernel, first, end), as of a Schedule's ``order``; ``cores``: workers
    of a cluster (0: there are none)."""

    name: str
    target: str
    syms: tuple[Sym, ...]
    checks: tuple[Check, ...]
    places: tuple[Place, ...]
    slots: tuple[Expr, ...]
    kernels: tuple[Kernel, ...]
    weights: tuple[tuple[str, Array], ...] = field(default=(), hash=False, repr=False)
    math: str = "fast"
    optimize: str = "speed"
    defaults: tuple[tuple[str, str], ...] = ()
    regions: tuple[PlanRegion, ...] = ()
    texts: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    memories: tuple[tuple[str, int], ...] = ()
    engines: tuple[tuple[str, str, str], ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    turns: tuple[tuple[int, int, int], ...] = ()
    cores: int = 0

    @cached_property
    def _place_of(self) -> dict[str, Place]:
        return {p.name: p for p in reversed(self.places)}  # the first of a name counts

    def place(self, name: str) -> Place:
        return self._place_of[name]

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """(operation, why) of all values from data that have a rule, each once, in call order: a
        fault is told by its number here."""
        return tuple(dict.fromkeys(k.rule(n) for k in self.kernels for n in guards(k)))

    @property
    def slab_bytes(self) -> Size:
        """Bytes of scratch that every worker needs for the largest kernel, as a kernel's."""
        return most(k.slab_bytes for k in self.kernels)

    @property
    def weights_bytes(self) -> int:
        return max((p.offset + a.nbytes for p, (_, a) in zip(self._weight_places, self.weights)),
                   default=0)

    @property
    def _weight_places(self) -> list[Place]:
        return [self.place(n) for n, _ in self.weights]

    def __str__(self) -> str:
        out = [f"plan {self.name} for {self.target}"]
        out += [f"  slot {i}: {show(s)} bytes" for i, s in enumerate(self.slots)]
        out += [f"  {p}" for p in self.places] + [f"  alias {a}" for a in self.aliases]
        for n, k in enumerate(self.kernels):
            out += [str(r) for r in self.regions if r.first == n] + [str(k)]
        out += [f"  turn of {self.kernels[k].name}: {first}..{end} of every cluster's"
                for k, first, end in self.turns]
        return "\n".join(out)


def turn_items(kernel: Kernel, count: int, first: int, end: int) -> Sequence[int]:
    """Numbers of the work items, of ``count``, in a turn of a kernel (``Plan.turns``); first and
    end 0: all of them."""
    if not end:
        return range(count)
    own = count // max(1, kernel.clusters)
    return [c * own + i for c in range(max(1, kernel.clusters)) for i in range(first, end)]


def rules_of(plans: Iterable[Plan]) -> tuple[Rule, ...]:
    """The rules of several plans, each once: a fault in one of them is told by its number here."""
    return tuple(dict.fromkeys(r for p in plans for r in p.rules))

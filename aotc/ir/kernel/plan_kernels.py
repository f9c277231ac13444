"""Kernels of a Plan, one C function each: a ``LoweredKernel`` has stages, a ``Kernel`` statements.

    lowered = LoweredKernel(name, about, tiles, let, scratch, stages, reads, writes, work, steps,
                            block, dealt)
    kernel  = Kernel(lowered, body, arrays, function)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from aotc.ir.access import ArrayForm, ArrayOf
from aotc.ir.contents import buffers_in
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Guarded, maximum, show
from aotc.ir.kernel.plan_stages import Bindings, Call, Stage
from aotc.ir.simplify import simplify
from aotc.ir.statements import Body, text_of

Size = int | Expr  # an expression in the symbols where an extent has no bound
Rule = tuple[str, str]  # (operation, why) of a Guarded


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


def largest_size(sizes: Iterable[Size]) -> Size:
    """The largest of sizes (ints or expressions), 0 of none: an int if all are."""
    sizes = list(sizes)
    known = max((n for n in sizes if isinstance(n, int)), default=0)
    out: Expr = Const(known)
    for n in dict.fromkeys(n for n in sizes if not isinstance(n, int)):
        out = maximum(out, n)
    out = simplify(out)
    return out.value if isinstance(out, Const) else out


@dataclass(frozen=True)
class About:
    """What readers of a kernel are told: ``title``: what it stores, ``origin``: the model's nodes
    that it computes, ``says``: of every stage, the Program's lines."""

    title: str = ""
    origin: tuple[str, ...] = ()
    says: tuple[tuple[str, ...], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class WorkEstimate:
    """Estimates of one call, for profiles only: what it computes, what it must at least move, and
    the part of its time that plain loops take."""

    flops: Expr = Const(0)
    bytes: Expr = Const(0)
    plain: float = 0.0


@dataclass(frozen=True)
class Ahead:
    """What a work item that makes steps copies ahead.  ``once``: copies of what all steps read, and
    waits for them; ``lets``: names of a step's boxes from its number, ``NEXT``; ``copies``: of
    these boxes, into the places of even steps and of odd ones."""

    once: Body
    lets: Bindings
    copies: tuple[Body, Body]


@dataclass(frozen=True)
class Steps:
    """A work item that runs its stages ``count`` times, ``let`` bound anew from the number of the
    step each time.  ``carried``: (Axis, value in the next step), 0 in the first step of the first
    item that a worker takes, of an item for which ``start`` is 0, and of every item without
    ``start``: what an item keeps serves the next one.  ``ahead``: what is copied while the step
    before is computed."""

    count: Expr
    let: Bindings = ()
    carried: Bindings = ()
    start: Expr | None = None
    ahead: Ahead | None = None


@dataclass(frozen=True)
class Block:
    """``threads`` that share a work item: they all wait for each other in front of the stages whose
    numbers are in ``barriers``, and micro-kernels take ``staged`` bytes behind the scratch.
    ``held``: blocks that a worker's registers are to have room for."""

    threads: int
    barriers: tuple[int, ...] = ()
    staged: int = 0
    held: int = 1


@dataclass(frozen=True)
class Dealt:
    """Work items that are dealt to so many ``clusters`` of workers.  ``around``: {number of a
    stage: what engines are told in front of it}, of their number: behind all, as pairs."""

    clusters: int = 0
    around: tuple[tuple[int, Body], ...] = ()


@dataclass(frozen=True)
class LoweredKernel:
    """``for tile in begin..end``: bind ``let`` (tile origins, box ends), then run the stages in
    order.  ``tiles`` is the number of independent work items; ``steps``: None where each runs its
    stages once; ``block``: None where one thread computes it; ``dealt``: None where whoever is
    free takes it."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("reads", "writes")
    name: str
    about: About
    tiles: Expr
    let: Bindings
    scratch: tuple[Scratch, ...]
    stages: tuple[Stage, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    work: WorkEstimate = WorkEstimate()
    steps: Steps | None = None
    block: Block | None = None
    dealt: Dealt | None = None

    @property
    def threads(self) -> int:
        """Threads that share a work item; 0 where one has it alone."""
        return self.block.threads if self.block is not None else 0

    @property
    def staged(self) -> int:
        """Bytes behind the scratch that micro-kernels take."""
        return self.block.staged if self.block is not None else 0

    @property
    def clusters(self) -> int:
        """Clusters that the work items are dealt to; 0 where there are none."""
        return self.dealt.clusters if self.dealt is not None else 0

    @property
    def around(self) -> tuple[tuple[int, Body], ...]:
        """What engines are told in front of stages, by their number."""
        return self.dealt.around if self.dealt is not None else ()

    @property
    def carried(self) -> Bindings:
        """(Axis, value in the next step) of what a step leaves to the next one."""
        return self.steps.carried if self.steps is not None else ()

    @property
    def calls_library(self) -> bool:
        """True for a kernel of the library's."""
        return any(isinstance(s, Call) for s in self.stages)

    @property
    def lets(self) -> Bindings:
        """The names of a work item and of each of its steps."""
        return self.let + (self.steps.let if self.steps is not None else ())

    @property
    def slab_bytes(self) -> Size:
        """Bytes of scratch one worker needs, rounded up to 64; an expression where they depend on
        an extent without a bound."""
        end = largest_size(s.offset + s.elements * DTYPES[s.dtype].size for s in self.scratch)
        return largest_size([(end + 63) // 64 * 64])

    def __str__(self) -> str:
        shared = f", {self.threads} threads each" if self.block is not None else ""
        out = [f"{self.name}: {self.about.title}",
               f"  for ~tile in 0..{show(self.tiles)} parallel{shared}"]
        out += [f"    scratch {s.name}: {s.elements} {s.dtype} at {s.offset}" for s in self.scratch]
        out += [f"    {v} = {show(e)}" for v, e in self.let]
        if self.steps is not None:
            out.append(f"    steps: {show(self.steps.count)}")
            out += [f"    {v} = {show(e)}" for v, e in self.steps.let]
        barriers = self.block.barriers if self.block is not None else ()
        for n, stage in enumerate(self.stages):
            out += ["    barrier"] * (n in barriers) + [f"    {line}" for line in stage.lines()]
        return "\n".join(out)


@dataclass(frozen=True)
class Kernel:
    """A lowered kernel with its statements: one C function.  ``arrays``: what its text indexes as
    arrays.  ``function``: the first of the kernels that have one function with it, which differ in
    the tensors they touch only ("": it has its own)."""

    lowered: LoweredKernel
    body: Body
    arrays: tuple[ArrayOf, ...] = ()
    function: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return self.lowered.name

    @property
    def title(self) -> str:
        return self.lowered.about.title

    @property
    def origin(self) -> tuple[str, ...]:
        return self.lowered.about.origin

    @property
    def tiles(self) -> Expr:
        return self.lowered.tiles

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        return self.lowered.scratch

    @property
    def reads(self) -> tuple[str, ...]:
        return self.lowered.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.lowered.writes

    @property
    def work(self) -> WorkEstimate:
        return self.lowered.work

    @property
    def threads(self) -> int:
        return self.lowered.threads

    @property
    def clusters(self) -> int:
        return self.lowered.clusters

    @property
    def slab_bytes(self) -> Size:
        return self.lowered.slab_bytes

    @property
    def kept(self) -> tuple[Axis, ...]:
        """Names whose values one work item leaves to the next."""
        steps = self.lowered.steps
        return () if steps is None or steps.start is None else tuple(v for v, _ in steps.carried)

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The tensors that its statements touch, in the order in which they do: those that they
        only read, then the others."""
        found = [b for b in buffers_in(self.body) if b in {*self.reads, *self.writes}]
        return tuple(sorted(found, key=lambda b: b in self.writes))

    def named(self, name: str) -> "Kernel":
        """The Kernel with another name."""
        return replace(self, lowered=replace(self.lowered, name=name))

    def rule(self, guarded: Guarded) -> Rule:
        """(operation, why) of a Guarded; where that does not say why, the kernel's nodes do."""
        return guarded.op, guarded.why or ", ".join(self.origin)

    def __str__(self) -> str:
        shared = self.function not in ("", self.name)
        out = [f"{self.name}: {self.title}" + f", the function of {self.function}" * shared,
               f"  for ~tile in 0..{show(self.tiles)} parallel"]
        return "\n".join(out + text_of(self.body, 2))

"""Plan: the C functions with explicit loops, the arena with offsets, the call order.

In a Plan every Load has exactly one index: the element offset from the buffer's base pointer
(layouts are already applied), and loops run over Axis nodes printed as C variables.

    plan    = Plan(name, target, syms, checks, places, slots, kernels, weights, regions)
    kernel  = Kernel(lowered, body, arrays, function)      (``ir/kernel/plan_kernels.py``)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from aotc.ir.contents import guards
from aotc.ir.dtypes import Array
from aotc.ir.expr import Const, Expr, Shape, Sym, show
from aotc.ir.kernel.plan_kernels import Kernel, Rule, Size, largest_size
from aotc.ir.numbers.byte_scale import ByteScale
from aotc.ir.plan_regions import PlanRegion
from aotc.ir.program import Alias, Check
from aotc.ir.simplify import simplify


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
    ``stored``, ``counts``, ``scale``: as of a Buffer.  ``ring``: a holder has room for so many
    elements at a time, each at its number modulo ``ring`` (0: for all of its part)."""

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
    scale: ByteScale | None = None

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

    def only_reads(self, kernel: Kernel, name: str) -> bool:
        """True for a tensor that a kernel only reads, where nothing it writes lies: an input that
        dies there may lie where the output goes."""
        written = {(p.storage, p.slot, p.offset) for p in map(self.place, kernel.writes)
                   if p.storage == "arena"}
        p = self.place(name)
        return name not in kernel.writes and (p.storage, p.slot, p.offset) not in written

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """(operation, why) of all values from data that have a rule, each once, in call order: a
        fault is told by its number here."""
        return tuple(dict.fromkeys(k.rule(n) for k in self.kernels for n in guards(k)))

    @property
    def slab_bytes(self) -> Size:
        """Bytes of scratch that every worker needs for the largest kernel, as a kernel's."""
        return largest_size(k.slab_bytes for k in self.kernels)

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

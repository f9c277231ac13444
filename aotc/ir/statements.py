"""The statements of a Plan's kernels: one small loop language for every target.

    stmt = For | Spread | First | If | Scope | Section                    with bodies
         | Let | Start | Accumulate | Total | Declare | Update             names and folds
         | Store | Alloc | Copy | Wait | Fill | Prefetch | Barrier         memory
         | Pack | Point | RowCounters | RowTable | Tile                    tile_statements.py
         | Call                                                            library kernels

Lowering writes them, the emitters print them, the interpreter runs them.  Every Load has one index,
the element offset from the buffer's base.  A statement between the lanes of a vector (inside a
``For`` of kind "lanes") holds for each lane by itself; what differs between lanes is in vectors,
what does not is a scalar.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import ClassVar

from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Sym,
    Var,
    show,
)

Body = tuple["Stmt", ...]
KINDS = ("serial", "lanes")
OWN = "~"  # what names begin with that lowering makes up: none of a model has one
FIRST = "~~"  # what the name of an axis of lanes begins with that means its vector's first one
# of a kernel: the number of a work item, and of its step
TILE, STEP = Axis(f"{OWN}tile", Const(1 << 40)), Axis(f"{OWN}step", Const(1 << 40))
# the number of the step whose boxes are copied, and which of two places the present ones have
NEXT, SLOT = Axis(f"{OWN}next", Const(1 << 40)), Axis(f"{OWN}slot", Const(2))
# how many workers a call has; deciders that ask a machine count with its own
WORKERS = Sym(f"{OWN}workers", 1, 1 << 16, usual=2)
ACC_TILE = f"{OWN}acc_tile"  # the array with the sums of a register tile
SUMS = f"{OWN}sum"  # the same in registers: whole vectors of it are read and stored


class Stmt:
    """Base of all statements.  BUFFERS: the fields that name buffers, as of every class of values
    in statements that has some.  METHOD: what the methods are called that print or run statements
    of the kind: the name of its class, words apart, unless the class says another."""

    __slots__ = ()
    BUFFERS: ClassVar[tuple[str, ...]] = ()
    METHOD: ClassVar[str]

    def __init_subclass__(cls, method: str = "") -> None:
        cls.METHOD = method or re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()

    def lines(self) -> list[str]:
        """The statement as text, a line each."""
        raise NotImplementedError(type(self).__name__)


def text_of(body: Iterable[Stmt], depth: int = 1) -> list[str]:
    """Lines of a body, indented."""
    return ["  " * depth + line for s in body for line in s.lines()]


@dataclass(frozen=True)
class Range:
    """``for axis in lo..hi`` (hi exclusive); lo and hi may be min/max expressions."""

    axis: Axis
    lo: Expr
    hi: Expr

    def __str__(self) -> str:
        return f"{self.axis} in {show(self.lo)}..{show(self.hi)}"


@dataclass(frozen=True)
class For(Stmt, method="loop"):
    """``body`` for every value of ``axis`` in lo..hi (hi exclusive), in order.

    kind "lanes": values side by side in the lanes of vectors, each of ``group`` registers where the
    length of vectors is not fixed; ``narrow``: the last vectors in as few registers as hold them.
    kind "tile": rows, or vectors of columns, of a register tile, which are written out.
    ``step``: the axis takes every so-many-th value (of lanes: the first of ``width`` lanes does)
    and the body stands for those up to the next (it names them by ``axis + u``); ``rest`` is done
    for each value that no whole step is left for.  ``note``: for readers.
    """

    axis: Axis
    lo: Expr
    hi: Expr
    body: Body
    kind: str = "serial"
    step: int = 1
    rest: Body = ()
    group: int = 1
    narrow: bool = False
    width: int = 1
    note: str = field(default="", compare=False)

    def lines(self) -> list[str]:
        marks = [] if self.kind == "serial" else [self.kind]
        marks += [f"by {self.step}"] * (self.step > 1)
        marks += [f"of {self.group} registers"] * (self.group > 1) + ["narrowing"] * self.narrow
        head = " ".join([f"for {self.axis} in {show(self.lo)}..{show(self.hi)}", *marks])
        rest = ["each of the rest"] + text_of(self.rest) if self.rest else []
        return [head, *text_of(self.body), *rest]


@dataclass(frozen=True)
class Spread(Stmt):
    """``body`` for the points of ``ranges``, spread over the threads of a work item: "threads" each
    take points of their own, "groups" of ``size`` threads do, or the ``size`` threads of such a
    group share them.  The last range counts fastest.  Groups of more than one warp take one point
    each at most."""

    ranges: tuple[Range, ...]
    over: str
    size: int
    body: Body

    def lines(self) -> list[str]:
        points = ", ".join(map(str, self.ranges))
        who = {"threads": "threads", "groups": f"groups of {self.size} threads",
               "group": f"the {self.size} threads of a group"}[self.over]
        return [f"spread {points} over {who}", *text_of(self.body)]


@dataclass(frozen=True)
class First(Stmt):
    """``body`` by the first of every ``size`` threads."""

    size: int
    body: Body

    def lines(self) -> list[str]:
        return [f"first of {self.size} threads", *text_of(self.body)]


@dataclass(frozen=True)
class Barrier(Stmt):
    """All threads of a work item wait for each other."""

    def lines(self) -> list[str]:
        return ["barrier"]


@dataclass(frozen=True)
class Let(Stmt):
    """The name ``var`` stands for ``value`` from here to the end of the body."""

    var: Var | Axis
    value: Expr

    def lines(self) -> list[str]:
        return [f"{self.var.name} = {show(self.value)}"]


@dataclass(frozen=True)
class If(Stmt, method="condition"):
    """``body`` where a condition that is the same in all lanes holds, else ``other``."""

    cond: Expr
    body: Body
    other: Body = ()

    def lines(self) -> list[str]:
        other = ["else", *text_of(self.other)] if self.other else []
        return [f"if {show(self.cond)}", *text_of(self.body), *other]


@dataclass(frozen=True)
class Start(Stmt):
    """``var`` accumulates a fold from its neutral element on.  ``across`` > 0: it is a vector of so
    many registers, whose lanes fold values each by themselves until a ``Total``."""

    var: Var
    fold: str
    across: int = 0

    def lines(self) -> list[str]:
        return [f"start {self.var.name}: {self.fold}" + (" of each lane" if self.across else "")]


@dataclass(frozen=True)
class Accumulate(Stmt):
    """Each value joins its accumulator, in order; what values share is computed once."""

    fold: str
    steps: tuple[tuple[Var, Expr], ...]

    def lines(self) -> list[str]:
        return [f"{v.name} <- {self.fold} {show(e)}" for v, e in self.steps]


@dataclass(frozen=True)
class Total(Stmt):
    """``var`` is the fold over the lanes of ``source``; with ``joins`` that joins its sum.
    ``threads``: over so many threads side by side instead, each of which has a ``source``."""

    var: Var
    fold: str
    source: Var
    joins: bool = False
    threads: int = 0

    def lines(self) -> list[str]:
        of = f"{self.threads} threads" if self.threads else "the lanes"
        return [f"{self.var.name} {'<-' if self.joins else '='} {self.fold} over {of} of "
                f"{self.source.name}"]


@dataclass(frozen=True)
class Declare(Stmt):
    """``var``, which ``Update`` changes, begins as ``value``."""

    var: Var | Axis
    value: Expr

    def lines(self) -> list[str]:
        return [f"state {self.var.name} = {show(self.value)}"]


@dataclass(frozen=True)
class Update(Stmt):
    """New values of states, all computed before any is replaced."""

    vars: tuple[Var | Axis, ...]
    values: tuple[Expr, ...]

    def lines(self) -> list[str]:
        return [f"{', '.join(v.name for v in self.vars)} <- {', '.join(map(show, self.values))}"]


@dataclass(frozen=True)
class Put:
    """Store ``value`` to element ``offset`` of ``buffer``, where ``guard`` holds (None: always)."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer",)
    buffer: str
    offset: Expr
    value: Expr
    guard: Expr | None = None

    def __str__(self) -> str:
        cond = f"if {show(self.guard)}: " if self.guard is not None else ""
        return f"{cond}{self.buffer}[{show(self.offset)}] = {show(self.value)}"


@dataclass(frozen=True)
class Store(Stmt):
    """All values are computed, then stored."""

    puts: tuple[Put, ...]

    def lines(self) -> list[str]:
        return [str(p) for p in self.puts]


@dataclass(frozen=True)
class Box:
    """Elements of a buffer from ``offset`` on; ``strides``: elements from one to the next, one
    number per dimension of what is copied, none for a place."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer",)
    buffer: str
    offset: Expr
    strides: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        steps = f" by {', '.join(map(show, self.strides))}" if self.strides else ""
        return f"{self.buffer}[{show(self.offset)}]{steps}"


@dataclass(frozen=True)
class Copy(Stmt):
    """``extents`` elements of one dtype from one buffer to another, which do not overlap: one
    dimension, a "run" side by side in both; or two, blocks that are "transposed", or a few rows
    "woven" into each other; or any number, a "box".  With an ``engine`` that copies while the
    statements behind it run: elements are there after a ``Wait`` for its ``token``."""

    to: Box
    source: Box
    extents: tuple[Expr, ...]
    dtype: str
    form: str = "run"
    engine: str = ""
    token: int = 0

    def lines(self) -> list[str]:
        by = f" by {self.engine}, token {self.token}" if self.engine else ""
        return [f"copy {self.form} {' x '.join(map(show, self.extents))} {self.dtype}: {self.to} = "
                f"{self.source}{by}"]


@dataclass(frozen=True)
class Wait(Stmt):
    """What engines copy under ``token`` has arrived behind this statement.  ``memory``: of copies
    to that memory of a cluster, which go on when the work item that began them is done."""

    token: int
    memory: str = ""

    def lines(self) -> list[str]:
        return [f"wait for token {self.token}" + (f" in {self.memory}" if self.memory else "")]


@dataclass(frozen=True)
class Prefetch(Stmt):
    """Ask for the cache line of an element: nothing is read.  ``far``: into the second cache only;
    ``beyond``: the element may lie beyond the buffer."""

    BUFFERS = ("buffer",)
    buffer: str
    offset: Expr
    far: bool = False
    beyond: bool = True

    def lines(self) -> list[str]:
        return [f"prefetch {self.buffer}[{show(self.offset)}]" + (" far" if self.far else "")]


@dataclass(frozen=True)
class Alloc(Stmt):
    """A local array of ``elements`` values, at a multiple of 64 bytes."""

    name: str
    dtype: str
    elements: int

    def lines(self) -> list[str]:
        return [f"array {self.name} of {self.elements} {self.dtype}"]


@dataclass(frozen=True)
class Scope(Stmt):
    """Names that ``body`` binds end with it."""

    body: Body

    def lines(self) -> list[str]:
        return ["scope", *text_of(self.body)]


@dataclass(frozen=True)
class Fill(Stmt):
    """``count`` elements of a buffer from ``offset`` on become ``value``: any byte, or zero."""

    BUFFERS = ("buffer",)
    buffer: str
    offset: Expr
    count: Expr
    value: Expr

    def lines(self) -> list[str]:
        return [f"fill {self.buffer}[{show(self.offset)}] on, {show(self.count)} elements: "
                f"{show(self.value)}"]


@dataclass(frozen=True)
class Function:
    """A function of a stage, or of several that differ in their buffers only: ``name``, after the
    first of them, and what a stage passes of its kernel's, ``buffers`` and ``names`` of integers,
    in the order of the parameters."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffers",)
    name: str
    buffers: tuple[str, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join((*self.buffers, *self.names))})"


@dataclass(frozen=True)
class Section(Stmt):
    """The statements of one stage, under a title.  ``apart``: in a function of their own, or of
    equal ones; ``says``: the Program's lines that they compute; ``function``: which one, in a
    finished Plan."""

    title: str = field(compare=False)
    body: Body
    apart: bool = False
    says: tuple[str, ...] = field(default=(), compare=False)
    function: Function | None = field(default=None, compare=False)

    def lines(self) -> list[str]:
        where = f" as {self.function}" if self.function else ""
        return [f"-- {self.title}" + (f", apart{where}" if self.apart else ""),
                *text_of(self.body)]


def bodies(stmt: object) -> Iterator[tuple[str, Body]]:
    """(field, body) of the bodies inside a statement."""
    if is_dataclass(stmt):
        for f in fields(stmt):
            value = getattr(stmt, f.name)
            if isinstance(value, tuple) and value and isinstance(value[0], Stmt):
                yield f.name, value


def without_bodies(stmt: Stmt) -> Stmt:
    """The statement with nothing inside."""
    return with_bodies(stmt, {name: () for name, _ in bodies(stmt)})


def ranges_in(value: object) -> Iterator[Range]:
    """Every Range in a statement, or a tuple of them."""
    if isinstance(value, Range):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from ranges_in(v)
    elif is_dataclass(value) and not isinstance(value, Expr):
        for f in fields(value):
            yield from ranges_in(getattr(value, f.name))


def bound_axes(stmt: Stmt) -> list[Axis]:
    """The axes that a statement binds, not those that its bodies do."""
    own = getattr(stmt, "axis", getattr(stmt, "var", None))
    if own is None:
        return [r.axis for r in ranges_in(without_bodies(stmt))]
    return [own] if isinstance(own, Axis) else []


def with_bodies(stmt: Stmt, new: Mapping[str, Body]) -> Stmt:
    """The statement with other bodies in the fields of those names."""
    return replace(stmt, **new) if new else stmt  # type: ignore[type-var]


def walk_body(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement of a body, outer ones first."""
    for s in body:
        yield s
        for _, inner in bodies(s):
            yield from walk_body(inner)

"""Schedule: how a Program runs, every decision as plain data.  JSON in, JSON out, hashable.

    schedule = Schedule(target, rewrites, groups, layouts, buffers, variants)
    group    = Group(name, computes, outputs, anchor, connect, tile, ukernel, loops, parallel, ...)

A group is one kernel.  ``computes`` are named by their first output buffer, in order.
``connect`` gives each edge inside the group (the buffer that flows over it) its level:
``register`` (the producer is inlined into the consumer's loops: an epilogue or a prologue), or the
name of a memory of the target's machine that scratch may be in, such as ``L1`` or ``L2`` (the
producer is a stage of its own, its tile lives in the worker's slab).
``outputs`` are stored.  ``anchor`` is the stage whose axes the ``tile`` cuts; all other boxes
follow from what is read.  ``ukernel`` names the micro-kernel row of each stage, ``loops`` its
loop choices: ``lanes`` (the axis that runs over vector lanes) and, for a contraction, ``k`` (the
innermost reduction axis) and how the operands are read: ``a`` is ``rows`` (in place, row pointers)
or ``packed``; ``b`` is ``panel`` (packed at compile time), ``direct`` or ``packed``; and how its
statements are written (``CHOICES``).
"""

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from textwrap import wrap
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Rewrite
from aotc.json_text import read_json

REGISTER = "register"  # the level of an edge whose producer is inlined
REUSE = ("recompute", "slide")
MATH = ("fast", "exact")
OPTIMIZE = ("speed", "size")
PRECISION = ("f32", "bf16", "f16", "int8w", "int4w")  # of the operands of products; sums are f32
MIXED = "mixed"  # of a Schedule whose products have several: its rewrites say which
WEIGHT_BITS = {"int8w": 8, "int4w": 4}  # of constant weights alone, in groups
CONNECT = ("none", REGISTER, "all")  # which edges stay inside a kernel
GRAPHTURBO = "graphturbo"  # or the sub-graphs of that system's rules do, on machines with clusters
WINOGRAD_TILES = (2, 4, 6)  # outputs per tile and axis
# by cost and errors; none; or the most outputs per tile and axis, whatever the rounding errors
WINOGRAD = ("auto", "off", *WINOGRAD_TILES)
VERSION = 1
WIDTH = 100  # of a line of its text

Loops = dict[str, Any]  # a stage's choices: names and numbers, each as its row reads it


# How a stage's statements are written: what a Schedule may say beyond a row's own choices.
#
#     order           "columns": panels of columns are the outermost loop of a product; "rows"
#     apart           1: the stage has a function of its own beside others of its kernel
#     fetch_epilogue  1: what an epilogue reads and stores is fetched before its tile's sums
#     fetch_panel     1: row tiles fetch the next panel of columns
#     fetch_tiles     register tiles that short rows of a product are fetched ahead (0: none are)
#     fetch_rows      rows that pieces of pixels are fetched ahead (0: none are)
#     tails           1: the last rows of a number that is not known have smaller register tiles;
#                     2: and one row alone has a tile of its own
#     reread          vectors of a product's columns that have no register: every multiply-add reads
#                     them again
#     unroll          steps of a product's sum that are written out, where vectors have any length
#     registers       registers of one vector value at most, where vectors have any length: as many
#                     as the lanes fill
#     block_registers the same in a block of a window's outputs
#     copied_run      bytes side by side from which on a row of narrow numbers is packed by copies
#     quotients       1: a loop over an axis at whose quotients and remainders elements lie is one
#                     over quotients around one over remainders
#     lookup_rows     rows that places in a table, which data says, are fetched ahead (0: none are)
#     lookup_lines    cache lines of such a row that are fetched
#     columns         vectors of a fold, or of what follows the sums of narrow numbers, that stand
#                     side by side (1: one after the other)
#     ahead           f32 elements that a window's blocks are fetched ahead (0: none are)
#     stages          steps of a product in the memory of a block of threads, the one that is
#                     multiplied among them
#     a_fetch         how A's elements come to that memory: "copy": as they are, while the threads
#                     go on; "value": each is computed, or loaded, into a register first
#     a_width         elements that are fetched at once
#     a_along         whose neighbours neighbouring threads fetch: those of the "sum" or the "rows"
#     b_fetch, b_width, b_along   the same of B's; along the "sum" or the "columns"
#     team            warps that fold a row together, in a block of threads
#
# What a Schedule leaves out, ``sched.writing`` chooses before it is lowered.
Writing = tuple[tuple[str, int | str], ...]  # (choice, value) in the order of CHOICES
Turn = tuple[str, int, int]  # (group, first of a cluster's own work items, end)
When = dict[str, tuple[int, int | None]]  # symbol -> lowest and highest extent; None: no end

# choice -> its texts, or the least and the largest number
CHOICES: dict[str, tuple[str, ...] | tuple[int, int]] = {
    "order": ("columns", "rows"), "apart": (0, 1), "fetch_epilogue": (0, 1),
    "fetch_panel": (0, 1), "fetch_tiles": (0, 64), "fetch_rows": (0, 1024), "tails": (0, 2),
    "reread": (0, 8), "unroll": (1, 8),
    "registers": (1, 8), "block_registers": (1, 8), "copied_run": (1, 1 << 12),
    "quotients": (0, 1), "lookup_rows": (0, 1024), "lookup_lines": (1, 1024),
    "columns": (1, 16), "ahead": (0, 1 << 20),
    "stages": (1, 8), "a_fetch": ("copy", "value"), "a_width": (1, 4), "a_along": ("sum", "rows"),
    "b_fetch": ("copy", "value"), "b_width": (1, 4), "b_along": ("columns", "sum"),
    "team": (1, 32)}
PRODUCT = ("order", "apart", "fetch_epilogue", "fetch_panel", "fetch_tiles", "fetch_rows",
           "tails", "reread", "unroll", "registers")
LOOKUPS = ("lookup_rows", "lookup_lines")
NEST = ("quotients", *LOOKUPS, "registers")
FOLD = (*NEST, "block_registers", "columns", "ahead")
# what may be said where threads share a work item
FETCHES = ("a_fetch", "a_width", "a_along", "b_fetch", "b_width", "b_along")
SHARED_PRODUCT, SHARED_FOLD = ("order", "stages", *FETCHES), ("team",)


def writing_of(loops: Mapping[str, int | str]) -> Writing:
    """The choices among what a Schedule says of a stage's loops."""
    return tuple((k, loops[k]) for k in CHOICES if k in loops)


def without_writing(group: "Group") -> "Group":
    """A group whose stages say nothing of how their statements are written."""
    return replace(group, loops={s: {k: v for k, v in c.items() if k not in CHOICES}
                                 for s, c in group.loops.items()})


def writing_faults(loops: Mapping[str, int | str]) -> list[str]:
    """Values that a choice cannot have."""
    faults = []
    for key, value in writing_of(loops):
        known = CHOICES[key]
        if isinstance(known[0], str):
            good = value in known
            legal = " or ".join(map(str, known))
        else:
            low, high = known
            good = isinstance(value, int) and int(low) <= value <= int(high)
            legal = f"{low} to {high}"
        if not good:
            faults.append(f"{key} {value!r}; choose {legal}")
    return faults


@dataclass(frozen=True)
class Group:
    """One kernel.  ``tile``: {axis of the anchor: extent of the box one work item computes} (an
    axis not named is whole); ``parallel``: axes whose tiles are spread over the workers, outermost
    first; ``split``: {stage: {reduction axis: extent}} (reduction split); ``run``: {axis: extent},
    a work item computes so much of a tiled axis, in steps of its tile, one after the other;
    ``balance``: {axis: step}, a call that has fewer work items than workers, or no multiple of them
    along this axis, has more and smaller ones along it, as equal as whole steps allow;
    ``reuse``: {stage: "recompute" | "slide"}, slide keeps what the next step of a run reads again
    instead of computing it twice; ``threads``: of one work item, on machines whose work items are
    blocks of threads (0 = none); ``copies``: {buffer: the memory that its box lies in while a work
    item computes}, on machines with engines that copy: that of scratch, or the outermost, where a
    work item reaches its elements one by one (a buffer not named: so, too); ``clusters``: its work
    items are dealt to so many, the first ones, as equal runs (0: to all there are); ``pipeline``:
    of a run, boxes of a tensor that differ from step to step have so many places in scratch, and
    those of the next step are copied while one is computed (2; 0: they are not); ``why`` is for
    readers and is not hashed."""

    name: str
    computes: tuple[str, ...]
    outputs: tuple[str, ...]
    anchor: str
    connect: dict[str, str] = field(default_factory=dict, hash=False)
    tile: dict[str, int] = field(default_factory=dict, hash=False)
    ukernel: dict[str, str] = field(default_factory=dict, hash=False)
    loops: dict[str, Loops] = field(default_factory=dict, hash=False)
    parallel: tuple[str, ...] = ()
    split: dict[str, dict[str, int]] = field(default_factory=dict, hash=False)
    run: dict[str, int] = field(default_factory=dict, hash=False)
    reuse: dict[str, str] = field(default_factory=dict, hash=False)
    copies: dict[str, str] = field(default_factory=dict, hash=False)
    why: str = ""
    threads: int = 0
    clusters: int = 0
    pipeline: int = 0
    balance: dict[str, int] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        tile = ", ".join(f"{a}/{t}" for a, t in self.tile.items()) or "whole"
        tile += "".join(f" run {a}/{n}" for a, n in self.run.items())
        tile += "".join(f" balance {a}/{n}" for a, n in self.balance.items())
        rows = ", ".join(dict.fromkeys(self.ukernel.values()))
        return f"group {self.name}: {rows}  {tile}  parallel {', '.join(self.parallel) or '-'}" \
               f"  -> {', '.join(self.outputs)}"


def code_of(group: Group) -> Hashable:
    """Every decision of a group, in whatever order it was taken: its code, beside what its computes
    and the layouts around them say."""
    return json.dumps(asdict(replace(group, why="", name="")), sort_keys=True)


@dataclass(frozen=True)
class Slot:
    """Arena place of a stored temp: slot number and byte offset inside it.  With ``span`` n it
    takes n slots from ``slot`` on, which lie one behind the other, an n-th of it in each.
    ``memory``: where slots stand for a memory that each cluster of workers, or each worker, has
    one of: its name ("" elsewhere); of ``parts`` equal parts along the outermost dimension, the
    n-th is on cluster n, or with the worker that work item n of every group that touches it runs
    on, each at ``offset``.  ``each``: so many clusters or workers have room for a part (0: as many
    as there are parts); of a constant, so many clusters have all of it, whose copies begin when
    the group ``since`` does ("": when the first one does that reads it).  ``ring``: of a temp in
    clusters' memories, each has room for so many indices of the outermost dimension (of more than
    one) at a time, index i at i modulo ``ring``; 0: for its whole part."""

    slot: int
    offset: int = 0
    span: int = 1
    memory: str = ""
    parts: int = 1
    each: int = 0
    since: str = ""
    ring: int = 0

    @property
    def holders(self) -> int:
        """Clusters or workers that have room for a part."""
        return self.each or self.parts


def show_when(when: Mapping[str, tuple[int, int | None]]) -> str:
    """``seq 1..64, batch 1..``; an extent that is one number as that."""
    return ", ".join(f"{n} {lo}" if lo == hi else f"{n} {lo}..{'' if hi is None else hi}"
                     for n, (lo, hi) in when.items())


@dataclass(frozen=True)
class Variant:
    """Another ``schedule`` for calls whose extents lie in the box ``when``; symbols that it does
    not name may have any.  ``why`` is for readers and is not hashed."""

    when: When = field(hash=False)
    schedule: "Schedule"
    why: str = ""

    def __str__(self) -> str:
        lines = str(self.schedule).splitlines()[1:]
        return "\n".join([f"  when {show_when(self.when)}:", *(f"  {line}" for line in lines)])


@dataclass(frozen=True)
class Schedule:
    """``layouts``: stored buffer or weight -> tuple of layout primitives as JSON values (see
    layout.py; missing = row-major).  ``buffers``: temp -> Slot.  ``rewrites``: (rule, compute,
    parameters) applied to the Program in order before the groups are read.  ``regions``: region ->
    the Schedule of each of its bodies, whose slots come behind those of the whole.
    ``order``: (group, first, end) turns, in which of its work items each cluster runs those of its
    own from number first to end - 1; empty: every group in order, with all of them.
    ``variants``: of those whose ``when`` holds for the extents of a call the first one runs, and
    this Schedule where there is none; target, math, optimize and precision are the same in all.
    ``math``: "exact" calls libm where "fast" has polynomials of its own; ``optimize``: what the C
    compiler is asked for, "speed" or "size"; ``precision``: what the operands of products were
    rounded to, of which ``rewrites`` names each. JSON holds any of them only where it differs from
    the default."""

    target: str
    groups: tuple[Group, ...]
    layouts: dict[str, LayoutJson] = field(default_factory=dict, hash=False)
    buffers: dict[str, Slot] = field(default_factory=dict, hash=False)
    rewrites: tuple[Rewrite, ...] = field(default=(), hash=False)
    regions: "dict[str, tuple[Schedule, ...]]" = field(default_factory=dict, hash=False)
    version: int = VERSION
    math: str = MATH[0]
    optimize: str = OPTIMIZE[0]
    precision: str = PRECISION[0]
    variants: tuple[Variant, ...] = ()
    order: tuple[Turn, ...] = ()

    def to_json(self) -> str:
        """Plain JSON text, stable to the byte."""
        return json_lines(_plain(self)) + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> "Schedule":
        """Inverse of ``to_json``.  ScheduleError on anything that is not such a text."""
        try:
            data = read_json(text)
        except ValueError as err:
            raise ScheduleError(f"schedule: not JSON: {err}") from None
        return _read(data)

    @property
    def hash(self) -> str:
        """SHA-256 over every decision, without the ``why`` texts."""
        return hashlib.sha256(_bare(self).to_json().encode()).hexdigest()

    @property
    def base(self) -> "Schedule":
        """What runs where no variant does."""
        return replace(self, variants=())

    @property
    def computes(self) -> frozenset[str]:
        """The computes of all groups, those of variants and of bodies of regions, too."""
        inner = (*(v.schedule for v in self.variants),
                 *(s for bodies in self.regions.values() for s in bodies))
        return frozenset(c for g in self.groups for c in g.computes).union(
            *(s.computes for s in inner))

    def __str__(self) -> str:
        lines = [f"schedule for {self.target}"]
        for g in self.groups:
            lines.append(f"  {g}")
            for c in g.computes:
                lines.append(f"    {c}" + (f"  [{g.connect[c]}]" if c in g.connect else ""))
                said = ", ".join(f"{k} {v}" for k, v in writing_of(g.loops.get(c, {})))
                lines += wrap(said, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
            lines += [f"    in {m}: {', '.join(b for b in g.copies if g.copies[b] == m)}"
                      for m in dict.fromkeys(g.copies.values())]
        for name, bodies in self.regions.items():
            for body in bodies:
                lines.append(f"  region {name}:")
                lines += [f"  {line}" for line in str(body).splitlines()[1:]]
        return "\n".join([*lines, *map(str, self.variants)])


def json_lines(value: Any, indent: int = 0) -> str:
    """JSON text in which items that hold no others share lines."""
    if not isinstance(value, (list, tuple, dict)) or not value:
        return json.dumps(value)
    pairs = [(f"{json.dumps(k)}: ", v) for k, v in value.items()] if isinstance(
        value, dict) else [("", v) for v in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    flat = json.dumps(value)
    if flat.count("{") == isinstance(value, dict) and len(flat) + indent <= WIDTH:
        return flat
    pad, lines = " " * (indent + 1), list[str]()
    for i, (key, v) in enumerate(pairs):
        item = key + json_lines(v, indent + 1) + ("," if i < len(pairs) - 1 else "")
        plain = not isinstance(v, (list, tuple, dict))
        if lines and plain and lines[-1].endswith(",") and len(lines[-1]) + len(item) < WIDTH and (
                not isinstance(pairs[i - 1][1], (list, tuple, dict))):
            lines[-1] += f" {item}"
        else:
            lines.append(pad + item)
    return "\n".join([first, *lines, " " * indent + last])


def _plain(schedule: Schedule) -> dict[str, Any]:
    """A Schedule as JSON values, without what is as it would be anyway."""
    data = asdict(replace(schedule, regions={}, variants=()))
    data["groups"] = [_drop_empty(g) for g in data["groups"]]
    for place in data["buffers"].values():
        for key, usual in _USUAL.items():
            if place[key] == usual:
                del place[key]
    for key, values in _CHOICES.items():
        if data[key] == values[0]:
            del data[key]
    del data["regions"], data["variants"]
    if not schedule.order:
        del data["order"]
    if schedule.variants:
        data["variants"] = [_plain_variant(v) for v in schedule.variants]
    if schedule.regions:
        data["regions"] = {name: [_plain(s) for s in bodies]
                           for name, bodies in schedule.regions.items()}
    return data


def _plain_variant(variant: Variant) -> dict[str, Any]:
    """A Variant as JSON values, without what it has from the Schedule around it."""
    own = _plain(variant.schedule)
    return {"when": {n: list(r) for n, r in variant.when.items()},
            **({"why": variant.why} if variant.why else {}),
            "schedule": {k: v for k, v in own.items() if k not in _OF_ALL}}


def _bare(schedule: Schedule) -> Schedule:
    """The Schedule without what is for readers."""
    return replace(schedule, groups=tuple(replace(g, why="") for g in schedule.groups),
                   variants=tuple(replace(v, schedule=_bare(v.schedule), why="")
                                  for v in schedule.variants),
                   regions={name: tuple(map(_bare, bodies))
                            for name, bodies in schedule.regions.items()})


def _drop_empty(group: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in group.items() if v not in ((), [], {}, "", 0)}


_CHOICES = {"math": MATH, "optimize": OPTIMIZE, "precision": (*PRECISION, MIXED)}
_GROUP_KEYS = {"name": str, "computes": list, "outputs": list, "anchor": str, "connect": dict,
               "tile": dict, "ukernel": dict, "loops": dict, "parallel": list, "split": dict,
               "run": dict, "balance": dict, "reuse": dict, "copies": dict, "why": str,
               "threads": int, "clusters": int, "pipeline": int}
# what the items of a group's lists and objects are (a tile's extent is checked with its axis)
_ITEMS = {"computes": str, "outputs": str, "parallel": str, "connect": str, "ukernel": str,
          "loops": dict, "split": dict, "reuse": str, "copies": str}
_KEYS = {"target": str, "groups": list, "layouts": dict, "buffers": dict, "rewrites": list,
         "version": int, "math": str, "optimize": str, "precision": str, "regions": dict,
         "variants": list, "order": list,
         "summary": dict}  # summary: for readers, means nothing here
_OF_ALL = ("target", "version", *_CHOICES)  # the same in all variants
_VARIANT_KEYS = {"when": dict, "why": str, "schedule": dict}
_SLOT_KEYS = {"slot": int, "offset": int, "span": int, "memory": str, "parts": int, "each": int,
              "since": str, "ring": int}
_USUAL = {"span": 1, "memory": "", "parts": 1, "each": 0, "since": "", "ring": 0}  # of a slot


def _read(data: Any) -> Schedule:
    faults = _faulty_keys("schedule", data, _KEYS, ("target", "groups"))
    if not faults:
        for i, g in enumerate(data["groups"]):
            faults += _faulty_keys(f"groups[{i}]", g, _GROUP_KEYS,
                                   ("name", "computes", "outputs", "anchor"))
            if not faults:
                faults += [f for k in _ITEMS if k in g for f in _faulty_items(
                    f"groups[{i}].{k}", g[k], _ITEMS[k])]
        for name, s in data.get("buffers", {}).items():
            faults += _faulty_keys(f"buffers[{name}]", s, _SLOT_KEYS, ("slot",))
        for field, kind in (("layouts", list), ("rewrites", list), ("regions", list)):
            faults += _faulty_items(field, data.get(field, []), kind)
        faults += [f"schedule.{k}: {data[k]!r}; choose one of {', '.join(v)}"
                   for k, v in _CHOICES.items() if data.get(k, v[0]) not in v]
        faults += [f"order[{i}]: {t!r}; write a group, its first work item and the end"
                   for i, t in enumerate(data.get("order", ())) if not (
                       isinstance(t, list) and list(map(type, t)) == [str, int, int])]
        faults += [f for i, v in enumerate(data.get("variants", ())) for f in _faulty_variant(
            f"variants[{i}]", v)]
        if data.get("version", VERSION) != VERSION:
            faults.append(f"schedule: version {data['version']}, this aotc reads {VERSION}")
    if faults:
        raise ScheduleError(faults)
    groups = tuple(Group(**{k: _frozen(v) for k, v in g.items()}) for g in data["groups"])
    return Schedule(data["target"], groups,
                    {k: _frozen(v) for k, v in data.get("layouts", {}).items()},
                    {k: Slot(**v) for k, v in data.get("buffers", {}).items()},
                    tuple(_frozen(v) for v in data.get("rewrites", [])),
                    {k: tuple(map(_read, v)) for k, v in data.get("regions", {}).items()},
                    **{k: data[k] for k in _CHOICES if k in data},
                    variants=tuple(_variant(i, v, data)
                                   for i, v in enumerate(data.get("variants", ()))),
                    order=_frozen(data.get("order", [])))


def _variant(number: int, data: Mapping[str, Any], whole: Mapping[str, Any]) -> Variant:
    """A Variant of the Schedule ``whole``."""
    own = {"groups": [], **data.get("schedule", {}), **{k: whole[k] for k in _OF_ALL if k in whole}}
    try:
        schedule = _read(own)
    except ScheduleError as err:
        raise ScheduleError([f"variants[{number}]: {f}" for f in err.faults]) from None
    return Variant({k: _frozen(v) for k, v in data["when"].items()}, schedule, data.get("why", ""))


def _faulty_variant(where: str, data: Any) -> list[str]:
    faults = _faulty_keys(where, data, _VARIANT_KEYS, ("when",))
    if faults:
        return faults
    for name, ends in data["when"].items():
        if not (isinstance(ends, list) and len(ends) == 2 and type(ends[0]) is int
                and (ends[1] is None or type(ends[1]) is int)):
            faults.append(f"{where}.when[{name}]: {ends!r}; write the lowest and the highest "
                          "extent, [1, 64], or [65, null] without an end")
    return faults + [f"{where}.schedule.{k}: a variant has none of its own; it is that of the "
                     "whole schedule" for k in (*_OF_ALL, "variants")
                     if k in data.get("schedule", {})]


def _frozen(v: Any) -> Any:
    if isinstance(v, dict):
        return {k: _frozen(x) for k, x in v.items()}
    return tuple(_frozen(x) for x in v) if isinstance(v, list) else v


def _faulty_items(where: str, items: Any, kind: type) -> list[str]:
    """Faults of a list's or an object's items."""
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    faults = [f"{where}[{k}]: expected {kind.__name__}, got {type(v).__name__}"
              for k, v in pairs if not isinstance(v, kind)]
    if kind is dict and not faults:  # a stage's choices: names and numbers
        faults = [f"{where}[{k}].{c}: expected a name or an integer, got {type(x).__name__}"
                  for k, v in items.items() for c, x in v.items()
                  if not isinstance(x, (str, int))]
    return faults


def _faulty_keys(where: str, data: object, known: Mapping[str, type],
                 needed: Iterable[str]) -> list[str]:
    if not isinstance(data, dict):
        return [f"{where}: expected an object, got {type(data).__name__}"]
    faults = [f"{where}: unknown field {k!r}; known: {', '.join(known)}"
              for k in data if k not in known]
    faults += [f"{where}: field {k!r} is missing" for k in needed if k not in data]
    faults += [f"{where}.{k}: expected {known[k].__name__}, got {type(v).__name__}"
               for k, v in data.items() if k in known and not isinstance(v, known[k])]
    return faults

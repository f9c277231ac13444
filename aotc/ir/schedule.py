"""Schedule: how a Program runs, every decision as plain data.  JSON in, JSON out, hashable.

    schedule = Schedule(target, rewrites, groups, layouts, buffers, variants)
    group    = Group(name, computes, outputs, anchor, connect, tile, choices, parallel, ...)

A group is one kernel.  ``computes`` are named by their first output buffer, in order.
``connect`` gives each edge inside the group (the buffer that flows over it) its level:
``register`` (the producer is inlined into the consumer's loops: an epilogue or a prologue),
``stream`` (blocks of it are in registers: ``sched/rows/stream_stages.py``), or the name of a memory
of the target's machine that scratch may be in, such as ``L1`` or ``L2`` (the producer is a stage of
its own, its tile lives in the worker's slab).
``outputs`` are stored.  ``anchor`` is the stage whose axes the ``tile`` cuts; all other boxes
follow from what is read.  ``choices`` has of each stage what is chosen of it alone
(``ir/stage_choice.py``): its micro-kernel row, the axis over lanes, how operands are read, how its
statements are written.  JSON has them in tables, ``{stage: ..}`` each: ``ukernel``, ``loops``,
``split``, ``reuse``.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from textwrap import wrap
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Rewrite
from aotc.ir.stage_choice import FIELDS, LOOPS, TABLES, UNSAID, StageChoice
from aotc.json_text import (
    faulty_items,
    faulty_keys,
    freeze_json,
    item_kinds,
    json_kinds,
    read_json,
)

REGISTER = "register"  # the level of an edge whose producer is inlined
STREAM = "stream"  # of one whose blocks are made, read and forgotten one after the other
MATH = ("fast", "exact")
OPTIMIZE = ("speed", "size")
PRECISION = ("f32", "tf32", "bf16", "f16", "int8w", "int4w")  # of products' operands; sums are f32
MIXED = "mixed"  # of a Schedule whose products have several: its rewrites say which
WEIGHT_BITS = {"int8w": 8, "int4w": 4}  # of constant weights alone, in groups
CONNECT = ("none", REGISTER, "all")  # which edges stay inside a kernel
GRAPHTURBO = "graphturbo"  # or the sub-graphs of that system's rules do, on machines with clusters
WINOGRAD_TILES = (2, 4, 6)  # outputs per tile and axis
# by cost and errors; none; or the most outputs per tile and axis, whatever the rounding errors
WINOGRAD = ("auto", "off", *WINOGRAD_TILES)
SHARED, APART = SCRATCH = ("shared", "apart")  # places of a work item's buffers of scratch
ITEM_FIELDS = (  # of a Group
    "tile", "flat", "parallel", "patch", "run", "balance", "copies", "clusters", "scratch")
VERSION = 1
WIDTH = 100  # of a line of its text

Turn = tuple[str, int, int]  # (group, first of a cluster's own work items, end)
When = dict[str, tuple[int, int | None]]  # symbol -> lowest and highest extent; None: no end

@dataclass(frozen=True)
class Group:
    """One kernel.  ``tile``: {axis of the anchor: extent of the box one work item computes} (an
    axis not named is whole); ``parallel``: axes whose tiles are spread over the workers, outermost
    first; ``choices``: {stage: what is chosen of it alone}; ``run``: {axis: extent}, a work item
    computes so much of a tiled axis, in steps of its tile, one after the other;
    ``flat``: axes of the rows of a product, alone in its group, that are counted through as one,
    whose name is theirs with ``_`` between them, so that work items have consecutive rows;
    ``patch``: {axis: n}, of the two innermost cut axes work items go n tiles along this one, then a
    step along the other, so that those at work at a time lie in a square; n divides its tiles;
    ``balance``: {axis: step}, a call that has fewer work items than workers, or no multiple of them
    along this axis, has more and smaller ones along it, as equal as whole steps allow;
    ``threads``: of one work item, on machines whose work items are blocks of threads (0 = none);
    ``copies``: {buffer: the memory that its box lies in while a work item computes}, on machines
    with engines that copy: that of scratch, or the outermost, where a work item reaches its
    elements one by one (a buffer not named: so, too); ``clusters``: its work items are dealt to so
    many, the first ones, as equal runs (0: to all there are); ``pipeline``: of a run, boxes of a
    tensor that differ from step to step have so many places in scratch, and those of the next step
    are copied while one is computed (2; 0: they are not); ``scratch``: buffers of scratch whose
    lives do not meet take each other's places, which makes the slab smaller (``shared``), or lie
    one behind the other, which is easier to read (``apart``; "": it is chosen, with how statements
    are written, where it makes a difference); ``why`` is for readers and is not hashed."""

    name: str
    computes: tuple[str, ...]
    outputs: tuple[str, ...]
    anchor: str
    connect: dict[str, str] = field(default_factory=dict, hash=False)
    tile: dict[str, int] = field(default_factory=dict, hash=False)
    choices: dict[str, StageChoice] = field(default_factory=dict, hash=False)
    parallel: tuple[str, ...] = ()
    run: dict[str, int] = field(default_factory=dict, hash=False)
    copies: dict[str, str] = field(default_factory=dict, hash=False)
    why: str = ""
    threads: int = 0
    clusters: int = 0
    pipeline: int = 0
    balance: dict[str, int] = field(default_factory=dict, hash=False)
    scratch: str = ""
    flat: tuple[str, ...] = ()
    patch: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def flat_axis(self) -> str:
        """Name of the axis that ``flat`` counts through."""
        return "_".join(self.flat)

    @property
    def by_axes(self) -> "Group":
        """The group as it is without ``flat``: its anchor has axes of their own again."""
        return replace(self, flat=(), tile={}, parallel=(), patch={})

    def choice(self, stage: str) -> StageChoice:
        """What is chosen of a stage: of one that is not named, nothing."""
        return self.choices.get(stage, UNSAID)

    def saying(self, new: Callable[[StageChoice], StageChoice]) -> "Group":
        """The group with ``new(choice)`` of every stage."""
        return replace(self, choices={s: new(c) for s, c in self.choices.items()})

    @cached_property
    def rows(self) -> dict[str, str]:
        """{stage: its micro-kernel row}, of stages that have one."""
        return {s: c.row for s, c in self.choices.items() if c.row}

    @cached_property
    def splits(self) -> dict[str, Mapping[str, int]]:
        """{stage: steps of its sum by axis}, of stages whose sums run in slices."""
        return {s: c.split for s, c in self.choices.items() if c.split}

    @cached_property
    def reuses(self) -> dict[str, str]:
        """{stage: what it does in a run with what the next step reads}, where that is said."""
        return {s: c.reuse for s, c in self.choices.items() if c.reuse}

    @property
    def bare(self) -> "Group":
        """The group that says nothing of how its scratch lies and its statements are written."""
        return replace(self.saying(lambda c: c.bare), scratch="")

    @property
    def slices(self) -> dict[str, StageChoice]:
        """What stays of ``choices`` when others are its computes: sums in slices."""
        return {s: StageChoice(split=split) for s, split in self.splits.items()}

    def with_splits(self, splits: Mapping[str, Mapping[str, int]]) -> "Group":
        """The group with sums in these slices alone: {stage: steps by axis}."""
        if splits == self.splits:
            return self
        return replace(self, choices=self.choices | {
            s: replace(self.choice(s), split=splits.get(s, {}))
            for s in dict.fromkeys((*self.splits, *splits))})

    def with_reuses(self, reuses: Mapping[str, str]) -> "Group":
        """The group with these stages alone said to do something with what the next step reads."""
        return replace(self, choices=self.choices | {
            s: replace(self.choice(s), reuse=reuses.get(s, ""))
            for s in dict.fromkeys((*self.reuses, *reuses))})

    def __str__(self) -> str:
        tile = ", ".join(f"{a}/{t}" for a, t in self.tile.items()) or "whole"
        tile += "".join(f" run {a}/{n}" for a, n in self.run.items())
        tile += "".join(f" balance {a}/{n}" for a, n in self.balance.items())
        rows = ", ".join(dict.fromkeys(self.rows.values()))
        scratch = f"  scratch {self.scratch}" if self.scratch else ""
        return f"group {self.name}: {rows}  {tile}  parallel {', '.join(self.parallel) or '-'}" \
               f"{scratch}  -> {', '.join(self.outputs)}"


def code_of(group: Group) -> Hashable:
    """Every decision of a group, in whatever order it was taken: its code, beside what its computes
    and the layouts around them say."""
    return json.dumps(_plain_group(replace(group, why="", name="")), sort_keys=True)


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
    offset: int = field(default=0, metadata={"always": True})  # JSON has it
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
    math: str = field(default=MATH[0], metadata={"legal": MATH})
    optimize: str = field(default=OPTIMIZE[0], metadata={"legal": OPTIMIZE})
    precision: str = field(default=PRECISION[0], metadata={"legal": (*PRECISION, MIXED)})
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
                said = ", ".join(f"{k} {v}" for k, v in g.choice(c).text.said.items())
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
    data = {"target": schedule.target, "groups": [_plain_group(g) for g in schedule.groups],
            "layouts": schedule.layouts,
            "buffers": {b: _plain_slot(x) for b, x in schedule.buffers.items()},
            "rewrites": schedule.rewrites, "version": schedule.version}
    data |= {f.name: getattr(schedule, f.name) for f in fields(Schedule)
             if "legal" in f.metadata and getattr(schedule, f.name) != f.default}
    if schedule.order:
        data["order"] = schedule.order
    if schedule.variants:
        data["variants"] = [_plain_variant(v) for v in schedule.variants]
    if schedule.regions:
        data["regions"] = {name: [_plain(s) for s in bodies]
                           for name, bodies in schedule.regions.items()}
    return data


def _plain_group(group: Group) -> dict[str, Any]:
    """A Group as JSON values, what is chosen of stages in tables."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    for stage, choice in group.choices.items():
        for table, value in choice.tables():
            tables[table][stage] = value
    data = tables | {f.name: getattr(group, f.name) for f in fields(Group) if f.name != "choices"}
    return {k: data[k] for k in _GROUP_KEYS if data[k] not in ((), {}, "", 0)}


def _plain_slot(place: Slot) -> dict[str, Any]:
    return {f.name: value for f in fields(Slot) for value in (getattr(place, f.name),)
            if f.default is MISSING or f.metadata.get("always") or value != f.default}


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


def _group_keys() -> dict[str, type]:
    """{key of a group's JSON: what its value must be}, in their order: tables of what is chosen of
    stages stand where groups have had them."""
    before = {"parallel": TABLES[:2], "run": TABLES[2:3], "copies": TABLES[3:]}
    kinds = {k: v for k, v in json_kinds(Group).items() if k != "choices"}
    return {key: kinds.get(key, dict) for k in kinds for key in (*before.get(k, ()), k)}


_ONE_OF = {f.name: f.metadata["legal"] for f in fields(Schedule) if "legal" in f.metadata}
_OF_ALL = ("target", "version", *_ONE_OF)  # the same in all variants
_GROUP_KEYS = _group_keys()
_ITEMS = {k: v for k, v in item_kinds(Group).items() if k != "choices"} | {
    f.metadata["table"]: dict if f.metadata["table"] == "loops" else json_kinds(StageChoice)[name]
    for name, f in FIELDS.items()}
_FIELD_OF = {f.metadata["table"]: name for name, f in FIELDS.items()}  # of tables of one choice


def _read(data: Any) -> Schedule:
    known = json_kinds(Schedule) | {"summary": dict}  # which is for readers and means nothing here
    faults = faulty_keys("schedule", data, known, ("target", "groups"))
    if not faults:
        for i, g in enumerate(data["groups"]):
            faults += _faulty_group(f"groups[{i}]", g)
        for name, s in data.get("buffers", {}).items():
            faults += faulty_keys(f"buffers[{name}]", s, json_kinds(Slot), ("slot",))
        for key in ("layouts", "rewrites", "regions"):
            faults += faulty_items(key, data.get(key, []), item_kinds(Schedule)[key])
        faults += [f"schedule.{k}: {data[k]!r}; choose one of {', '.join(v)}"
                   for k, v in _ONE_OF.items() if data.get(k, v[0]) not in v]
        faults += [f"order[{i}]: {t!r}; write a group, its first work item and the end"
                   for i, t in enumerate(data.get("order", ())) if not (
                       isinstance(t, list) and list(map(type, t)) == [str, int, int])]
        faults += [f for i, v in enumerate(data.get("variants", ())) for f in _faulty_variant(
            f"variants[{i}]", v)]
        if data.get("version", VERSION) != VERSION:
            faults.append(f"schedule: version {data['version']}, this aotc reads {VERSION}")
    if faults:
        raise ScheduleError(faults)
    groups = tuple(map(_group, data["groups"]))
    return Schedule(data["target"], groups,
                    {k: freeze_json(v) for k, v in data.get("layouts", {}).items()},
                    {k: Slot(**v) for k, v in data.get("buffers", {}).items()},
                    tuple(freeze_json(v) for v in data.get("rewrites", [])),
                    {k: tuple(map(_read, v)) for k, v in data.get("regions", {}).items()},
                    **{k: data[k] for k in _ONE_OF if k in data},
                    variants=tuple(_variant(i, v, data)
                                   for i, v in enumerate(data.get("variants", ()))),
                    order=freeze_json(data.get("order", [])))


def _faulty_group(where: str, data: Any) -> list[str]:
    faults = faulty_keys(where, data, _GROUP_KEYS, ("name", "computes", "outputs", "anchor"))
    faults = faults or [f for k in _ITEMS if k in data for f in faulty_items(
        f"{where}.{k}", data[k], _ITEMS[k])]
    if faults:
        return faults
    said = [(f"{where}.{table}[{s}]", c, x) for table in TABLES if _ITEMS[table] is dict
            for s, found in data.get(table, {}).items() for c, x in found.items()]
    faults = [f"{at}.{c}: expected a name or an integer, got {type(x).__name__}"
              for at, c, x in said if not isinstance(x, (str, int))]
    return faults + [f"{where}.loops[{s}]: no choice is named {c!r}; there are {', '.join(LOOPS)}"
                     for s, found in data.get("loops", {}).items() for c in found if c not in LOOPS]


def _group(data: Mapping[str, Any]) -> Group:
    """A Group of JSON values without faults."""
    choices: dict[str, dict[str, Any]] = {}
    for table in TABLES:
        for stage, value in data.get(table, {}).items():
            choices.setdefault(stage, {}).update(
                value if table == "loops" else {_FIELD_OF[table]: value})
    return Group(**{k: freeze_json(v) for k, v in data.items() if k not in TABLES},
                 choices={s: StageChoice(**c) for s, c in choices.items()})


def _variant(number: int, data: Mapping[str, Any], whole: Mapping[str, Any]) -> Variant:
    """A Variant of the Schedule ``whole``."""
    own = {"groups": [], **data.get("schedule", {}), **{k: whole[k] for k in _OF_ALL if k in whole}}
    try:
        schedule = _read(own)
    except ScheduleError as err:
        raise ScheduleError([f"variants[{number}]: {f}" for f in err.faults]) from None
    return Variant({k: freeze_json(v) for k, v in data["when"].items()}, schedule,
                   data.get("why", ""))


def _faulty_variant(where: str, data: Any) -> list[str]:
    faults = faulty_keys(where, data, json_kinds(Variant) | {"schedule": dict}, ("when",))
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

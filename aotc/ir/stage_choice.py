"""What a Schedule says of one stage of a kernel: a field per choice, with all that is known of it.

Every field says what it chooses and why (``about``), what may be said (``legal``), of stages of
which rows it may be said (``rows``: their categories; ``shared``: the same where threads share a
work item), what the target or the row must have for that (``needs``: a fact of
``sched/check/choices.py``, "" for none) and what the stage itself must do for another value to be
worth trying (``where``), and which others are tried (``tries``, "" for none: both facts of
``tuner/space/knobs.py``).  Reading and writing JSON, checking
values, printing, the tuner's knobs and the table of ``docs/add-a-choice.md`` follow from that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

Value = int | str
Legal = tuple[str, ...] | tuple[int, int]  # its texts, or the least and the largest number

REUSE = ("recompute", "slide")
TABLES = ("ukernel", "loops", "split", "reuse")  # of a group's JSON: {stage: what is chosen}
ALL = ("contraction", "dot", "map", "move", "reduction", "window", "transform", "stream")
PRODUCTS = ("contraction", "dot")
STAGED = (*PRODUCTS, "stream")
MAPS = ("map", "move")
FOLDS = ("reduction", "window")
ANY = (*ALL, "loops")
OWN = ("contraction", *FOLDS)  # rows of these categories have other choices where threads share


def _notes(about: str, legal: Legal | str, rows: tuple[str, ...] = ALL, needs: str = "",
           **other: Any) -> dict[str, Any]:
    """The metadata of a field.  legal: as ``Legal``, or what its value names."""
    return {"about": about, "legal": legal, "rows": rows, "shared": rows, "needs": needs,
            "where": "", "tries": "", "text": False, "table": "loops"} | other


def _walk(about: str, legal: Legal | str, rows: tuple[str, ...], needs: str = "",
          tries: str = "") -> Any:
    """How its row walks a stage: a name, "" where it is left out."""
    return field(default="", metadata=_notes(about, legal, rows, needs, tries=tries))


def _text(about: str, legal: Legal, rows: tuple[str, ...], shared: tuple[str, ...] | None = None,
          needs: str = "", where: str = "") -> Any:
    """How the stage's statements are written, None where it is left out: then
    ``sched.text_choices`` chooses it.  shared: None for ``rows`` without those of ``OWN``."""
    if shared is None:
        shared = tuple(c for c in rows if c not in OWN)
    return field(default=None, metadata=_notes(
        about, legal, rows, needs, shared=shared, where=where, tries="values", text=True))


@dataclass(frozen=True, repr=False)
class StageChoice:
    """What is chosen of a stage.  What is None or empty is left out: it is chosen before the stage
    is lowered, or means nothing there."""

    row: str = field(default="", metadata=_notes(
        "the micro-kernel row that computes the stage; `loops`, the plain nest, is always legal",
        "a row of the target", ANY, table="ukernel", tries="rows"))

    # ------------------------------------------------------------ how its row walks it
    lanes: str = _walk("the axis that runs over vector lanes: the one along which most accesses "
                       "are side by side", "an axis", ALL, tries="axes")
    k: str = _walk("the innermost axis of the sum of a product", "an axis of the sum", STAGED)
    a: str = _walk("how a product reads its rows: where they lie, or copied once per tile; or, of "
                   "a stream, from the sums of its other product", ("rows", "packed", "held"),
                   STAGED, tries="values")
    b: str = _walk("how it reads its columns: packed into panels at compile time, where they lie, "
                   "or copied by each work item", ("panel", "direct", "packed"), STAGED)
    block: str = _walk("the axis whose neighbouring outputs are computed together, because they "
                       "share loads; of an exchange the axis that is written", "an axis", ALL,
                       "blocks", "blocks")
    digits: str = _walk("an axis that loads take apart: the loops run over its digits, along which "
                        "elements are neighbours", "an axis", MAPS)

    # ------------------------------------------------------------ how its statements are written
    order: str | None = _text(
        "which loop of a product is the outermost: that over panels of columns, or that over its "
        "rows, which are then packed once", ("columns", "rows"), PRODUCTS, PRODUCTS)
    sums: str | None = _text(
        "where the epilogue of a product finds the sums of a register tile: written out for each "
        "vector of them, which is much text, or in a loop behind a way through memory, which costs "
        "little beside long sums", ("registers", "memory"), ("contraction",), needs="tiles")
    transposed_rows: int | None = _text(
        "rows, at least, of results that lie across the lanes in memory, which wait in scratch and "
        "are stored by transposed blocks: whole lines (0: each is stored when it is there)",
        (0, 1024), ("contraction",), needs="exchanges", where="across")
    apart: int | None = _text(
        "1: the stage has a function of its own beside others of its kernel, so that its sums "
        "stay in registers", (0, 1), PRODUCTS)
    fetch_epilogue: int | None = _text(
        "1: what an epilogue reads and stores is fetched before its tile's sums", (0, 1),
        ("contraction",))
    fetch_panel: int | None = _text(
        "1: row tiles fetch the next panel of columns", (0, 1), ("contraction",))
    panel_step: int | None = _text(
        "elements of it that each fetches for a step of its sum, at least", (1, 64),
        ("contraction",))
    fetch_tiles: int | None = _text(
        "register tiles that short rows of a product are fetched ahead (0: none are)", (0, 64),
        ("contraction",))
    fetch_rows: int | None = _text(
        "rows that pieces of pixels are fetched ahead (0: none are)", (0, 1024), ("contraction",))
    tails: int | None = _text(
        "1: the last rows of a number that is not known have smaller register tiles; 2: and one "
        "row alone has a tile of its own", (0, 2), ("contraction",))
    reread: int | None = _text(
        "vectors of a product's columns that have no register: every multiply-add reads them "
        "again", (0, 8), ("contraction",), needs="registers")
    unroll: int | None = _text(
        "steps of a product's sum that are written out, where vectors have any length", (1, 8),
        ("contraction",), needs="any length")
    registers: int | None = _text(
        "registers of one vector value at most, where vectors have any length: as many as the "
        "lanes fill", (1, 8), ANY, needs="any length")
    block_registers: int | None = _text(
        "the same in a block of a window's outputs", (1, 8), FOLDS, needs="any length")
    copied_run: int | None = _text(
        "bytes side by side from which on a row of narrow numbers is packed by copies",
        (1, 1 << 12), ("dot",))
    quotients: int | None = _text(
        "1: a loop over an axis at whose quotients and remainders elements lie is one over "
        "quotients around one over remainders, without divisions", (0, 1),
        ("loops", *MAPS, *FOLDS), ())
    lookup_rows: int | None = _text(
        "rows that places in a table, which data says, are fetched ahead (0: none are)", (0, 1024),
        (*MAPS, *FOLDS), (), "prefetches", "lookups")
    lookup_lines: int | None = _text(
        "cache lines of such a row that are fetched: of a longer one the rest is a stream",
        (1, 1024), (*MAPS, *FOLDS), (), "prefetches", "lookups")
    columns: int | None = _text(
        "vectors of a fold, or of what follows the sums of narrow numbers, that stand side by side "
        "(1: one after the other)", (1, 16), ("dot", *FOLDS))
    columns_from: int | None = _text(
        "steps of a fold from which on they do: shorter folds are over before it pays",
        (0, 1 << 20), FOLDS)
    ahead: int | None = _text(
        "f32 elements that a window's blocks are fetched ahead (0: none are)", (0, 1 << 20), FOLDS)
    stages: int | None = _text(
        "steps of a product in the memory of a block of threads, the one that is multiplied among "
        "them", (1, 8), (), STAGED, "staging")
    a_fetch: str | None = _text(
        "how A's elements come to that memory: as they are, while the threads go on, or each "
        "computed, or loaded, into a register first; or they are multiplied in the place where an "
        "earlier stage has left them there", ("copy", "value", "place"), (), STAGED,
        "staging")
    a_width: int | None = _text(
        "elements of A that are fetched at once", (1, 16), (), STAGED, "staging")
    a_along: str | None = _text(
        "whose neighbours neighbouring threads fetch: those of the sum, or of the rows",
        ("sum", "rows"), (), STAGED, "staging")
    b_fetch: str | None = _text(
        "how B's elements come to that memory", ("copy", "value"), (), STAGED, "staging")
    b_width: int | None = _text(
        "elements of B that are fetched at once", (1, 16), (), STAGED, "staging")
    b_along: str | None = _text(
        "whose neighbours neighbouring threads fetch: those of the columns, or of the sum",
        ("columns", "sum"), (), STAGED, "staging")
    team: int | None = _text(
        "threads that fold an element together, or warps where lanes lie along the sum, in a "
        "block of threads", (1, 1024), (), FOLDS)
    neighbours: int | None = _text(
        "neighbours that one thread of a block computes, or reads of a sum, by accesses of up to "
        "16 bytes", (1, 16), (), ("loops", *MAPS, *FOLDS))

    held_rows: int | None = _text(
        "1: threads have rows that several stages of a kernel go over in registers, from one stage "
        "to the next: each element is read once", (0, 1), (), (*MAPS, *FOLDS))

    # ------------------------------------------------------------ sums in slices, steps of a run
    split: Mapping[str, int] = field(default_factory=dict, hash=False, metadata=_notes(
        "steps of axes of its sum that are summed at a time, so that what a slice reads stays in "
        "the cache", "axes of the sum and numbers of steps", PRODUCTS, table="split"))
    reuse: str = field(default="", metadata=_notes(
        "of a stage in a run: every step computes all it reads, or the stage keeps what the next "
        "step reads again", REUSE, ANY, table="reuse"))

    @cached_property
    def said(self) -> dict[str, Value]:
        """{choice of ``loops``: its value}, of those that are not left out."""
        found = ((name, getattr(self, name)) for name in LOOPS)
        return {name: value for name, value in found if value is not None and value != ""}

    @cached_property
    def text(self) -> "StageChoice":
        """Only what is said of how its statements are written."""
        return UNSAID.with_said({k: v for k, v in self.said.items() if k in TEXTS})

    @cached_property
    def bare(self) -> "StageChoice":
        """All but that."""
        none = {k: None for k in self.said if k in TEXTS}
        return self.with_said(none) if none else self

    def with_said(self, said: Mapping[str, Any]) -> "StageChoice":
        """The choice with these values of ``loops``: {name: value}."""
        return replace(self, **said)

    def tables(self) -> Iterator[tuple[str, Any]]:
        """(a table of the group's JSON, what it has of this stage); ``loops`` of every row."""
        for table, value in (("ukernel", self.row), ("loops", self.said),
                             ("split", dict(self.split)), ("reuse", self.reuse)):
            if value or table == "loops" and self.row:
                yield table, value

    def __repr__(self) -> str:
        parts = [repr(self.row)] * bool(self.row) + [f"{k}={v!r}" for k, v in (
            *self.said.items(), ("split", dict(self.split)), ("reuse", self.reuse)) if v != "" and (
                v != {})]
        return f"StageChoice({', '.join(parts)})"


FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(StageChoice)}
LOOPS = tuple(name for name, f in FIELDS.items() if f.metadata["table"] == "loops")
TEXTS: dict[str, Legal] = {
    name: f.metadata["legal"] for name, f in FIELDS.items() if f.metadata["text"]}
UNSAID = StageChoice()


def show_legal(legal: Legal) -> str:
    """``columns or rows``, ``0 to 64``."""
    return (" or " if isinstance(legal[0], str) else " to ").join(map(str, legal))


def is_legal(value: Any, legal: Legal) -> bool:
    """True for one of the texts, or a number between the two."""
    if isinstance(legal[0], str):
        return value in legal
    return isinstance(value, int) and int(legal[0]) <= value <= int(legal[1])


__all__ = ["FIELDS", "LOOPS", "REUSE", "TABLES", "TEXTS", "UNSAID", "Legal", "StageChoice", "Value",
           "is_legal", "show_legal"]

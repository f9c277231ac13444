"""Operators that make strings, on their bytes (``building.characters``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.calls import expect_count
from aotc.frontend.building.characters import (
    byte,
    characters,
    compare_with_table,
    constant,
    lengths,
)
from aotc.frontend.building.declared import Count, room, zero_behind
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.tensors.ops_select import kept_places
from aotc.frontend.ops.tensors.regex import Unread, automaton
from aotc.ir.dtypes import CHARS, INDEX
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Where, compare, maximum, minimum

_SPACES = b" \t\n\v\f\r"
At = Callable[[Expr], Expr]  # a byte by its place


def _all(*conds: Expr) -> Expr:
    out = conds[0]
    for c in conds[1:]:
        out = Binary("and", out, c)
    return out


def _one_if(cond: Expr) -> Expr:
    return Where(cond, Const(1), Const(0))


def _chars(v: Val) -> Val:
    return replace(v, stored=CHARS)


@op("StringConcat", since=20)
def string_concat(node: Node, b: Builder) -> Result:
    x, y = characters(b, 0), characters(b, 1)
    ends, other = lengths(b, x), Val(y.shape[:-1], INDEX, fn=lambda i: Const(0))
    shape = b.broadcast(ends.shape, other.shape)

    def body(i: Index) -> Expr:
        one, two = b.pick(ends, i[:-1], shape), b.pick(other, i[:-1], shape)
        end = b.at(ends, one)
        return Where(compare("lt", i[-1], end), byte(b, x, one, i[-1]),
                     byte(b, y, two, i[-1] - end))
    return _chars(b.map((*shape, x.shape[-1] + y.shape[-1]), body, [x, y]))


@op("RegexFullMatch", since=20)
def regex_full_match(node: Node, b: Builder) -> Result:
    """An automaton takes all texts byte by byte."""
    x = characters(b, 0)
    try:
        found = automaton(node.attr("pattern", ""))
    except Unread as err:
        raise b.unsupported(f"a pattern that is not compiled: {err}",
                            "write it with classes, repetition, alternatives and groups") from None
    lead, (count, kinds) = x.shape[:-1], found.step.shape
    step = b.const(found.step.reshape(-1).astype(np.int16), "next_state")
    kind = b.const(found.kind.astype(np.int16), "kind_of_byte")

    def looked(table: Val, at: Expr, most: int) -> Expr:
        return cast(INDEX, b.load(table, (minimum(maximum(at, Const(0)), Const(most)),)))

    def following(state: Expr, code: Expr) -> Expr:
        row = looked(kind, cast(INDEX, code), 255)
        after = looked(step, state * kinds + row, count * kinds - 1)
        return Where(compare("eq", code, Const(0, "u8")), state, after)
    turned = b.move(x, (x.shape[-1], *lead), lambda i: (*i[1:], i[0]), "bytes")
    axes = b.axes(lead)
    first = b.compute(axes, Const(0), tag="first")
    (state,), _, _ = loop(
        b, "text", x.shape[-1], [first], [(turned, False)], [], lambda _, before, part: (
            [b.map(lead, lambda i: following(b.at(before[0], i), b.at(part[0], i)),
                   [before[0], part[0]], "state")], [], None))
    accepts = b.const(found.accepts.astype(np.int16), "accepts")
    return b.map(lead, lambda i: compare("ne", looked(accepts, b.at(state, i), count - 1),
                                         Const(0)), [state])


# ---------------------------------------------------------------- StringNormalizer

@op("StringNormalizer", since=10)
def string_normalizer(node: Node, b: Builder) -> Result:
    """Without its stop words, of which nothing is left over: then one text of no characters."""
    x, words = characters(b, 0), node.attr("stopwords") or ()
    action = node.attr("case_change_action", "NONE")
    if action not in ("NONE", "LOWER", "UPPER"):
        raise b.bad(f"case_change_action {action!r}")
    rank, n = x.rank - 1, x.shape[-2] if x.rank > 1 else Const(1)
    if rank not in (1, 2) or rank == 2 and x.shape[0] != Const(1):
        raise b.bad(f"a row of strings expected, [C] or [1, C], got rank {rank}")
    if not words:
        return _chars(b.map(x.shape, lambda i: _changed(
            b, lambda k: byte(b, x, i[:-1], k), i[-1], action), [x]))
    rows = b.move(x, x.shape[-2:], lambda i: (Const(0),) * (rank - 1) + i, "texts")
    flags = _kept(b, rows, words, bool(node.attr("is_case_sensitive", 0)))
    axis = rank - 1
    count = room(b, [(0, axis)], n + 1) or Count(b.declared(rank=rank)[axis])
    place = kept_places(b, flags, count, "kept")

    def body(i: Index) -> Expr:
        at = place(i[axis])
        text = _changed(b, lambda k: byte(b, rows, (minimum(at, n - 1),), k), i[-1], action)
        return zero_behind(b, count, i[axis], Where(compare("lt", at, n), text, Const(0, "u8")))
    b.nonempty(n, (count.extent,), "strings to choose from")
    return _chars(b.map((*x.shape[:axis], count.extent, x.shape[-1]), body, [x, flags]))


def _kept(b: Builder, rows: Val, words: tuple[str, ...], exact: bool) -> Val:
    """bool [n + 1]: the texts that are no stop words, and last whether there is none."""
    n, table = rows.shape[0], constant(b, words, (Const(len(words)),))
    other = compare_with_table(b, rows, table, not exact)
    i, j = Axis("i0", n), Axis("j", table.shape[0])
    keeps = b.compute((i,), b.load(other, (i, j)), (j,), "min", "keeps")
    k = Axis("k", n)
    some = b.compute((), b.load(keeps, (k,)), (k,), "max", "some")
    return b.map((n + 1,), lambda i: Where(
        compare("lt", i[0], n), compare("ne", b.load(keeps, (minimum(i[0], n - 1),)), Const(0)),
        compare("le", b.load(some, ()), Const(0))), [keeps, some], "flags")


def _case_table(upper: bool) -> list[int]:
    """Characters below U+0800 with the other case, where that is one such character too."""
    out = []
    for c in range(0x800):
        other = chr(c).upper() if upper else chr(c).lower()
        ends = (0x80, 0x800) if c >= 0x80 else (0, 0x80)
        fits = len(other) == 1 and ends[0] <= ord(other) < ends[1]
        out.append(ord(other) if fits else c)
    return out


def _changed(b: Builder, at: At, k: Expr, action: str) -> Expr:
    """Byte ``k`` of a text in the other case: letters of one and of two bytes."""
    here = at(k)
    if action == "NONE":
        return here
    table = b.const(np.array(_case_table(action == "UPPER"), np.int16), f"{action.lower()}_case")

    def other(code: Expr) -> Expr:
        return cast(INDEX, b.load(table, (minimum(maximum(code, Const(0)), Const(0x7FF)),)))

    def leads(e: Expr) -> Expr:
        return _all(compare("ge", e, Const(0xC2)), compare("le", e, Const(0xDF)))
    c, before, after = (cast(INDEX, e) for e in (here, at(k - 1), at(k + 1)))
    first = other(c % 32 * 64 + after % 64) // 64 + 0xC0
    second = other(before % 32 * 64 + c % 64) % 64 + 0x80
    out = Where(compare("lt", c, Const(0x80)), other(c), Where(
        leads(c), first, Where(leads(before), second, c)))
    return cast("u8", out)


# ---------------------------------------------------------------- StringSplit

@dataclass(frozen=True)
class Pieces:
    """Of every text: ``count`` i64; ``ends(lead, p)``: where piece p begins and ends."""

    count: Val
    ends: Callable[[Index, Expr], tuple[Expr, Expr]]


@op("StringSplit", since=20)
def string_split(node: Node, b: Builder) -> Result:
    x, delimiter = characters(b, 0), (node.attr("delimiter", "") or "").encode()
    lead, width = x.shape[:-1], x.shape[-1]
    most = node.attr("maxsplit")
    most = None if most is None or most < 0 else most
    count = room(b, [(0, len(lead))], width + 1) or Count(
        b.declared(rank=len(lead) + 1)[-1])
    pieces = (_by_delimiter(b, x, delimiter, most, count.extent) if delimiter
              else _by_spaces(b, x, most, count.extent))
    every = b.axes(lead, prefix="j")
    top = b.compute((), b.load(pieces.count, every), every, "max", "most") if lead else pieces.count
    total = b.map((), lambda _: maximum(b.at(top, ()), Const(0)), [top], "total")
    expect_count(b, total, count)

    def body(i: Index) -> Expr:
        begin, end = pieces.ends(i[:-2], i[-2])
        here = _all(compare("lt", i[-2], b.at(pieces.count, i[:-2])),
                    compare("lt", begin + i[-1], end))
        return Where(here, byte(b, x, i[:-2], begin + i[-1]), Const(0, "u8"))
    made = b.map((*lead, count.extent, width), body, [x, pieces.count])
    return _chars(made), b.map(lead, lambda i: b.at(pieces.count, i), [pieces.count], out=1)


def numbered(b: Builder, flags: Val, extent: Expr, tag: str) -> tuple[Val, Val]:
    """(how many flags [.., W] are set, where the first ``extent`` of them are: -1 of none)."""
    lead, width = flags.shape[:-1], flags.shape[-1]
    axes, j = b.axes(lead), Axis("j", width)
    k, p = Axis("k", width), Axis("p", extent)
    mine = b.load(flags, (*axes, j))
    total = b.compute(axes, _one_if(mine), (j,), "sum", f"{tag}_total")
    before = b.compute((*axes, k), _one_if(_all(compare("lt", j, k), mine)), (j,), "sum",
                       f"{tag}_before")
    hit = _all(mine, compare("eq", b.load(before, (*axes, j)), p))
    return total, b.compute((*axes, p), Where(hit, j, Const(-1)), (j,), "max", f"{tag}_place")


def _limited(b: Builder, total: Val, most: int | None, extra: int) -> Val:
    """The number of pieces: one for each mark, and ``extra``."""
    def body(i: Index) -> Expr:
        n = b.at(total, i)
        return (n if most is None else minimum(n, Const(most + 1 - extra))) + extra
    return b.map(total.shape, body, [total], "count")


def _by_spaces(b: Builder, x: Val, most: int | None, extent: Expr) -> Pieces:
    """Words between white space."""
    lead, width = x.shape[:-1], x.shape[-1]

    def blank(i: Index, k: Expr) -> Expr:
        e = byte(b, x, i, k)
        out: Expr = compare("eq", e, Const(0, "u8"))
        for c in _SPACES:
            out = Binary("or", out, compare("eq", e, Const(c, "u8")))
        return out
    starts = b.map(x.shape, lambda i: _all(Unary("not", blank(i[:-1], i[-1])),
                                           blank(i[:-1], i[-1] - 1)), [x], "starts")
    total, place = numbered(b, starts, extent, "word")
    axes, p, j = b.axes(lead), Axis("p", extent), Axis("j", width)
    late = _all(compare("gt", j, b.load(place, (*axes, p))), blank(axes, j))
    stop = b.compute((*axes, p), Where(late, j, width), (j,), "min", "word_end")
    size = lengths(b, x)

    def ends(i: Index, p: Expr) -> tuple[Expr, Expr]:
        end = b.at(stop, (*i, p))
        if most is not None:
            end = Where(compare("ge", p, Const(most)), b.at(size, i), end)
        return maximum(b.at(place, (*i, p)), Const(0)), end
    return Pieces(_limited(b, total, most, 0), ends)


def _by_delimiter(b: Builder, x: Val, mark: bytes, most: int | None, extent: Expr) -> Pieces:
    """What lies between marks that do not overlap, from the left."""
    def here(i: Index) -> Expr:
        return _all(*(compare("eq", byte(b, x, i[:-1], i[-1] + k), Const(c, "u8"))
                      for k, c in enumerate(mark)))
    flags = b.map(x.shape, here, [x], "marks")
    if any(mark.startswith(mark[k:]) for k in range(1, len(mark))):
        flags = apart(b, flags, len(mark))
    total, place = numbered(b, flags, extent, "mark")
    size = lengths(b, x)

    def ends(i: Index, p: Expr) -> tuple[Expr, Expr]:
        before = b.at(place, (*i, maximum(p - 1, Const(0))))
        begin = Where(compare("eq", p, Const(0)), Const(0), maximum(before, Const(0)) + len(mark))
        last = compare("ge", p, b.at(total, i))
        if most is not None:
            last = Binary("or", last, compare("ge", p, Const(most)))
        return begin, Where(last, b.at(size, i), b.at(place, (*i, p)))
    return Pieces(_limited(b, total, most, 1), ends)


def apart(b: Builder, flags: Val, size: int) -> Val:
    """The marks of ``size`` bytes that begin where none before them goes on."""
    lead, width = flags.shape[:-1], flags.shape[-1]
    turned = b.move(flags, (width, *lead), lambda i: (*i[1:], i[0]), "turned")
    axes = b.axes(lead)
    none = b.compute(axes, Const(0), tag="none")

    def one(_: Expr, before: Sequence[Val], part: Sequence[Val]) -> Made:
        taken = b.map(lead, lambda i: _all(b.at(part[0], i), compare("le", b.at(before[0], i),
                                                                     Const(0))),
                      [*before, *part], "taken")
        left = b.map(lead, lambda i: Where(b.at(taken, i), Const(size - 1), maximum(
            b.at(before[0], i) - 1, Const(0))), [taken, *before], "left")
        return [left], [taken], None
    _, (rows,), _ = loop(b, "marks", width, [none], [(turned, False)], [False], one)
    return b.move(rows, flags.shape, lambda i: (i[-1], *i[:-1]), "apart")

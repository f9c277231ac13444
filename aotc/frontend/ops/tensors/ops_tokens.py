"""Tokenizer: texts cut into tokens, at separators or where a class of characters ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.calls import expect_count
from aotc.frontend.building.characters import byte, characters
from aotc.frontend.building.declared import Count, room, zero_behind
from aotc.frontend.building.registry import op
from aotc.frontend.building.spelling import MICROSOFT
from aotc.frontend.building.symbolic import cast, conjunction
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.tensors.ops_strings import apart, numbered
from aotc.frontend.ops.tensors.regex import Automaton, Unread, automaton
from aotc.ir.dtypes import CHARS, INDEX, Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Where, compare, maximum, minimum
from aotc.ir.simplify import simplify

_BEGIN, _END = 2, 3  # what marks a text
_WORDS = "(?u)\\b\\w\\w+\\b"  # scikit-learn's own: words of two characters and more


@dataclass(frozen=True)
class _Cut:
    """bool [.., width] of texts: where tokens may begin, and where they have ended; ``most`` of
    them fit a text."""

    begins: Val
    ended: Val
    most: Expr


@op("Tokenizer", domain=MICROSOFT)
def tokenizer(node: Node, b: Builder) -> Result:
    x = characters(b, 0)
    lead, width, pad = x.shape[:-1], x.shape[-1], node.attr("pad_value", "").encode()
    marks = 2 if node.attr("mark", 0) else 0
    if len(lead) not in (1, 2):
        raise b.bad(f"texts [c] or [n, c] expected, it has {len(lead)} dimensions")
    found = _cut(b, x)
    begins = _long_enough(b, x, found, node.attr("mincharnum", 1))
    count = room(b, [(0, len(lead))], simplify(found.most + marks)) or Count(
        b.declared(rank=len(lead) + 1)[-1])
    total, place = numbered(b, begins, count.extent, "token")
    axes, p, j = b.axes(lead), Axis("p", count.extent), Axis("j", width)
    late = Binary("and", compare("gt", j, b.load(place, (*axes, p))),
                  b.load(found.ended, (*axes, j)))
    stop = b.compute((*axes, p), Where(late, j, width), (j,), "min", "token_end")
    every = b.axes(lead, prefix="j")
    top = b.compute((), b.load(total, every), every, "max", "most")
    number = b.map((), lambda _: Where(compare("gt", b.at(top, ()), Const(0)),
                                       b.at(top, ()) + marks, Const(0)), [top], "total")
    expect_count(b, number, count)
    padding = b.const(np.frombuffer(pad.ljust(1, b"\0"), np.uint8), f"{node.label}_pad")

    def body(i: Index) -> Expr:
        text, at, k = i[:-2], i[-2], i[-1]
        n, token = b.at(total, text), at - marks // 2
        safe = maximum(token, Const(0))
        begin = maximum(b.at(place, (*text, safe)), Const(0))
        inside = compare("lt", begin + k, b.at(stop, (*text, safe)))
        out = Where(inside, byte(b, x, text, begin + k), Const(0, "u8"))
        behind = Where(compare("lt", k, Const(len(pad))), b.load(padding, (minimum(
            k, Const(max(len(pad), 1) - 1)),)), Const(0, "u8"))
        out = Where(compare("lt", token, n), out, behind)
        if marks:
            for where, code in ((Const(0), _BEGIN), (n + 1, _END)):
                sign = Where(compare("eq", k, Const(0)), Const(code, "u8"), Const(0, "u8"))
                out = Where(compare("eq", at, where), sign, out)
        return zero_behind(b, count, at, out)
    size = simplify(maximum(width, Const(max(len(pad), 1))))
    return replace(b.map((*lead, count.extent, size), body, [x, total, place, stop]), stored=CHARS)


def _cut(b: Builder, x: Val) -> _Cut:
    """How the node cuts its texts."""
    pattern, marks = b.node.attr("tokenexp", ""), tuple(b.node.attr("separators") or ())
    if bool(pattern) == bool(marks):
        raise b.bad("separators or a tokenexp expected, one of them")
    if marks == ("",) or pattern == ".":
        if b.node.attr("mincharnum", 1) > 1:
            raise b.bad("a token of one character has no two")
        first = np.array([c & 0xC0 != 0x80 for c in range(256)])
        taken = first & (np.arange(256) != 0)
        return _Cut(_by_byte(b, x, taken, "begins"), _by_byte(b, x, first, "starts"), x.shape[-1])
    if pattern:
        blank = _by_byte(b, x, ~_class_of(b, pattern), "blank")
    elif all(len(m.encode()) == 1 for m in marks):
        held = {0, *(m.encode()[0] for m in marks)}
        blank = _by_byte(b, x, np.array([c in held for c in range(256)]), "blank")
    else:
        blank = _covered(b, x, [m.encode() for m in marks])
    begins = b.map(x.shape, lambda i: Binary("and", Unary("not", b.at(blank, i)), Where(
        compare("gt", i[-1], Const(0)), b.at(blank, (*i[:-1], maximum(i[-1] - 1, Const(0)))),
        Const(True, "bool"))), [blank], "begins")
    return _Cut(begins, blank, simplify((x.shape[-1] + 1) // 2))


def _by_byte(b: Builder, x: Val, holds: Array, tag: str) -> Val:
    """bool of every byte, by its value."""
    table = b.const(holds.astype(np.uint8), f"{b.node.label}_{tag}")
    return b.map(x.shape, lambda i: compare("ne", b.load(table, (cast(INDEX, b.at(x, i)),)),
                                            Const(0, "u8")), [x], tag)


def _class_of(b: Builder, pattern: str) -> Array:
    """bool [256] of a pattern of tokens that is a class of characters, once or more.
    UnsupportedError for others."""
    try:
        found = automaton("\\w+" if pattern == _WORDS else pattern)
    except Unread:
        found = None
    held = None if found is None else _repeated(found)
    if held is None:
        raise b.unsupported(f"tokens by the expression {pattern!r}",
                            "write it as a class of characters, repeated: [a-zA-Z0-9_]+")
    return held


def _repeated(found: Automaton) -> Array | None:
    """The bytes of an automaton that takes any number of them but none, if it is one."""
    step, accepts = found.step, found.accepts.astype(bool)
    own = accepts[step[0]]  # of kinds of bytes
    if accepts[0] or not own.any():
        return None
    states = {0}
    while more := set(step[sorted(states)][:, own].reshape(-1).tolist()) - states:
        states |= more
    behind = {0}
    for state in states:
        if not (accepts[step[state]] == own).all():
            return None
        behind |= set(step[state][~own].tolist())
    behind -= states
    if any(accepts[s] or set(step[s].tolist()) - {s} for s in behind):
        return None  # more may follow
    held: Array = own[found.kind]
    held[0] = False
    return held


def _covered(b: Builder, x: Val, marks: Sequence[bytes]) -> Val:
    """bool of every byte: it belongs to a separator, or is behind the text."""
    for k, one in enumerate(marks):
        if not one or any(_overlap(one, two) for two in marks[:k]):
            raise b.unsupported(f"separators {list(marks)} that may overlap in a text",
                                "use some that do not")
    at = [_places(b, x, m) for m in marks]

    def body(i: Index) -> Expr:
        out: Expr = compare("eq", b.at(x, i), Const(0, "u8"))
        for flags, mark in zip(at, marks):
            for k in range(len(mark)):
                here = Binary("and", compare("ge", i[-1], Const(k)), b.at(
                    flags, (*i[:-1], maximum(i[-1] - k, Const(0)))))
                out = Binary("or", out, here)
        return out
    return b.map(x.shape, body, [x, *at], "blank")


def _places(b: Builder, x: Val, mark: bytes) -> Val:
    """bool of every byte: ``mark`` begins there, and none that began before goes on."""
    flags = b.map(x.shape, lambda i: conjunction(
        compare("eq", byte(b, x, i[:-1], i[-1] + k), Const(c, "u8"))
        for k, c in enumerate(mark)), [x], "marks")
    return apart(b, flags, len(mark)) if _overlap(mark, mark) else flags


def _overlap(one: bytes, two: bytes) -> bool:
    """True if the two may share bytes of a text."""
    def later(a: bytes, c: bytes, first: int) -> bool:
        return any(c.startswith(a[k:]) or a[k:].startswith(c) for k in range(first, len(a)))
    return later(one, two, int(one == two)) or later(two, one, int(one == two))


def _long_enough(b: Builder, x: Val, found: _Cut, least: int) -> Val:
    """Where tokens of ``least`` characters or more begin."""
    if least <= 1:
        return found.begins
    lead, width = x.shape[:-1], x.shape[-1]
    axes, k, j = b.axes(lead), Axis("k", width), Axis("j", width)
    late = Binary("and", compare("gt", j, k), b.load(found.ended, (*axes, j)))
    stop = b.compute((*axes, k), Where(late, j, width), (j,), "min", "run_end")
    first = compare("ne", cast("u8", cast(INDEX, b.load(x, (*axes, j))) // 64), Const(2, "u8"))
    mine = conjunction([compare("ge", j, k), compare("lt", j, b.load(stop, (*axes, k))), first])
    size = b.compute((*axes, k), Where(mine, Const(1), Const(0)), (j,), "sum", "run")
    return b.map(x.shape, lambda i: Binary("and", b.at(found.begins, i), compare(
        "ge", b.at(size, i), Const(least))), [found.begins, size], "long")

"""Regular expressions as tables: a pattern becomes an automaton over the bytes of UTF-8.

What is read is what Python's parser makes of the pattern, with the meaning that the standard gives
it (RE2): classes such as ``\\w`` are of ASCII, ``.`` is no newline, ``$`` is the end of the text.
"""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from aotc.ir.dtypes import Array

_parse: Any = import_module("re._parser")  # Python's own
MOST_STATES = 2048
_TOP = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)  # which UTF-8 does not have
Range = tuple[int, int]
_DIGITS: list[Range] = [(48, 57)]
_WORDS: list[Range] = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACES: list[Range] = [(9, 10), (12, 13), (32, 32)]
_CATEGORIES = {"CATEGORY_DIGIT": _DIGITS, "CATEGORY_WORD": _WORDS, "CATEGORY_SPACE": _SPACES}


_BOUNDARIES = {"AT_BOUNDARY": "boundary", "AT_NON_BOUNDARY": "within"}


class Unread(ValueError):
    """What is not compiled of a pattern."""


@dataclass(frozen=True)
class Automaton:
    """``step[state, kind]`` is the next state, ``kind[byte]`` what a byte is; state 0 is the first,
    ``accepts`` says where a text may end."""

    step: Array
    kind: Array
    accepts: Array


@dataclass
class _Net:
    """States by number: ``on``: (bytes lo..hi, next); ``free``: (condition, next), the condition
    "" or "begin", "end", "boundary" (of a word) or "within"."""

    on: list[list[tuple[int, int, int]]] = field(default_factory=list)
    free: list[list[tuple[str, int]]] = field(default_factory=list)

    def state(self) -> int:
        if len(self.on) > 8 * MOST_STATES:
            raise Unread("it repeats too much")
        self.on.append([])
        self.free.append([])
        return len(self.on) - 1


def automaton(pattern: str) -> Automaton:
    """The Automaton of texts that match a pattern as a whole; Unread where that is not compiled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = _parse.parse(pattern)
    except (re.error, Warning, RecursionError, OverflowError) as err:
        raise Unread(f"it is not read: {err}") from None
    if parsed.state.flags & ~re.UNICODE:
        raise Unread("it sets flags")
    net = _Net()
    first, last = net.state(), net.state()
    _sequence(net, parsed, first, last)
    return _determined(net, first, last)


def _sequence(net: _Net, items: Iterable[tuple[Any, Any]], start: int, end: int) -> None:
    for kind, value in items:
        after = net.state()
        _item(net, str(kind), value, start, after)
        start = after
    net.free[start].append(("", end))


def _item(net: _Net, kind: str, value: Any, start: int, end: int) -> None:
    if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        _characters(net, _class(kind, value), start, end)
    elif kind == "BRANCH":
        for branch in value[1]:
            _sequence(net, branch, start, end)
    elif kind == "SUBPATTERN":
        if value[1] or value[2]:
            raise Unread("it sets flags")
        _sequence(net, value[3], start, end)
    elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
        _repeat(net, value, start, end)
    elif kind == "AT" and str(value) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        net.free[start].append(("begin", end))
    elif kind == "AT" and str(value) in ("AT_END", "AT_END_STRING"):
        net.free[start].append(("end", end))
    elif kind == "AT" and str(value) in _BOUNDARIES:
        net.free[start].append((_BOUNDARIES[str(value)], end))
    else:
        raise Unread(f"it has {kind.lower().replace('_', ' ')}")


def _repeat(net: _Net, value: tuple[int, Any, Any], start: int, end: int) -> None:
    least, most, body = int(value[0]), value[1], value[2]
    for _ in range(least):
        after = net.state()
        _sequence(net, body, start, after)
        start = after
    if str(most) == "MAXREPEAT":
        inner, back = net.state(), net.state()
        net.free[start].append(("", inner))
        _sequence(net, body, inner, back)
        net.free[back].append(("", inner))
        net.free[inner].append(("", end))
        return
    for _ in range(int(most) - least):
        net.free[start].append(("", end))
        after = net.state()
        _sequence(net, body, start, after)
        start = after
    net.free[start].append(("", end))


# ---------------------------------------------------------------- characters

def _class(kind: str, value: Any) -> list[Range]:
    """The code points of a class, as ranges in order."""
    if kind == "LITERAL":
        return [(value, value)]
    if kind == "NOT_LITERAL":
        return _others([(value, value)])
    if kind == "ANY":
        return _others([(10, 10)])
    found: list[Range] = []
    negated = False
    for what, part in value:
        name = str(what)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            found.append((part, part))
        elif name == "RANGE":
            found.append(tuple(part))
        else:
            word = str(part).replace("_NOT_", "_")
            ranges = _CATEGORIES[word]
            found += _others(ranges) if "_NOT_" in str(part) else ranges
    return _others(found) if negated else found


def _others(ranges: Iterable[Range]) -> list[Range]:
    """All code points that are not in the ranges."""
    out, at = [], 0
    for lo, hi in sorted(ranges):
        if lo > at:
            out.append((at, lo - 1))
        at = max(at, hi + 1)
    return [*out, (at, _TOP)] if at <= _TOP else out


def _characters(net: _Net, ranges: Iterable[Range], start: int, end: int) -> None:
    """Steps over one character of the ranges, byte by byte."""
    for lo, hi in ranges:
        for row in _bytes_of(max(lo, 1), hi):  # no text holds a zero byte
            at = start
            for k, (a, b) in enumerate(row):
                after = end if k == len(row) - 1 else net.state()
                net.on[at].append((a, b, after))
                at = after


def _bytes_of(lo: int, hi: int) -> list[list[Range]]:
    """Ranges of bytes, one after the other, that are the UTF-8 of the code points lo..hi."""
    if lo > hi:
        return []
    for low, high in ((0, 0x7F), (0x80, 0x7FF), (0x800, _SURROGATES[0] - 1), _SURROGATES,
                      (_SURROGATES[1] + 1, 0xFFFF), (0x10000, _TOP)):
        if lo <= high:
            if hi > high:
                return _bytes_of(lo, high) + _bytes_of(high + 1, hi)
            return [] if (low, high) == _SURROGATES else _same_length(lo, hi)
    return []


def _same_length(lo: int, hi: int) -> list[list[Range]]:
    """``_bytes_of`` for code points whose UTF-8 has one length."""
    for k in (18, 12, 6):  # bits of the last bytes: cut where the bytes before them change
        mask = (1 << k) - 1
        if lo >= 0x80 and lo >> k != hi >> k:
            if lo & mask:
                return _same_length(lo, lo | mask) + _same_length((lo | mask) + 1, hi)
            if hi & mask != mask:
                return _same_length(lo, (hi & ~mask) - 1) + _same_length(hi & ~mask, hi)
    return [list(zip(chr(lo).encode(), chr(hi).encode()))]


# ---------------------------------------------------------------- states

@dataclass(frozen=True)
class _State:
    """Where a text may be in the net; ``word``: its last byte is one of a word."""

    at: frozenset[int]
    word: bool = False
    begin: bool = False

    def closed(self, net: _Net, word: bool, end: bool = False) -> frozenset[int]:
        """What is reached without a byte where the next one is of a word, or the text ends."""
        holds = ["", "boundary" if self.word != word else "within"]
        holds += ["begin"] * self.begin + ["end"] * end
        todo, seen = list(self.at), set(self.at)
        while todo:
            for condition, after in net.free[todo.pop()]:
                if after not in seen and condition in holds:
                    seen.add(after)
                    todo.append(after)
        return frozenset(seen)


def _is_word(byte: int) -> bool:
    return any(a <= byte <= b for a, b in _WORDS)


def _determined(net: _Net, first: int, last: int) -> Automaton:
    words = any(c in _BOUNDARIES.values() for row in net.free for c, _ in row)
    rows = [(a, b) for row in net.on for a, b, _ in row] + (_WORDS if words else [])
    cuts = sorted({0, 1, 256, *(e for a, b in rows for e in (a, b + 1))})
    kind = np.searchsorted(cuts, np.arange(256), "right") - 1
    order = [_State(frozenset([first]), begin=True)]
    names, step = {order[0]: 0}, list[list[int]]()
    while len(step) < len(order):
        row, state = [], order[len(step)]
        for byte in cuts[:-1]:
            word = words and _is_word(byte)
            reached = _State(frozenset(n for s in state.closed(net, word)
                                       for a, b, n in net.on[s] if a <= byte <= b), word)
            if reached not in names:
                names[reached] = len(order)
                order.append(reached)
            row.append(names[reached])
        step.append(row)
        if len(order) > MOST_STATES:
            raise Unread(f"it needs more than {MOST_STATES} states")
    accepts = np.array([last in s.closed(net, False, True) for s in order])
    return Automaton(np.array(step, np.int64), kind.astype(np.int64), accepts)

"""What is written behind the options of the command line, as values."""

import argparse
import re
from typing import Any

from aotc.errors import AotcError
from aotc.json_text import read_json
from aotc.options import AUTO


def _wrong(text: str, said: str) -> argparse.ArgumentTypeError:
    """The error for a value, of which a message shows the beginning."""
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    return argparse.ArgumentTypeError(f"{shown}: {said}")


def alias_of(text: str) -> tuple[str, str]:
    """"past.*=present.*" -> ("past.*", "present.*"); "auto" as it is."""
    past, eq, present = text.partition("=")
    if text != AUTO and not (past and eq and present):
        raise _wrong(text, "write INPUT=OUTPUT, or auto alone")
    return past, present


def arena_of(text: str) -> Any:
    """"64M" as a limit of the arena."""
    from aotc.sched import parse_limit
    try:
        return parse_limit(text)
    except AotcError as err:
        raise argparse.ArgumentTypeError(str(err)) from None


def dim_of(text: str) -> tuple[str, int | tuple[int, int] | frozenset[int]]:
    """"seq=1..512" -> ("seq", (1, 512)); "batch=4" -> ("batch", 4); "batch=1,2" -> a set."""
    several = re.fullmatch(r"(.+)=(\d+(?:,\d+)+)", text)
    if several:
        return several[1], frozenset(map(int, several[2].split(",")))
    match = re.fullmatch(r"(.+)=(\d+)(?:\.\.(\d+))?", text)
    if not match:
        raise _wrong(text, "write NAME=LO..HI, NAME=EXTENT or NAME=A,B,..")
    name, lo, hi = match.groups()
    return name, int(lo) if hi is None else (int(lo), int(hi))


def extent_of(text: str) -> tuple[str, int]:
    """"past=3" -> ("past", 3)."""
    name, extent = dim_of(text)
    if not isinstance(extent, int):
        raise _wrong(text, "write NAME=EXTENT")
    return name, extent


def ranges_of(text: str) -> tuple[str, list[tuple[int, int | None]]]:
    """"seq=1,2..16,17.." -> ("seq", [(1, 1), (2, 16), (17, None)]); "auto" as it is."""
    if text == AUTO:
        return text, []
    name, _, ranges = text.rpartition("=")
    found = [re.fullmatch(r"(\d+)(?:(\.\.)(\d*))?", r) for r in ranges.split(",")]
    if not name or not all(found):
        raise _wrong(text, "write NAME=LO..HI,LO..HI; LO for one extent, LO.. without an end; "
                           "auto alone")
    return name, [(int(m[1]), int(m[3] or m[1]) if m[3] or not m[2] else None)
                  for m in found if m]


def fixed_of(text: str) -> tuple[str, Any]:
    """"sr=16000" -> ("sr", 16000); lists, nested too, true and false; NAME.npy stays a path."""
    name, eq, value = text.partition("=")
    if not name or eq and not value:
        raise _wrong(text, "write NAME=VALUE")
    if not eq or value.endswith(".npy"):
        return name, value or None
    try:
        return name, read_json(value if value.startswith("[") or "," not in value else
                               f"[{value}]")
    except ValueError:
        raise _wrong(text, "it is no number, no list of numbers and no .npy file") from None


def list_of(text: str) -> tuple[str, Any]:
    """"x=3" -> ("x", 3); shapes [[2,3],[4]] and null as in JSON."""
    name, _, value = text.partition("=")
    try:
        return name, read_json(value)
    except ValueError:
        raise _wrong(text, "write NAME=3, [[2,3]] or null") from None


def shape_of(text: str) -> tuple[str, list[int | str]]:
    """"x=1,3,h,w" -> ("x", [1, 3, "h", "w"])."""
    name, eq, extents = text.partition("=")
    if not (name and eq):
        raise _wrong(text, "write NAME=1,3,h,w")
    return name, [int(d) if d.isdecimal() else d for d in map(str.strip, words_of(extents))]


def file_of(text: str) -> tuple[str, str]:
    """"x=x.npy" -> ("x", "x.npy")."""
    name, eq, path = text.partition("=")
    if not (name and eq and path):
        raise _wrong(text, "write NAME=FILE.npy")
    return name, path


def words_of(text: str | None) -> list[str]:
    """"a,b" -> ["a", "b"]."""
    return [w for w in (text or "").split(",") if w]

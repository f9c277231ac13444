"""Long lines of C in several: broken where brackets are fewest, behind commas and before operators.
"""

import re

WIDTH = 100
_BEFORE = (" + ", " - ", " * ", " / ", " ? ", " : ", " && ", " || ", " = ", " < ", " <= ")
_BEHIND = (", ", "; ")
# (columns behind the indent that a part has at least, whether it may end with a bracket): tried in
# turns
_TRIES = (24, False), (6, False), (6, True)
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)'")  # and single characters


def wrap_lines(text: str) -> str:
    """C text whose lines have at most ``WIDTH`` columns, as far as they can be broken; lines of the
    preprocessor stay as they are."""
    if max(map(len, text.split("\n"))) <= WIDTH:
        return text
    out: list[str] = []
    goes_on = False  # the line belongs to the macro that the line before it is part of
    for line in text.split("\n"):
        whole = len(line) <= WIDTH or line.startswith("#") or line.endswith("\\") or goes_on
        out += [line] if whole else _parts(line)
        goes_on = line.endswith("\\")
    return "\n".join(out)


def _parts(line: str) -> list[str]:
    indent = line[:len(line) - len(line.lstrip())]
    code, comment_behind = _apart(line)
    if comment_behind:  # it goes above
        return [x for text in (indent + comment_behind, code) for x in (
            _parts(text) if len(text) > WIDTH else [text])]
    comment = re.match(r"(/\*|\*)( *)", line.lstrip())
    star = comment is not None
    more = indent + "    "
    if comment is not None:  # what is set in stays so
        begin, space = comment.groups()
        more = indent + " " * (len(begin) - 1) + "*" + (
            space if len(space) < 2 else space + "    ")
    out, at, before, quoted = [], 0, "", _quoted(line)
    # a piece is ``before``, and of the line what comes from ``at`` on
    while len(before) + len(line) - at > WIDTH:
        seen = slice(at, at + 2 * WIDTH)  # and what is looked for around the last column
        piece, inside = before + line[seen], bytes(len(before)) + quoted[seen]
        tries = (_break(piece, inside, len(more) + least, bracket) for least, bracket in _TRIES)
        end = _space(piece, len(more)) if star else next((x for x in tries if x), None)
        if end is None:
            break
        out.append(piece[:end].rstrip())
        at += end - len(before)
        while line.startswith(" ", at):
            at += 1
        before = more
    return [*out, before + line[at:]]


def _apart(line: str) -> tuple[str, str]:
    """(a statement, the comment behind it, "" if there is none)."""
    code, mark, comment = line.rpartition("; /* ")
    alone = mark and comment.endswith("*/") and not _quoted(line)[len(code)]
    return (f"{code};", f"/* {comment}") if alone else (line, "")


def _space(line: str, indent: int) -> int | None:
    """Where a comment is broken: behind its last word that fits, the extents of a shape being one
    and what ends the comment being part of the last."""
    least, depth, found = indent + _TRIES[0][0], 0, dict[bool, int]()
    for i, c in enumerate(line[:WIDTH + 1]):
        depth += (c == "[") - (c == "]")
        if c == " " and i >= least and not line.startswith(" */", i):
            found[depth == 0] = i
    return found.get(True, found.get(False))


def _break(line: str, quoted: bytes, least: int, bracket: bool) -> int | None:
    """Where a statement is broken: from column ``least`` to ``WIDTH``, in as few brackets as can
    be, as late as can be, with ``bracket`` behind an opening one too; None if there is no place.
    ``quoted``: 1 for every column between quotes."""
    best: tuple[int, int, int] | None = None
    depth = 0
    for i, c in enumerate(line[:WIDTH + 1]):
        if quoted[i]:
            continue
        depth += (c in "([{") - (c in ")]}")
        behind = line.startswith(_BEHIND, i) or bracket and c == "("
        at = i + 1 if behind else i if line.startswith(_BEFORE, i) else None
        if at is not None and least <= at <= WIDTH and (
                best is None or (depth, ";,".find(c) % 9, -at) <= best):
            best = depth, ";,".find(c) % 9, -at  # behind ; rather than a comma, than elsewhere
    return None if best is None else -best[2]


def _quoted(line: str) -> bytes:
    """1 for every column inside texts and characters between quotes, the closing quotes too."""
    out = bytearray(len(line))
    for text in _TEXTS.finditer(line):
        out[text.start() + 1:text.end()] = b"\1" * (text.end() - text.start() - 1)
    return bytes(out)


__all__ = ["WIDTH", "wrap_lines"]

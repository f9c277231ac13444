"""C text of loops: serial ones, and loops over vector lanes with their remainder."""

from collections.abc import Callable, Collection, Sequence

from aotc.emit.text.cexpr import c_index
from aotc.emit.text.dialect import Dialect
from aotc.ir.expr import Const
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import Range

INDENT = "    "
# (C text of the number of live lanes or "" for all, how vectors are spelt) -> lines
Lines = Callable[[str, Dialect], list[str]]


class BracedLines(list[str]):
    """Lines whose names end with them, below a comment: in braces of their own, but where nothing
    else is inside a pair that stands anyway."""

    def __init__(self, lines: Sequence[str], note: Sequence[str] = ()) -> None:
        super().__init__(lines)
        self.note = note

    def braced(self) -> list[str]:
        """All lines, with braces."""
        return [*self.note, "{", *indent(self), "}"]

    def alone(self) -> list[str]:
        """All lines, inside braces that others write."""
        return [*self.note, *self]


def brace_lines(lines: Sequence[str]) -> list[str]:
    """Lines of a statement that others stand beside."""
    return lines.braced() if isinstance(lines, BracedLines) else [*lines]


def indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return [INDENT * depth + x if x else x for x in lines]


def loop(r: Range, body: Sequence[str], note: str = "",
         uses: Collection[str] | None = None) -> list[str]:
    """``for`` over a Range around ``body`` lines; no loop where it runs exactly once.  note: C text
    behind the loop's head; uses: names that the body uses (None: perhaps all)."""
    if simplify(r.hi - r.lo) == Const(1):
        bound = [f"const int64_t {r.axis.name} = {c_index(r.lo, 0)};"]
        if uses is None:
            bound.append(f"(void){r.axis.name};")
        return BracedLines([*(bound if uses is None or r.axis.name in uses else ()), *body])
    name, lo, hi = r.axis.name, c_index(r.lo, 0), c_index(r.hi, 11)
    head = f"for (int64_t {name} = {lo}; {name} < {hi}; ++{name}) {{{note}"
    return [head] + indent(body) + ["}"]


def loops(ranges: Sequence[Range], body: list[str], uses: Collection[str]) -> list[str]:
    """Loops around ``body`` lines inside a block, where an axis of one value is a name for it, if
    it is among the names ``uses``."""
    for r in reversed(ranges):
        if simplify(r.hi - r.lo) != Const(1):
            body = loop(r, body)
        elif r.axis.name in uses:
            body = [f"const int64_t {r.axis.name} = {c_index(r.lo, 0)};", *body]
    return body


def _strip_loop(r: Range, say: Dialect, body: Lines) -> list[str]:
    """One loop whose every step takes as many lanes as there are and as the CPU has."""
    noting = say.noting()
    inner, capped = body("", noting), bool(noting.arrays)
    name, lo, hi = r.axis.name, c_index(r.lo, 0), c_index(r.hi, 12)
    first = say.lines("step_length", f"{hi} - {name}", capped)
    return [f"for (int64_t {name} = {lo}; {name} < {hi};) {{"] + indent(
        first + inner + [say.strip_end(name)]) + ["}"]


def fitted_loop(r: Range, say: Dialect, body: Lines, most: int) -> list[str]:
    """Like ``_strip_loop``, every step with the narrowest vector values that hold what is left, of
    at most ``most`` registers: ``body`` is written once per width."""
    name = r.axis.name
    widths = [say.of_width(g) for g in reversed(say.vectors.groups) if g <= most]
    lines = [f"const int64_t {name}_n = {c_index(r.hi, 12)} - {name};"]
    for i, w in enumerate(widths):
        noting = w.noting()
        inner, capped = body("", noting), bool(noting.arrays)
        head = f"if ({w.fits(f'{name}_n')}) {{" if w is not widths[-1] else "{"
        lines += [("} else " if i else "") + head]
        lines += indent(w.lines("step_length", f"{name}_n", capped) + inner
                        + [w.strip_end(name)])
    head = f"for (int64_t {name} = {c_index(r.lo, 0)}; {name} < {c_index(r.hi, 11)};) {{"
    return [head] + indent(lines + ["}"]) + ["}"]


def lane_loop(r: Range, say: Dialect, body: Lines, uses: Collection[str]) -> list[str]:
    """Full vectors, then the remainder with a lane count.  uses: names that the body uses."""
    if not say.vectors.fixed:
        return _strip_loop(r, say, body)
    name, lo, hi, lanes = r.axis.name, c_index(r.lo, 0), c_index(r.hi, 12), say.lanes
    extent = simplify(r.hi - r.lo)
    if lanes == 1:
        return loop(r, body("", say), uses=uses)
    whole = simplify(extent % lanes) == Const(0)
    top = upper(extent)
    if top is not None and top < lanes:
        return BracedLines([f"const int64_t {name} = {lo}, {name}_n = {hi} - {name};",
                            f"if ({name}_n > 0) {{", *indent(body(f"{name}_n", say)), "}"])
    if whole:
        return [f"for (int64_t {name} = {lo}; {name} < {hi}; {name} += {lanes}) {{"] + indent(
            body("", say)) + ["}"]
    rest = [f"if ({name} < {hi}) {{", f"{INDENT}const int64_t {name}_n = {hi} - {name};"] + indent(
        body(f"{name}_n", say)) + ["}"]
    return BracedLines([f"int64_t {name} = {lo};",
                        f"for (; {name} + {lanes} <= {hi}; {name} += {lanes}) {{",
                        *indent(body("", say)), "}", *rest])


def signature(head: str, items: Sequence[str], end: str = "", depth: int = 0) -> list[str]:
    """C lines of ``head(items)``, to be set in by ``depth`` columns."""
    lines, line = [], f"{head}("
    for i, item in enumerate(items):
        item += ")" + end if i + 1 == len(items) else ","
        if depth + len(line) + len(item) > 98:
            lines.append(line)
            line = "   "
        line += item if line.endswith("(") else f" {item}"
    return lines + [line if items else f"{head}(void){end}"]

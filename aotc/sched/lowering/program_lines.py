"""What a stage computes, as the Program says it: for the comment above its statements."""

from collections.abc import Sequence, Set

from aotc.ir.expr import Expr, children, show
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Group
from aotc.sched.model.stages import Stage

NODES = 40  # of an expression that is shown; a larger one says what it reads
LINES = 4  # of one stage


def program_lines(program: Program, group: Group,
                  stages: Sequence[Stage]) -> dict[str, tuple[str, ...]]:
    """{stage: the Program's lines of the computes that make what it stores, the first and last of
    them, with names, type and shape of what each makes}.  A line belongs to the stage whose loops
    it is computed in."""
    stored = {o.buffer for s in stages for o in s.outputs}
    return {s.name: _lines(program, s, set(group.computes), stored) for s in stages}


def _lines(program: Program, stage: Stage, inside: Set[str], stored: Set[str]) -> tuple[str, ...]:
    todo, found = [o.buffer for o in stage.outputs], dict[str, Compute]()
    while todo:
        c = program.producer.get(todo.pop())
        if isinstance(c, Compute) and c.out in inside and c.out not in found:
            found[c.out] = c
            todo += [b for b in c.inputs if b not in stored]
    lines = [_line(program, c) for c in sorted(
        found.values(), key=lambda c: program.position[c.out])]
    if len(lines) > LINES:
        half = LINES // 2
        lines[half:-half] = [f".. {len(lines) - 2 * half} more .."]
    return tuple(lines)


def _line(program: Program, c: Compute) -> str:
    shape = ", ".join(map(show, program.shape(c.out)))
    return f"{_text(c)} : {program.dtype(c.out)}[{shape}]"


def _text(c: Compute) -> str:
    if isinstance(c.fold, str) and _size(c.body, NODES) <= NODES:
        return str(c)
    names = ", ".join(a.name for a in c.axes)
    made = ", ".join(f"{o}[{names}]" for o in c.outs)
    fold = c.fold if isinstance(c.fold, str) else "fold"
    over = "" if fold == "none" else f"{fold}({', '.join(a.name for a in c.raxes)}) "
    return f"{made} = {over}.. of {', '.join(c.inputs)}"


def _size(e: Expr, most: int) -> int:
    """Nodes of an expression as it is written out, counted to just beyond ``most``."""
    n = 1
    for x in children(e):
        if n > most:
            break
        n += _size(x, most - n)
    return n


__all__ = ["program_lines"]

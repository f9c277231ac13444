"""Caches that grow in place: an output that is an input with new entries behind it, and the caller
holds both in one buffer with room for more.

    present[.., i, ..] = where(i < P, past[.., i, ..], new[.., i - P, ..])

becomes ``new``, and a library call that puts it behind the ``P`` entries of ``past``.  The axis of
both tensors then has the extent of the room, a symbol, and everyone who reads either goes on to
read the same elements: nothing is copied, and what lies behind the end is left alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.errors import ModelError, UnsupportedError
from aotc.ir.access import volume
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Sym, Where, compare, rewrite, show
from aotc.ir.program import (
    Alias,
    Buffer,
    Check,
    Compute,
    LibCall,
    Program,
    Step,
    Whole,
    update,
)
from aotc.ir.simplify import are_equal, simplify

ROOM = "capacity"  # the symbol: entries that there is room for
LIKELY = 2048  # what decisions reckon with where no range is given
SHOWN = 160  # characters of an expression in an error


@dataclass(frozen=True)
class AliasGrowth:
    """``present`` is ``past`` with entries behind the ``kept`` ones along ``axis``, of which there
    are ``filled`` then: ``new`` says what they are, over the axes of ``compute``.  ``copies``:
    other buffers that are the same tensor."""

    past: str
    present: str
    axis: int
    compute: Compute
    kept: Expr
    filled: Expr
    new: Expr
    copies: tuple[str, ...]


def with_aliases(program: Program, wanted: Mapping[str, str] | str,
                 room: tuple[int, int | None] = (1, None)) -> Program:
    """The Program whose ``wanted`` outputs lie in the buffers of inputs.

    wanted: {input: output} by ONNX name, ``*`` in both standing for the same text; a text: every
    output of the form.  room: least and largest capacity (equal: it is no symbol).
    ModelError for names that the model lacks, UnsupportedError for an output that is not an input
    with entries behind it, or where a step reads one of them whole.
    """
    growths = _found(program) if isinstance(wanted, str) else [
        _growth_of(program, past, present) for past, present in _pairs(program, wanted)]
    if not growths:
        raise UnsupportedError("alias auto: no output is an input with new entries behind it along "
                               "one axis; leave alias out, or name the pairs")
    if any(s.name == ROOM for s in program.syms):
        raise ModelError(f"alias: the model has a dimension {ROOM!r} of its own, which is what the "
                         "extent of an aliased buffer is called; rename it")
    capacity = Const(room[0]) if room[0] == room[1] else Sym(ROOM, *room, LIKELY)
    for g in growths:
        program = _in_place(program, g, capacity)
    checks = {c.cond: c for g in growths for c in [_fits(g, capacity)]}
    syms = (capacity,) if isinstance(capacity, Sym) else ()
    return update(program, syms=program.syms + syms,
                  checks=program.checks + tuple(checks.values()))


def _fits(g: AliasGrowth, capacity: Expr) -> Check:
    return Check(simplify(compare("le", g.filled, capacity)),
                 f"{show(g.filled)} entries must fit into a capacity of {show(capacity)}")


# ---------------------------------------------------------------- which

def _pairs(program: Program, wanted: Mapping[str, str]) -> list[tuple[str, str]]:
    """(input, output) buffers of patterns of ONNX names."""
    inputs, outputs = ({program.buffers[n].onnx or n: n for n in names}
                       for names in (program.inputs, program.outputs))
    out = []
    for one, other in wanted.items():
        if one.count("*") != other.count("*"):
            raise ModelError(f"alias {one}={other}: both need as many *, each stands for the same "
                             "text in both")
        form = re.compile("(.*)".join(map(re.escape, one.split("*"))))
        matches = {n: m for n in inputs if (m := form.fullmatch(n))}
        if not matches:
            raise ModelError(f"alias {one}={other}: no input is called {one}; the model has "
                             + ", ".join(inputs))
        for name, match in matches.items():
            parts = other.split("*")
            twin = "".join(t for pair in zip(parts, (*match.groups(), "")) for t in pair)
            if twin not in outputs:
                raise ModelError(f"alias {one}={other}: input {name} would be output {twin}, which "
                                 f"there is not; the model has {', '.join(outputs)}")
            out.append((inputs[name], outputs[twin]))
    return out


def _found(program: Program) -> list[AliasGrowth]:
    """All outputs that are an input with entries behind it, each input once."""
    out: dict[str, AliasGrowth] = {}
    for present in program.outputs:
        for past in program.inputs:
            g = _growth(program, past, present)
            if g is not None and past not in out and not _whole(program, g):
                out[past] = g
                break
    return list(out.values())


def _growth_of(program: Program, past: str, present: str) -> AliasGrowth:
    """The Growth of a pair; UnsupportedError if it is none."""
    g = _growth(program, past, present)
    old, made = (program.buffers[n] for n in (past, present))
    what = f"alias {old.onnx or past}={made.onnx or present}"
    if g is None:
        body, _ = _behind_copies(program, present)
        text = show(body.body) if isinstance(body, Compute) else "made by a library call or a loop"
        origin = ", ".join(body.origin) if body is not None else ""
        raise UnsupportedError(
            f"{what}: the output must be the input, unchanged and in the same order, with new "
            f"entries behind it along one axis; {made} is, by {origin or 'no node'}: "
            f"{text[:SHOWN]} (of {old}); leave this pair out and reorder the cache before the call")
    whole = _whole(program, g)
    if whole is not None:
        raise UnsupportedError(f"{what}: {', '.join(whole.origin) or whole.outs[0]} reads all of "
                               "the tensor, which in place has room behind its end; leave this "
                               "pair out")
    return g


# ---------------------------------------------------------------- the form

def _behind_copies(program: Program, name: str) -> tuple[Compute | Whole | None, tuple[str, ...]]:
    """What makes a tensor, and the buffers between that are copies of it."""
    copies = []
    step = program.producer.get(name)
    while isinstance(step, Compute) and step.fold == "none" and isinstance(
            step.body, Load) and step.body.index == step.axes and (
            step.body.buffer in program.producer) and len(step.outs) == 1:
        copies.append(step.body.buffer)
        step = program.producer[step.body.buffer]
    return step, tuple(copies)


def _growth(program: Program, past: str, present: str) -> AliasGrowth | None:
    """The Growth of an output from an input; None if it has another form."""
    step, copies = _behind_copies(program, present)
    old, made = (program.buffers[n] for n in (past, present))
    if not isinstance(step, Compute) or step.fold != "none" or len(step.outs) > 1 or (
            old.dtype, old.stored, old.scale, len(old.shape)) != (
                made.dtype, made.stored, made.scale, len(made.shape)):
        return None
    body = step.body
    if not isinstance(body, Where) or not isinstance(body.cond, Binary) or (
            body.a != Load(past, step.axes, old.dtype)):
        return None
    for k, axis in enumerate(step.axes):
        rest = [are_equal(d, e) for i, (d, e) in enumerate(zip(old.shape, made.shape)) if i != k]
        if body.cond == compare("lt", axis, old.shape[k]) and all(rest):
            return AliasGrowth(past, present, k, step, simplify(old.shape[k]),
                               simplify(made.shape[k]), body.b, copies)
    return None


def _whole(program: Program, g: AliasGrowth) -> Whole | None:
    """A step that looks at one of the tensors as a whole, room and all."""
    names = {g.past, g.present, *g.copies}
    return next((s for s in program.steps if not isinstance(s, Compute)
                 and names.intersection(s.inputs)), None)


# ---------------------------------------------------------------- rewriting

def _in_place(program: Program, g: AliasGrowth, capacity: Expr) -> Program:
    """The Program with one output in the buffer of its input."""
    old, made = program.buffers[g.past], program.buffers[g.present]
    room = (*old.shape[:g.axis], capacity, *old.shape[g.axis + 1:])
    name = f"{g.present}_new"
    while name in program.buffers:
        name += "_"
    axes, body = _shifted(g)
    new = Buffer(name, tuple(a.extent for a in axes), old.dtype)
    steps: list[Step] = []
    for s in program.steps:
        if s is g.compute:
            rows, width = volume(old.shape[:g.axis]), volume(old.shape[g.axis + 1:])
            steps += [replace(s, outs=(name,), axes=axes, body=body),
                      LibCall("append", (), (g.past, name), (g.present,), s.origin,
                              (simplify(rows), simplify(g.kept * width)))]
        elif not {g.present, *g.copies}.intersection(s.outs):
            steps.append(_reading(s, g) if isinstance(s, Compute) else s)
    buffers = program.buffers | {name: new, g.past: replace(old, shape=room),
                                 g.present: replace(made, shape=room)}
    alias = Alias(g.present, g.past, g.axis, g.kept, g.filled)
    return replace(program, steps=tuple(steps), buffers=buffers,
                   aliases=(*program.aliases, alias))


def _shifted(g: AliasGrowth) -> tuple[tuple[Axis, ...], Expr]:
    """Axes and body of the new entries, counted from 0."""
    axis = g.compute.axes[g.axis]
    own = replace(axis, extent=simplify(g.filled - g.kept))
    axes = tuple(own if a == axis else a for a in g.compute.axes)

    def visit(e: Expr) -> Expr | None:
        return own + g.kept if e == axis else None
    return axes, simplify(rewrite(g.new, visit))


def _reading(s: Compute, g: AliasGrowth) -> Compute:
    """The Compute, reading the output where it read a copy of it."""
    if not set(g.copies).intersection(s.inputs):
        return s
    return replace(s, body=rewrite(s.body, lambda e: replace(e, buffer=g.present) if isinstance(
        e, Load) and e.buffer in g.copies else None))


def alias_notes(program: Program) -> list[str]:
    """A line for every alias, for people."""
    def onnx(names: Iterable[str]) -> Sequence[str]:
        return [program.buffers[n].onnx or n for n in names]
    out = []
    for a in program.aliases:
        present, past = onnx((a.present, a.past))
        room = show(program.shape(a.past)[a.axis])
        out.append(f"{present} lies in the buffer of {past}: {show(a.filled)} entries along axis "
                   f"{a.axis}, those from {show(a.kept)} on new, of {room} that it has room for")
    return out


__all__ = ["ROOM", "alias_notes", "with_aliases"]

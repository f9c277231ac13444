"""What is malformed in a Program: the definition of well-formed."""

from aotc.ir import library
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Expr, Load, Sym, Var, show, walk
from aotc.ir.program import (
    FOLDS,
    Alias,
    Branch,
    Compute,
    Fold,
    LibCall,
    Loop,
    Program,
    Region,
    static_shape,
)
from aotc.ir.simplify import are_equal


def check_program(program: Program) -> list[str]:
    """List of faults of a Program (empty if it is well formed): every buffer known and written
    once before it is read, shapes equal to axes' extents, ranks, dtypes, no stray axes."""
    faults: list[str] = []
    written = set(program.inputs) | set(program.consts)
    for name, array in program.consts.items():
        b = program.buffers.get(name)
        if b is None or static_shape(b.shape) != array.shape or (
                array.dtype != DTYPES[b.dtype].numpy):
            faults.append(f"const {name}: buffer and array disagree")
    for s in program.steps:
        faults += [f"{s.outs[0]}: reads {n} before it is written" for n in s.inputs
                   if n not in written]
        for o in s.outs:
            if o in written:
                faults.append(f"{o}: written twice")
            written.add(o)
            if o not in program.buffers:
                faults.append(f"{o}: no such buffer")
        if isinstance(s, Compute):
            faults += _check_compute(program, s)
        elif isinstance(s, (Loop, Branch)):
            faults += _check_region(program, s)
        elif all(n in program.buffers for n in s.inputs + s.outs):
            faults += library.faults(program, s)
    faults += [f"output {o} is never written" for o in program.outputs if o not in written]
    return faults + [f for a in program.aliases for f in _check_alias(program, a)]


def _check_alias(program: Program, alias: Alias) -> list[str]:
    """Faults of an Alias: what lies in the same place must have the same extents, and be changed by
    no other step than one that may work in place."""
    what = f"alias of {alias.present} and {alias.past}"
    if alias.present not in program.outputs or alias.past not in program.inputs:
        return [f"{what}: it must be an output and an input"]
    if sum(alias.past == a.past or alias.present == a.present for a in program.aliases) > 1:
        return [f"{what}: one of them has another alias, too"]
    made, old = program.buffers[alias.present], program.buffers[alias.past]
    if made.dtype != old.dtype or len(made.shape) != len(old.shape) or not all(
            map(are_equal, made.shape, old.shape)):
        return [f"{what}: they have other shapes: {made} and {old}"]
    s = program.producer.get(alias.present)
    row = library.LIBRARY.get(s.kernel) if isinstance(s, LibCall) else None
    if not isinstance(s, LibCall) or row is None or not row.grows or s.inputs[0] != alias.past:
        return [f"{what}: no step makes one of the other in place"]
    inside = [r for r in program.steps if isinstance(r, (Loop, Branch, LibCall)) and r is not s
              and {alias.past, alias.present}.intersection(r.inputs)]
    return [f"{what}: {r.outs[0]} reads one of them whole" for r in inside]


def _check_region(program: Program, s: Region) -> list[str]:
    """Faults of a region: of its bodies, and where a tensor inside is not what it is outside."""
    faults = [f"{s.name}: {f}" for body in s.bodies for f in check_program(body)]
    if isinstance(s, Loop):
        pairs = [(o, i, False) for x in s.states for o, i in (
            (x.start, x.before), (x.last, x.after), (x.spare, x.after))]
        pairs += [(x.whole, x.part, True) for x in (*s.slices, *s.stacks)]
        wanted = [x.after for x in s.states] + [x.part for x in s.stacks]
        if s.again and s.again not in {x.after for x in s.states}:
            faults.append(f"{s.name}: {s.again} ends it, which is no state's")
        if sorted(wanted) != sorted(s.body.outputs) or len(set(wanted)) != len(wanted):
            faults.append(f"{s.name}: its body makes {', '.join(s.body.outputs)}, the loop takes "
                          f"{', '.join(wanted)}")
    else:
        pairs = [(o, i, False) for b in s.bodies for o, i in zip(s.outs, b.outputs, strict=True)]
    inner = {n: x for body in s.bodies for n, x in body.buffers.items()}
    pairs += [(n, n, False) for n in s.captured]
    for outer, own, part in pairs:
        if outer not in program.buffers or own not in inner:
            faults.append(f"{s.name}: no buffer {outer} outside or {own} inside")
            continue
        a, b = program.buffers[outer], inner[own]
        shape = a.shape[part:]
        if a.dtype != b.dtype or len(shape) != len(b.shape) or not all(map(are_equal, shape,
                                                                           b.shape)):
            faults.append(f"{s.name}: {own} inside is no {'entry of ' * part}{outer}: {b} and {a}")
    return faults


def _check_compute(program: Program, c: Compute) -> list[str]:
    faults = []
    if len({a.name for a in c.axes + c.raxes}) != len(c.axes) + len(c.raxes):
        faults.append(f"{c.out}: axis names repeat")
    buf = program.buffers.get(c.out)
    if buf is not None:
        if len(buf.shape) != len(c.axes):
            faults.append(f"{c.out}: rank {len(buf.shape)} but {len(c.axes)} axes")
        elif not all(are_equal(a.extent, d) for a, d in zip(c.axes, buf.shape)):
            faults.append(f"{c.out}: shape and axes disagree")
        if isinstance(c.fold, str) and buf.dtype != c.body.dtype:
            faults.append(f"{c.out}: buffer is {buf.dtype}, body is {c.body.dtype}")
    if isinstance(c.fold, str) and (c.fold not in FOLDS or (c.fold == "none") == bool(c.raxes)):
        faults.append(f"{c.out}: fold {c.fold} with {len(c.raxes)} reduction axes")
    known = set(c.axes + c.raxes)
    for n in walk(c.body):
        if isinstance(n, Axis) and n not in known:
            faults.append(f"{c.out}: stray axis {n.name}")
        if isinstance(n, Var):
            faults.append(f"{c.out}: stray variable {n.name}")
        if isinstance(n, Sym) and n not in program.syms:
            faults.append(f"{c.out}: unknown symbol {n.name}")
        if isinstance(n, Load):
            b = program.buffers.get(n.buffer)
            if b is None or len(b.shape) != len(n.index) or b.dtype != n.dtype:
                faults.append(f"{c.out}: load {show(n)} does not fit its buffer")
    return faults + _check_fold(c)


def _check_fold(c: Compute) -> list[str]:
    """Faults of a fold of several states: what its expressions use beside the states, the element
    and, in updates, the reduction axes."""
    if not isinstance(c.fold, Fold):
        return []
    known = {Var("x", c.body.dtype), *(Var(n, d) for n, d in c.fold.states)}
    legal = ((c.fold.init, set[Expr]()), (c.fold.update, known | set(c.raxes)))
    return [f"{c.out}: its fold uses a stray {n.name}" for values, names in legal
            for e in values for n in walk(e) if isinstance(n, (Axis, Var)) and n not in names]

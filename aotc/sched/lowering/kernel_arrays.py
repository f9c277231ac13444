"""Which buffers of a kernel its text can index as arrays: those whose places all have indices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

from aotc.ir.access import ROUNDED, ArrayForm, ArrayOf
from aotc.ir.contents import buffers_in
from aotc.ir.expr import Const, Expr, loads, substitute
from aotc.ir.plan import Contract, Kernel
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import Box, For, Prefetch, Put
from aotc.ir.tile_statements import Expand, Pack, RowTable


def with_arrays(kernel: Kernel, forms: Mapping[str, ArrayForm]) -> Kernel:
    """The Kernel with the finest array for each buffer that has one.  forms: of the tensors outside
    of its scratch, which has none where threads share a work item.  None where clusters have work
    items dealt to them: places are in memories of their own then."""
    if kernel.clusters:
        return kernel
    own = {} if kernel.threads else {s.name: s.form for s in kernel.scratch if s.form is not None}
    known = {**{b: forms[b] for b in (*kernel.reads, *kernel.writes) if b in forms}, **own}
    used: dict[str, list[Expr | None]] = {}
    for buffer, offset in dict.fromkeys(_places(kernel.body, {})):
        used.setdefault(buffer, []).append(offset)
    found = (_array_of(b, known[b], offsets) for b, offsets in used.items() if b in known)
    return replace(kernel, arrays=tuple(a for a in found if a is not None))


def _array_of(buffer: str, form: ArrayForm, offsets: Sequence[Expr | None]) -> ArrayOf | None:
    """The finest array whose indices tell all these places; None if there is none."""
    if None in offsets:
        return None
    for inner in form.inners():
        for rounded in ROUNDED:
            if all(form.is_clear(e, inner, rounded) for e in offsets if e is not None):
                return ArrayOf(buffer, form, inner, rounded)
    return None


def _places(value: object, narrowed: Mapping[Expr, Expr]) -> Iterator[tuple[str, Expr | None]]:
    """(buffer, offset) of what statements touch; None where they take the buffer as a row.
    narrowed: axes by others of the extent that they have in a loop of long steps."""
    if isinstance(value, Expr):
        for load in loads(value):
            yield load.buffer, (
                _within(load.index[0], narrowed) if len(load.index) == 1 else None)
    elif isinstance(value, tuple):
        for v in value:
            yield from _places(v, narrowed)
    elif isinstance(value, Contract):  # written by a template
        yield from ((b, None) for b in buffers_in(value))
    elif isinstance(value, For):
        yield from _places((value.lo, value.hi, value.rest), narrowed)
        yield from _places(value.body, {**narrowed, **_steps(value)})
    elif is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, (Put, Box, RowTable)) or isinstance(
                value, Prefetch) and not value.beyond:
            yield value.buffer, _within(value.offset, narrowed)
        elif isinstance(value, (Pack, Expand)):
            yield from ((value.source, _within(value.offset, narrowed)), (value.to, None))
        if isinstance(value, RowTable) and value.outside:
            yield value.outside, None
        for f in fields(value):
            yield from _places(getattr(value, f.name), narrowed)


def _steps(loop: For) -> dict[Expr, Expr]:
    """The axis of a loop of long steps by one that ends where its last whole step begins."""
    top = upper(loop.hi)
    whole = bool(loop.rest) or simplify((loop.hi - loop.lo) % loop.step) == Const(0)
    if loop.step == 1 or not whole or top is None or top < loop.step:
        return {}
    return {loop.axis: replace(loop.axis, extent=Const(top - loop.step + 1))}


def _within(offset: Expr, narrowed: Mapping[Expr, Expr]) -> Expr:
    return simplify(substitute(offset, dict(narrowed))) if narrowed else offset


__all__ = ["with_arrays"]

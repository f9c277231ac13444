"""Which buffers of a kernel its text can index as arrays: those whose places all have indices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

from aotc.ir.access import ArrayForm, ArrayOf
from aotc.ir.contents import buffers_in
from aotc.ir.expr import Const, Expr, axes_of, loads
from aotc.ir.plan import Contract, Kernel
from aotc.ir.simplify import lower, simplify, upper
from aotc.ir.statements import Box, For, Prefetch, Put
from aotc.ir.tile_statements import Expand, Pack, RowTable

_Narrowed = tuple[tuple[Expr, Expr], ...]  # (axis, an expression of the values that it has)
_Place = tuple[Expr, _Narrowed] | None


def with_arrays(kernel: Kernel, forms: Mapping[str, ArrayForm]) -> Kernel:
    """The Kernel with the finest array for each buffer that has one.  forms: of the tensors outside
    of its scratch, which has none where threads share a work item.  None where clusters have work
    items dealt to them: places are in memories of their own then."""
    if kernel.clusters:
        return kernel
    own = {} if kernel.threads else {s.name: s.form for s in kernel.scratch if s.form is not None}
    known = {**{b: forms[b] for b in (*kernel.reads, *kernel.writes) if b in forms}, **own}
    used: dict[str, dict[_Place, None]] = {}
    for buffer, place in _places(kernel.body, ()):
        used.setdefault(buffer, {})[place] = None
    found = (_array_of(b, known[b], [*places]) for b, places in used.items() if b in known)
    return replace(kernel, arrays=tuple(a for a in found if a is not None))


def _array_of(buffer: str, form: ArrayForm, places: Sequence[_Place]) -> ArrayOf | None:
    """The finest array whose indices tell all these places; None if there is none."""
    offsets = [(p[0], dict(p[1])) for p in places if p is not None]
    if len(offsets) < len(places):
        return None
    return next((array for array in form.arrays(buffer)
                 if all(array.is_clear(e, narrowed) for e, narrowed in offsets)), None)


def _places(value: object, narrowed: _Narrowed) -> Iterator[tuple[str, _Place]]:
    """(buffer, place) of what statements touch; None where they take the buffer as a row.
    narrowed: axes by the values that they have in the loops around."""
    if isinstance(value, Expr):
        for load in loads(value):
            yield load.buffer, _at(load.index[0], narrowed) if len(load.index) == 1 else None
    elif isinstance(value, tuple):
        for v in value:
            yield from _places(v, narrowed)
    elif isinstance(value, Contract):  # written by a template
        yield from ((b, None) for b in buffers_in(value))
    elif isinstance(value, For):
        yield from _places((value.lo, value.hi), narrowed)
        yield from _places(value.body, (*narrowed, *_values(value, value.step)))
        yield from _places(value.rest, (*narrowed, *_values(value, 1)))
    elif is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, (Put, Box, RowTable)) or isinstance(
                value, Prefetch) and not value.beyond:
            yield value.buffer, _at(value.offset, narrowed)
        elif isinstance(value, (Pack, Expand)):
            yield from ((value.source, _at(value.offset, narrowed)), (value.to, None))
        if isinstance(value, RowTable) and value.outside:
            yield value.outside, None
        for f in fields(value):
            yield from _places(getattr(value, f.name), narrowed)


def _values(loop: For, step: int) -> _Narrowed:
    """The axis of a loop, and what it is from the first value to that where the last whole step
    begins; nothing if that is not known."""
    first, top = max(lower(loop.lo) or 0, 0), upper(loop.hi)
    whole = step == 1 or bool(loop.rest) or simplify((loop.hi - loop.lo) % step) == Const(0)
    if top is None or not whole or top - step < first:
        return ()
    return ((loop.axis, simplify(replace(
        loop.axis, extent=Const(top - step - first + 1)) + first)),)


def _at(offset: Expr, narrowed: _Narrowed) -> _Place:
    """An offset, with the values of its axes."""
    own = {*axes_of(offset)}
    return offset, tuple((a, e) for a, e in dict(narrowed).items() if a in own)


__all__ = ["with_arrays"]

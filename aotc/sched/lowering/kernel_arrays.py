"""Which buffers of a kernel its text can index as arrays: those whose places all have indices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

from aotc.ir.access import ArrayForm, ArrayOf
from aotc.ir.block_statements import Digits, Neighbours, Owned, Product
from aotc.ir.expr import Const, Expr, compare, contains
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.read_boxes import Facts, conditions, guarded_loads
from aotc.ir.simplify import proves, simplify, upper
from aotc.ir.statements import TILE, Body, Box, For, If, Let, Prefetch, Put, Range, Stmt
from aotc.ir.tile_statements import Expand, Pack, Point, RowTable, Tile, Vector
from aotc.oracle.points import How
from aotc.oracle.prove import ProofScope, is_never_negative

_Place = tuple[Expr | None, ProofScope, Facts]  # offset (None: the buffer is taken as a row), where


def with_arrays(kernel: Kernel, forms: Mapping[str, ArrayForm]) -> Kernel:
    """The Kernel with the finest array for each buffer that has one.  forms: of the tensors outside
    of its scratch, which has none where threads share a work item.  None where clusters have work
    items dealt to them: places are in memories of their own then."""
    if kernel.lowered.dealt is not None:
        return kernel
    own = {} if kernel.threads else {s.name: s.form for s in kernel.scratch if s.form is not None}
    known = {**{b: forms[b] for b in (*kernel.reads, *kernel.writes) if b in forms}, **own}
    known = {b: form for b, form in known.items() if any(form.arrays(b))}
    used: dict[str, dict[_Place, None]] = {b: {} for b in known}
    tiles = ProofScope({TILE: ("range", Const(0), simplify(kernel.tiles - 1))})
    for buffer, place in _places(kernel.body, tiles, ()):
        if buffer in used:
            used[buffer][place] = None
    proved: dict[object, bool] = {}
    found = (next((a for a in known[b].arrays(b)
                   if all(has_indices(a, *p, proved) for p in places)), None)
             for b, places in used.items() if places)
    return replace(kernel, arrays=tuple(a for a in found if a is not None))


def has_indices(array: ArrayOf, offset: Expr | None, scope: ProofScope, facts: Facts,
                 proved: dict[object, bool]) -> bool:
    """True if the indices of a place are proved to lie in their extents.  proved: the answers of
    one kernel's proofs, which many places and arrays ask for."""
    if offset is None:
        return False
    for e, n in zip(array.index(offset)[1:], array.inner):
        if _runs_past(e, n, scope, facts):
            return False
        for gap in (e, simplify(n - 1 - e)):
            if gap not in proved:
                proved[gap] = proves(compare("ge", gap, 0))
            if not proved[gap] and not _in_scope(gap, scope, facts, proved):
                return False
    return True


def _runs_past(e: Expr, n: int, scope: ProofScope, facts: Facts) -> bool:
    """True for the axis of a loop whose end may be twice ``n``, as far as single bounds tell, and
    of which no fact knows: it counts through several dimensions, and a proof that it does not would
    be long and in vain."""
    kind, *ends = ("",) if any(contains(f, e) for f in facts) else scope.how(e)
    last = upper(ends[1]) if kind == "range" else 0
    return last is None or last >= 2 * n


def _in_scope(gap: Expr, scope: ProofScope, facts: Facts, proved: dict[object, bool]) -> bool:
    """``is_never_negative``, asked once for all places whose names are bound alike."""
    names = scope.about(gap, *facts)
    key = gap, tuple(names.items()), facts
    if key not in proved:
        proved[key] = is_never_negative(gap, ProofScope(names), facts)
    return proved[key]


def _places(value: object, scope: ProofScope, facts: Facts) -> Iterator[tuple[str, _Place]]:
    """(buffer, place) of what statements touch.  facts: index expressions that are >= 0."""
    if isinstance(value, Expr):
        for load, known in guarded_loads(value, facts):
            yield load.buffer, (load.index[0] if len(load.index) == 1 else None, scope, known)
    elif isinstance(value, tuple):
        if value and isinstance(value[0], Stmt):
            yield from _in_order(value, scope, facts)
            return
        for v in value:
            yield from _places(v, scope, facts)
    elif is_dataclass(value) and not isinstance(value, type):
        for buffer, offset in _touched(value):
            known = facts + conditions(value.guard, True) if isinstance(
                value, RowTable) and value.guard is not None else facts
            yield buffer, (offset, _inside(value, scope), known)
        yield from _in_parts(value, _inside(value, scope), facts)


def _in_order(body: Body, scope: ProofScope, facts: Facts) -> Iterator[tuple[str, _Place]]:
    """Of statements, of which names are known to those behind them."""
    for s in body:
        yield from _places(s, scope, facts)
        if isinstance(s, Let):
            scope = scope.inside({s.var: ("value", s.value)})
        elif isinstance(s, Digits):  # at points that are there: what is not is touched nowhere
            scope = scope.inside(_ranges(s.ranges))


def _in_parts(value: object, scope: ProofScope, facts: Facts) -> Iterator[tuple[str, _Place]]:
    """Of all that a statement holds, by the conditions under which it is done."""
    if isinstance(value, If):
        yield from _places(value.cond, scope, facts)
        for body, holds in ((value.body, True), (value.other, False)):
            yield from _places(body, scope, facts + conditions(value.cond, holds))
    elif isinstance(value, Point):
        for cond, box in value.ways:
            known = () if cond is None else conditions(cond, True)
            yield from _places(box, scope, facts + known)
    elif isinstance(value, For):
        yield from _places((value.lo, value.hi), scope, facts)
        yield from _places(value.body, scope, facts)
        yield from _places(value.rest, scope.inside(_range(value, 1)), facts)
    elif is_dataclass(value):
        for f in fields(value):
            yield from _places(getattr(value, f.name), scope, facts)


def _touched(value: object) -> Sequence[tuple[str, Expr | None]]:
    """(buffer, offset) of what a statement or a part of one touches by itself."""
    if isinstance(value, RowTable):
        return [(value.buffer, value.offset), (value.outside, None)]
    if isinstance(value, (Put, Box)) or isinstance(value, Prefetch) and not value.beyond:
        return [(value.buffer, value.offset)]
    if isinstance(value, (Pack, Expand)):
        return [(value.source, value.offset), (value.to, None)]
    if isinstance(value, Tile):
        return [(b.buffer, simplify(b.offset + value.a.first)) for b in value.a.places]
    return ()


def _inside(value: object, scope: ProofScope) -> ProofScope:
    """What is bound inside of a statement."""
    if isinstance(value, For):
        return scope.inside(_range(value, value.step))
    if isinstance(value, Vector):
        return scope.inside({value.axis: ("value", value.first)})
    if isinstance(value, Product):
        return scope.inside({a: ("value", Const(n)) for a, n in value.constants})
    if isinstance(value, Owned):
        count = value.sums.mr if value.what == "rows" else value.sums.nr
        last = simplify(value.first + (count - 1))
        return scope.inside({value.axis: ("range", value.first, last)})
    if isinstance(value, Neighbours):
        last = simplify(value.first + (value.wide.width - 1))
        return scope.inside({value.axis: ("range", value.first, last)})
    for f in fields(value) if is_dataclass(value) and not isinstance(value, For) else ():
        ranges = getattr(value, f.name)
        if isinstance(ranges, tuple) and ranges and isinstance(ranges[0], Range):
            scope = scope.inside(_ranges(ranges))
    return scope


def _ranges(ranges: Iterable[Range]) -> dict[Expr, How]:
    return {r.axis: ("range", r.lo, simplify(r.hi - 1)) for r in ranges}


def _range(loop: For, step: int) -> dict[Expr, How]:
    """The axis of a loop, up to where its last step begins."""
    whole = step == 1 or bool(loop.rest) or simplify((loop.hi - loop.lo) % step) == Const(0)
    return {loop.axis: ("range", loop.lo, simplify(loop.hi - (step if whole else 1)))}


__all__ = ["has_indices", "with_arrays"]

"""Moves that stay computes of their own, since a fold that took them in would pay for them at every
tap.

A depthwise window over what a pixel shuffle has put in order, with the shuffle taken in, looks
every element up by quotients and remainders, nine times each:

    y[c, h, w] = sum(p, q) x[c*4 + (h + p) % 2 * 2 + (w + q) % 2, (h + p) // 2, (w + q) // 2] * ..

No loop of it walks along memory.  Copied once, the tensor lies as the window reads it.
"""

from collections.abc import Iterable, Iterator

from aotc.ir.access import offset_of, volume
from aotc.ir.category import category
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, axes_of, substitute, walk
from aotc.ir.program import Compute, Program
from aotc.ir.simplify import lower, simplify, split_linear


def stands_apart(program: Program, step: Compute, move: Compute) -> bool:
    """True if ``step``, which reads what ``move`` makes, had better not read what it moves.

    So it is where quotients or remainders mix output and reduction axes of a product or a window,
    and where a window would no longer have its channels side by side; not where the move repeats
    elements.  ``move``: a compute without a fold.
    """
    if not isinstance(step.fold, str) or not isinstance(move.body, Load) or (
            move.body.buffer in program.consts) or _repeats(program, move, move.body.buffer):
        return False
    kind = category(step.axes, step.raxes, step.fold, step.body)
    if kind not in ("window", "contraction", "dot"):
        return False
    for n in (n for n in step.loads if n.buffer == move.out):
        at: dict[Expr, Expr] = dict(zip(move.axes, n.index))
        index = tuple(simplify(substitute(i, at)) for i in move.body.index)
        source = Load(move.body.buffer, index, move.body.dtype)
        if _is_torn(program, step, n, source) or kind == "window" and not _keeps_channels(
                program, step, n, source):
            return True
    return False


def _repeats(program: Program, move: Compute, source: str) -> bool:
    """True unless a move makes at most as many elements as its source has."""
    spare = lower(simplify(volume(program.shape(source)) - volume(a.extent for a in move.axes)))
    return spare is None or spare < 0


def _is_torn(program: Program, step: Compute, load: Load, source: Load) -> bool:
    """True where ``source``, which ``load`` would become, is looked up by quotients or remainders
    of output and reduction axes together; in the channels of a group that a window slides over,
    also by those of the reduction axis.  A mere reshape of row-major memory is none of it."""
    own, folded = _real(step.axes), _real(step.raxes)
    if not any(_parts(offset_of(source.index, program.shape(source.buffer)))):
        return False
    mixed = [i for i in load.index if axes_of(i) & own and axes_of(i) & folded]
    for i in source.index:
        within = len(mixed) > 1 and axes_of(i) & own
        if any(found & folded and (found & own or within) for found in _parts(i)):
            return True
    return False


def _keeps_channels(program: Program, step: Compute, load: Load, source: Load) -> bool:
    """True if neighbours along the innermost axis that a window does not slide along stay
    neighbours in the source, or if the columns of an input do."""
    plain = [i for i in load.index if i in _real(step.axes)]
    if not plain or program.buffers[source.buffer].role == "input" and not any(
            _parts(source.index[-1])):
        return True
    steps = [split_linear(i, plain[-1]) for i in source.index if plain[-1] in axes_of(i)]
    return any(found is not None and found[0] == Const(1) for found in steps)


def _parts(index: Expr) -> Iterator[set[Axis]]:
    """The axes of every quotient and remainder in an index."""
    return (axes_of(n) for n in walk(index)
            if isinstance(n, Binary) and n.op in ("floordiv", "mod"))


def _real(axes: Iterable[Axis]) -> set[Axis]:
    return {a for a in axes if a.extent != Const(1)}


__all__ = ["stands_apart"]

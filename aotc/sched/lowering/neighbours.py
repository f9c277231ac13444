"""What one thread of a block may read and store of neighbours at once: by accesses of up to 16
bytes, where elements lie side by side and at a multiple of as many."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aotc.errors import ScheduleError
from aotc.ir.access import is_multiple, is_unit, stride, volume
from aotc.ir.block_statements import ACCESS, Wide, access_bytes
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Load, Where, children, loads, substitute, walk
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.ir.program import Program
from aotc.ir.simplify import are_equal, lower, simplify, upper
from aotc.ir.statements import Range
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

NARROW = ACCESS // 2  # bytes of an access of the narrowest elements, at least

Lined = Mapping[str, Expr]  # {buffer: its elements, at least}


@dataclass(frozen=True)
class Lines:
    """Where a kernel's buffers begin: those that ``lined`` names at a multiple of 16 bytes.  lets:
    what the names of its work items stand for."""

    lined: Lined
    lets: Mapping[Expr, Expr]

    def hits(self, offset: Expr, along: Range, width: int, buffer: str, dtype: str) -> bool:
        """True if ``width`` neighbours from the first value of ``along`` on, or a multiple of as
        many behind it, are read by aligned accesses."""
        if buffer not in self.lined or not is_unit(offset, along.axis):
            return False
        first = simplify(substitute(offset, {along.axis: along.lo}))
        return is_multiple(first, access_bytes(width, dtype) // DTYPES[dtype].size, self.lets)

    def holds(self, load: Load) -> bool:
        """True if what a Load reads is surely there, whatever guards it."""
        at, size = load.index[0], self.lined.get(load.buffer)
        if size is None or loads(at):
            return False
        past = upper(simplify(at - size))
        return (lower(at) or 0) >= 0 and lower(at) is not None and past is not None and past < 0


def lined_buffers(program: Program, kernel: LoweredKernel, target: Target) -> Lined:
    """{buffer: its elements} of those that a kernel of blocks of threads touches which begin at a
    multiple of 16 bytes outside its memory: what the arena and the weights hold, and the model's
    own tensors (which have a name in ONNX; in the body of a region an input may be a part) where
    the target asks that of callers."""
    own = ("temp", "const")
    found = dict[str, Expr]()
    for name in (*kernel.reads, *kernel.writes) if kernel.threads else ():
        b = program.buffers[name]
        if b.role in own or target.aligned and b.onnx:
            found[name] = volume(b.shape)
    return found


def lines_of(kernel: LoweredKernel, lined: Lined) -> Lines:
    """The Lines of a kernel whose buffers ``lined`` outside its memory begin at such multiples."""
    scratch = {s.name: Const(s.elements) for s in kernel.scratch if isinstance(s.offset, int)
               and isinstance(s.elements, int) and s.offset % ACCESS == 0}
    return Lines({**lined, **scratch}, dict(kernel.lets))


def wides(nest: Nest, lines: Lines) -> tuple[Wide, ...]:
    """What a thread may read and store at once of several neighbours of a Nest, the most first:
    what a map stores, all of it, and loads beside; or loads of a sum along the lanes."""
    along = range_of(nest)
    if along is None:
        return ()
    values = tuple(p.value for p in nest.puts) if nest.fold == "none" else (nest.body,)
    found = dict(x for e in values for x in _values_read(e, lines, True))
    inside = {x for n in walk(*values) if isinstance(n, Load) for i in n.index for x in loads(i)}
    reads = [x for x, always in found.items() if always and x not in inside]
    stored = [(p.buffer, p.offset, p.value.dtype) for p in nest.puts] * (nest.fold == "none")
    if len({p.buffer for p in nest.puts}) < len(nest.puts) or any(
            p.guard is not None for p in nest.puts) or not all(
            _near(x.index[0], along.axis) for x in found):
        return ()
    out, width = [], _most([x.dtype for x in reads if is_unit(x.index[0], along.axis)] +
                           [dtype for *_, dtype in stored])
    while width > 1:
        wide = Wide(width, tuple(
            x for x in reads if lines.hits(x.index[0], along, width, x.buffer, x.dtype)),
            tuple(b for b, *_ in stored))
        whole = is_multiple(simplify(along.hi - along.lo), width, lines.lets)
        if (stored or wide.reads) and (whole or bool(stored) and len(nest.ranges) == 1) and all(
                lines.hits(at, along, width, b, dtype) for b, at, dtype in stored):
            out.append(wide)
        width //= 2
    return tuple(out)


def wide_of_product(c: Contract, row: ProductRow, lines: Lines) -> Wide | None:
    """The most that a thread may read and store at once of a product's results, where threads
    exchange their sums: columns side by side, all of them stored so; None if there are none."""
    if not row.exchanged or len({p.buffer for p in c.puts}) < len(
            c.puts) or any(p.guard is not None for p in c.puts):
        return None
    found = dict(x for p in c.puts for x in _values_read(p.value, lines, True))
    inside = {x for n in walk(*(p.value for p in c.puts)) if isinstance(n, Load)
              for i in n.index for x in loads(i)}
    reads = [x for x, always in found.items() if always and x not in inside
             and is_unit(x.index[0], c.n.axis)]
    stored = [(p.buffer, p.offset, p.value.dtype) for p in c.puts]
    width = min(row.exchanged, _most([x.dtype for x in reads] + [
        dtype for *_, dtype in stored]))
    while width >= 4:
        if c.grain % width == 0 and all(lines.hits(at, c.n, width, b, t) for b, at, t in stored):
            return Wide(width, tuple(x for x in reads if lines.hits(
                x.index[0], c.n, width, x.buffer, x.dtype)), tuple(b for b, *_ in stored))
        width //= 2
    return None


def sure_reads(nest: Nest, lines: Lines) -> list[Load]:
    """The loads in a Nest's values that are made whatever conditions say, at places that no data
    say."""
    values = (*((nest.body,) if nest.fold != "none" else ()), *(p.value for p in nest.puts))
    found = dict.fromkeys(x for e in values for x, always in _values_read(e, lines, True) if always)
    return [x for x in found if not any(loads(i) for i in x.index)]


def wide_row(nest: Nest, along: Range, width: int, lines: Lines) -> Wide:
    """What of a Nest lies so that a thread reads and stores ``width`` neighbours at once."""
    return Wide(width, tuple(x for x in sure_reads(nest, lines) if lines.hits(
        x.index[0], along, width, x.buffer, x.dtype)), tuple(
            p.buffer for p in nest.puts if lines.hits(
                p.offset, along, width, p.buffer, p.value.dtype)))


def range_of(nest: Nest) -> Range | None:
    """The Range whose neighbours one thread may have several of: the innermost of a map, the lanes
    of a sum along them; None of other nests."""
    if nest.fold == "none":
        return nest.ranges[-1] if nest.ranges else None
    return nest.reduce[-1] if nest.folds_lanes and isinstance(nest.fold, str) else None


def wide_of(nest: Nest, width: int, lines: Lines) -> Wide | None:
    """The most that a thread may have at once of a Nest, of ``width`` neighbours at most."""
    return next((w for w in wides(nest, lines) if w.width <= width), None)


def check_neighbours(nests: Sequence[Nest], lines: Lines) -> None:
    """ScheduleError where the Nests of a stage say that a thread has several neighbours and none of
    them can."""
    told = [n for n in nests if (n.writing.neighbours or 1) > 1]
    if told and not any(wides(n, lines) for n in told):
        raise ScheduleError([
            f"{told[0].row}: neighbours {told[0].writing.neighbours}; no elements lie side by side "
            "at a multiple of their accesses here: remove neighbours"])


def _most(dtypes: list[str]) -> int:
    """Neighbours of a thread whose accesses are of these dtypes: 16 bytes of the widest, and no
    less than 8 of the narrowest."""
    sizes = [DTYPES[d].size for d in dtypes]
    return max(ACCESS // max(sizes), NARROW // min(sizes)) if sizes else 1


def _near(offset: Expr, axis: Axis) -> bool:
    """True for the same element, or neighbours, along an axis."""
    step = stride(offset, axis)
    return step is not None and any(are_equal(step, Const(n)) for n in (0, 1))


def _values_read(e: Expr, lines: Lines, always: bool) -> Iterator[tuple[Load, bool]]:
    """(a Load in a value, not in an index of it, whether it may be made whatever conditions say).
    always: whether the value is asked for whatever they say."""
    if isinstance(e, Load):
        yield e, always or lines.holds(e)
        return
    branches = (e.a, e.b) if isinstance(e, Where) else ()
    for c in children(e):
        yield from _values_read(c, lines, always and c not in branches)


__all__ = ["Lined", "Lines", "check_neighbours", "lined_buffers", "lines_of", "range_of",
           "sure_reads", "wide_of", "wide_of_product", "wide_row", "wides"]

"""Sizes of the boxes of one group's tiles, and what follows from them: traffic, footprint, cycles.

``GroupModel.boxes`` follows a tile from the anchor back to what the group reads; traffic, footprint
and arithmetic follow from the boxes.  Searches ask for thousands of tiles that differ in one
extent, so what a stage answers for its own widths is kept.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate
from math import prod
from typing import Any

from aotc.errors import ScheduleError
from aotc.sched.model.tile_starts import Hull, hull

Widths = tuple[int, ...]  # along axes
Width = Callable[[Sequence[int]], int]  # of a dimension, from the widths of a stage
Boxes = list[tuple[Widths, Widths]]  # per stage: reductions whole, and cut as a tile says

RAGGED = 3  # axes of a tile whose ends are looked at


@dataclass(frozen=True)
class Extra:
    """Cost of a stage in additions: ``scale`` times its arithmetic, plus ``per_point`` of its
    fold, plus ``per_output``; plus, for each operand that a work item packs, (additions, names of
    axes) of each point of a work item that the axes have in common."""

    scale: int = 1
    per_point: int = 0
    per_output: int = 0
    packs: tuple[tuple[int, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Access:
    """The boxes one stage reads of a buffer, or writes.

    extents: the buffer's, ints; size: bytes of an element; boxes: per distinct access one tuple
    of widths, each a function of the stage's widths; reduces: positions (in the stage's widths) of
    the reduction axes it moves along; elementwise: read exactly where the stage writes.
    counts: like boxes, but of a dimension indexed by data only the entries looked up, and in the
    order of memory, outermost first; stored: the extents in that order.
    lows: per box where it starts in every dimension, in the first tile.
    """

    buffer: str
    extents: Widths
    size: int
    boxes: tuple[tuple[Width, ...], ...]
    reduces: tuple[int, ...] = ()
    elementwise: bool = False
    counts: tuple[tuple[Width, ...], ...] = ()
    stored: Widths = ()
    lows: tuple[tuple[int, ...], ...] = ()

    def shape(self, widths: Sequence[int]) -> Widths:
        """Extents of the hull of the boxes."""
        return tuple([hi - lo for lo, hi in self.ends(widths)])

    def ends(self, widths: Sequence[int]) -> Hull:
        """(first, end) of the hull of the boxes in every dimension, in the first tile."""
        if len(self.boxes) == 1:
            return tuple([(lo, lo + min(f(widths), n)) for f, lo, n in zip(
                self.boxes[0], self.lows[0], self.extents)])
        ends = reduce(hull, [tuple((lo, lo + f(widths)) for f, lo in zip(box, lows))
                             for box, lows in zip(self.boxes, self.lows)])
        return tuple((lo, min(hi, lo + n)) for (lo, hi), n in zip(ends, self.extents))

    def bytes(self, widths: Sequence[int], unit: int = 1) -> int:
        """Bytes of the boxes together, at most the whole buffer's; with ``unit``, every contiguous
        run in memory counts as whole units."""
        if unit > 1:
            return self._runs(widths, unit)
        total = 0
        for box in self.counts:
            n = self.size
            for f, extent in zip(box, self.stored):
                w = f(widths)
                n *= w if w < extent else extent
            total += n
        return total if len(self.boxes) == 1 else min(total, prod(self.extents) * self.size)

    def _runs(self, widths: Sequence[int], unit: int) -> int:
        total = 0
        for box in self.counts:
            shape = [min(f(widths), n) for f, n in zip(box, self.stored)]
            run, inner = self.size, len(shape)
            while inner and (inner == len(shape) or shape[inner] == self.stored[inner]):
                inner -= 1
                run *= shape[inner]
            total += prod(shape[:inner]) * -(-run // unit) * unit
        return total


@dataclass(frozen=True)
class StageModel:
    """One stage: names and extents of its axes and reduction axes, in that order (``rank`` of them
    are axes); accesses; arithmetic per point of the fold and per output point."""

    name: str
    axes: tuple[str, ...]
    extents: Widths
    rank: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    preimage: tuple[tuple[Width, ...], ...]  # per written buffer and axis, from its dims' widths
    per_point: int
    per_output: int
    contraction: bool
    # arithmetic per point of what a work item packs, and its positions in the widths
    packs: tuple[tuple[int, tuple[int, ...]], ...]
    split: tuple[str, ...]  # names of the reduction axes that may be cut

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """What was found for given widths."""
        return {}

    def asked(self, needs: tuple[Hull | None, ...]) -> Widths:
        """Widths of the axes that cover what later stages read of it; needs: per written buffer
        ((first, end), ...) or None."""
        found = self.known.get(needs)
        if found is None:
            box = [0] * self.rank
            for a, back, ends in zip(self.writes, self.preimage, needs):
                if ends is not None:
                    need = [min(hi - lo, n) for (lo, hi), n in zip(ends, a.extents)]
                    box = [max(b, min(f(need), n)) for b, f, n in zip(box, back, self.extents)]
            found = self.known[needs] = tuple([max(1, b) for b in box])
        return found

    def ends(self, whole: Widths) -> tuple[tuple[str, Hull], ...]:
        """((buffer, its hull), ...) of what it reads, as ``Access.ends``."""
        found = self.known.get(whole)
        if found is None:
            found = self.known[whole] = tuple([(a.buffer, a.ends(whole)) for a in self.reads])
        return found

    def sizes(self, widths: Widths, unit: int = 1) -> tuple[Widths, Widths]:
        """(bytes of every read, bytes of every write), as ``Access.bytes``."""
        found = self.known.get((unit, widths))
        if found is None:
            found = self.known[unit, widths] = tuple(
                [tuple([a.bytes(widths, unit) for a in accesses])
                 for accesses in (self.reads, self.writes)])
        return found


@dataclass(frozen=True)
class GroupModel:
    """A group's stages in execution order.

    axes, extents: the tile's variables: the anchor's axes, then ``stage.raxis`` for every
    reduction that may be cut; scratch: buffers that flow between stages; outputs: stored.
    """

    name: str
    stages: tuple[StageModel, ...]
    anchor: int
    axes: tuple[str, ...]
    extents: Widths
    rank: int  # how many of the axes are the anchor's
    scratch: frozenset[str]
    outputs: tuple[str, ...]
    cut: tuple[tuple[int, int], ...]  # per variable beyond rank: (stage, position in its widths)

    @cached_property
    def known(self) -> dict[Widths, Boxes]:
        """What was found for given tiles."""
        return {}

    @cached_property
    def cuts(self) -> dict[int, list[tuple[int, int]]]:
        """{stage number: [(position in its widths, position among the variables)]}."""
        out: dict[int, list[tuple[int, int]]] = {}
        for v, (stage, place) in enumerate(self.cut, self.rank):
            out.setdefault(stage, []).append((place, v))
        return out

    def variables(self, tile: Mapping[str, int],
                  split: Mapping[str, Mapping[str, int]] | None = None) -> Widths:
        """Tuple of widths for ``axes`` from {axis: extent} and {stage: {raxis: extent}}."""
        named = {f"{s}.{r}": n for s, part in (split or {}).items() for r, n in part.items()}
        unknown = [n for n in [*tile, *named] if n not in self.axes]
        if unknown:
            raise ScheduleError(f"group {self.name}: no axis {', '.join(unknown)} to cut; choose "
                                f"from {', '.join(self.axes)}")
        return tuple(min(n, named.get(a, tile.get(a, n))) for a, n in zip(self.axes, self.extents))

    def boxes(self, tile: Widths) -> Boxes:
        """Widths of every stage for a tile (a tuple along ``axes``): list of (whole, sliced) per
        stage: reduction axes whole, and cut to the tile's reduction split."""
        if tile not in self.known:
            self.known[tile] = self._boxes(tile)
        return self.known[tile]

    def _boxes(self, tile: Widths) -> Boxes:
        demand: dict[str, Hull] = {}
        out: Boxes = [((), ())] * len(self.stages)
        for i in range(len(self.stages) - 1, -1, -1):
            s = self.stages[i]
            wide = tuple(tile[:self.rank]) if i == self.anchor else s.asked(
                tuple([demand.get(a.buffer) for a in s.writes]))
            whole = wide + s.extents[s.rank:]
            sliced = whole
            for place, v in self.cuts.get(i, ()):
                if tile[v] < whole[place]:
                    sliced = sliced[:place] + (tile[v],) + sliced[place + 1:]
            out[i] = whole, sliced
            for buffer, ends in s.ends(whole) if self.scratch else ():
                if buffer in self.scratch:
                    demand[buffer] = hull(demand.get(buffer), ends)
        return out

    def tiles(self, tile: Widths) -> int:
        """Number of tiles of the whole output."""
        n = 1
        for w, e in zip(tile[:self.rank], self.extents):
            n *= -(-e // w)
        return n

    def parts(self, tile: Widths) -> list[tuple[int, Widths]]:
        """[(number, widths)] of the tiles that the output is cut into, whole ones first: those at
        its far ends are what is left (along ``RAGGED`` axes at most; the others count as whole)."""
        out: list[tuple[int, Widths]] = [(1, ())]
        cut = 0
        for w, e in zip(tile[:self.rank], self.extents):
            whole, left = divmod(e, w)
            if left and cut == RAGGED:
                whole, left = whole + 1, 0
            cut += left > 0
            out = [(n * c, t + (x,)) for n, t in out
                   for c, x in ((whole, w), (1, left)) if c and x]
        return [(n, t + tuple(tile[self.rank:])) for n, t in out]

    def traffic(self, tile: Widths, free: Collection[str] = frozenset(), boxes: Boxes | None = None,
                unit: int = 1, fetch: bool = False, streamed: bool = False) -> int:
        """Bytes the group moves in and out of the level that holds ``tile``, for its whole output;
        buffers named in ``free`` cost nothing; ``unit``: bytes that always move together;
        ``fetch``: what is stored is fetched first, free or not; ``streamed``: slices of a reduction
        follow each other, so that together they move what the reduction would in one go."""
        return sum(n * self._moved(boxes if boxes and part == tile else self.boxes(part), free,
                                   unit, fetch, streamed) for n, part in self.parts(tile))

    def moved(self, tile: Widths) -> int:
        """Bytes in and out for one tile."""
        return self._moved(self.boxes(tile), frozenset(), 1, False, False)

    def _moved(self, boxes: Boxes, free: Collection[str], unit: int, fetch: bool,
               streamed: bool) -> int:
        """Bytes in and out for one tile."""
        total = 0
        best: dict[str, int] = {}
        for s, (whole, sliced) in zip(self.stages, boxes):
            for a, n in zip(s.reads, s.sizes(sliced, unit)[0]):
                if a.buffer in self.scratch or a.buffer in free:
                    continue
                if sliced is not whole:
                    n = _all_slices(a, n, whole, sliced, unit, streamed)
                    if not s.contraction and any(sliced[r] < whole[r] for r in a.reduces):
                        total += n  # a fold's slices are gone when a later stage reads them again
                        continue
                best[a.buffer] = max(best.get(a.buffer, 0), n)
            for a, n in zip(s.writes, s.sizes(whole, unit)[1]):
                if a.buffer in self.outputs and (fetch or a.buffer not in free):
                    total += n
        return total + sum(best.values())

    def measure(self, tile: Widths, free: Collection[str] = frozenset(), unit: int = 1,
                fetch: bool = False, streamed: bool = False) -> tuple[int, int]:
        """(traffic, peak) of a tile; what searches ask thousands of times."""
        if len(self.stages) > 1:
            boxes = self.boxes(tile)
            return self.traffic(tile, free, boxes, unit, fetch, streamed), self.peak(tile, boxes)
        moved, live = 0, 0
        for n, part in self.parts(tile):
            more, size = self._alone(part, free, unit, fetch, streamed)
            moved, live = moved + n * more, live or size
        return moved, live

    def _alone(self, tile: Widths, free: Collection[str], unit: int, fetch: bool,
               streamed: bool) -> tuple[int, int]:
        """(bytes in and out, bytes live) for one tile of a single stage."""
        s, (whole, sliced) = self.stages[0], self.boxes(tile)[0]
        moved = peak = 0
        for number, a in enumerate(s.reads + s.writes):
            if len(a.boxes) > 1:
                live = a.bytes(sliced)
                n = a.bytes(sliced, unit)
            else:
                live, run, inner = a.size, a.size, True
                for f, extent in zip(reversed(a.counts[0]), reversed(a.stored)):
                    w = f(sliced)
                    if w < extent:
                        live *= w
                        run = live if inner else run
                        inner = False
                    else:
                        live *= extent
                        run = live if inner else run
                n = live // run * -(-run // unit) * unit
            peak += live
            if a.buffer not in free or fetch and number >= len(s.reads):
                moved += _all_slices(a, n, whole, sliced, unit, streamed)
        return moved, peak

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """{buffer: (first stage, last stage)} that touches it."""
        out: dict[str, tuple[int, int]] = {}
        for i, s in enumerate(self.stages):
            for a in s.reads + s.writes:
                out[a.buffer] = out.get(a.buffer, (i, i))[0], i
        return out

    @cached_property
    def overwritten(self) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """((inputs that die in an elementwise stage, what it writes), ...) of stages with any."""
        found = [(tuple(a.buffer for a in s.reads if a.elementwise and self.spans[a.buffer][1] == i
                        and self.spans[a.buffer][0] < i), tuple(a.buffer for a in s.writes))
                 for i, s in enumerate(self.stages)]
        return tuple((inputs, written) for inputs, written in found if inputs)

    def lifetimes(self, tile: Widths, boxes: Boxes | None = None,
                  align: int = 1) -> list[tuple[str, int, int, int]]:
        """[(buffer, bytes, first stage, last stage)] of every tile that is live while one tile of
        the output is computed; an elementwise stage writes over an input that dies in it."""
        boxes = boxes or self.boxes(tile)
        spans, size = self.spans.copy(), dict.fromkeys(self.spans, 0)
        for s, (whole, sliced) in zip(self.stages, boxes):
            (reads, writes), (parts, _) = s.sizes(whole), s.sizes(sliced)
            for a, n, part in zip(s.reads, reads, parts):
                size[a.buffer] = max(size[a.buffer], n if a.buffer in self.scratch else part)
            for a, n in zip(s.writes, writes):
                size[a.buffer] = max(size[a.buffer], n)
        for inputs, written in self.overwritten:
            dying = [*inputs]
            for w in written:
                host = next((b for b in dying if size[b] >= size[w]), None)
                if host is not None:  # the same bytes go on living under the new name
                    dying.remove(host)
                    spans[w] = spans.pop(host)[0], spans[w][1]
                    size[w] = max(size[w], size.pop(host))
        return [(b, -(-n // align) * align, *spans[b]) for b, n in size.items()]

    def peak(self, tile: Widths, boxes: Boxes | None = None) -> int:
        """Bytes live at once: what no allocation can be below."""
        live = self.lifetimes(tile, boxes)
        return _most(live, len(self.stages))

    def inner(self, tile: Widths, boxes: Boxes | None = None) -> tuple[int, int]:
        """(bytes moved through scratch for the whole output, bytes live at once between stages):
        what stages hand each other, and what a later one reads again."""
        boxes = boxes or self.boxes(tile)
        moved, seen, again = 0, set(), set(self.scratch)
        for s, (whole, _) in zip(self.stages, boxes):
            again |= {a.buffer for a in s.reads if a.buffer in seen}
            sizes = s.sizes(whole)
            moved += sum(n for a, n in zip(s.reads + s.writes, sizes[0] + sizes[1])
                         if a.buffer in again)
            seen |= {a.buffer for a in s.reads}
        live = [x for x in self.lifetimes(tile, boxes) if x[0] in again]
        return moved * self.tiles(tile), _most(live, len(self.stages))

    def touched(self, buffers: Collection[str]) -> int:
        """Bytes of those buffers that the stages read, by the first stage that does."""
        total, seen = 0, set(self.scratch)
        for s in self.stages:
            total += sum(a.bytes(s.extents) for a in s.reads
                         if a.buffer in buffers and a.buffer not in seen)
            seen |= {a.buffer for a in s.reads}
        return total

    def work(self, tile: Widths, boxes: Boxes | None = None) -> tuple[int, int]:
        """(operations of contractions, other operations) of one tile, recomputation included."""
        fast = slow = 0
        for s, (whole, _) in zip(self.stages, boxes or self.boxes(tile)):
            points = prod(whole[:s.rank])
            inner = points * prod(whole[s.rank:]) * s.per_point
            fast, slow = (fast + inner, slow) if s.contraction else (fast, slow + inner)
            slow += points * s.per_output
            for n, packed in s.packs:
                slow += n * prod([whole[p] for p in packed])
        return fast, slow


def _most(live: Iterable[tuple[str, int, int, int]], stages: int) -> int:
    """Bytes of the stage where most are live."""
    more = [0] * (stages + 1)
    for _, n, first, last in live:
        more[first] += n
        more[last + 1] -= n
    return max(accumulate(more))


def _all_slices(access: Access, moved: int, whole: Widths, sliced: Widths, unit: int,
                streamed: bool) -> int:
    """Bytes of all slices of the reductions an access moves along, of which one moves ``moved``."""
    count = 1
    for r in access.reduces:
        count *= -(-whole[r] // sliced[r])
    return min(moved * count, access.bytes(whole, unit)) if streamed and count > 1 else \
        moved * count


__all__ = ["Access", "Extra", "GroupModel", "StageModel"]

"""Caches of keys and values of GroupQueryAttention: one that grows or has room for all keys, one of
the last keys only; kept as floats, or as integers of 8 or 4 bits with a scale."""

from dataclasses import dataclass

from aotc.frontend.building.declared import expect, expected_shape
from aotc.frontend.building.spelling import Spelling
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Val
from aotc.frontend.ops.contrib.attention import appended, causal, to_room, width
from aotc.frontend.ops.contrib.ops_blocks import unpacked
from aotc.ir.expr import Binary, Const, Expr, Where, compare, maximum, minimum
from aotc.ir.program import static_shape
from aotc.ir.simplify import are_equal, simplify

MOST_KEYS = 1 << 31  # what numbers of 32 bits count


# ---------------------------------------------------------------- numbers of few bits

@dataclass(frozen=True)
class CacheCodes:
    """How a cache keeps its numbers: ``bits`` 8 (i8) or 4 (two in a byte, the first one lower, 8
    more than they are), times ``scale``, [1] or [1, heads, 1, size]; 0: as they are."""

    bits: int
    scale: Val | None

    def kept(self, s: Spelling, new: Val) -> Val:
        """[batch, heads, sequence, size] as the cache holds it."""
        if self.scale is None:
            return new
        most = 2 ** (self.bits - 1)
        steps = s("Round", s("Div", s.cast(new, "f32"), self.scale))
        inside = s("Clip", steps, s.number(-most, "f32"), s.number(most - 1, "f32"))
        if self.bits == 8:
            return s.cast(inside, "i8")
        shifted = s.cast(s("Add", inside, s.number(most, "f32")), "u8")

        def packed(i: Index) -> Expr:
            low, high = (s.b.at(shifted, (*i[:3], i[3] * 2 + n)) for n in (0, 1))
            return Binary("or", low, Binary("shl", high, const(4, "u8")))
        size = width(s, new.shape[3], 2, "a head of pairs")
        return s.b.map((*new.shape[:3], Const(size)), packed, [shifted], tag="packed")

    def read(self, s: Spelling, kept: Val, dtype: str) -> Val:
        """What the cache stands for."""
        if self.scale is None:
            return kept
        if self.bits == 4:
            kept = unpacked(s, kept, 4, 2 * width(s, kept.shape[3], 1, "a packed head"))
        number = s.cast(kept, "f32")
        if self.bits == 4:
            number = s("Sub", number, s.number(8, "f32"))
        return s.cast(s("Mul", number, self.scale), dtype)


def stored(s: Spelling, name: str, shape: tuple[int, int]) -> CacheCodes:
    """How past and present of ``name`` ('k' or 'v') are kept; ``shape``: heads and their size."""
    kind = s.attr(f"{name}_quant_type", "NONE")
    past = s.opt("past_key" if name == "k" else "past_value")
    if any(k.startswith("f8") for k in s.b.kinds.values()):
        raise s.b.unsupported("a cache of 8-bit floats", "keep it in int8, or as it is")
    if kind == "NONE":
        if past is not None and past.dtype in ("i8", "u8"):
            raise s.b.bad(f"a cache of {past.dtype} needs {name}_quant_type")
        return CacheCodes(0, None)
    if kind not in ("PER_TENSOR", "PER_CHANNEL"):
        raise s.b.bad(f"{name}_quant_type {kind!r} is none of NONE, PER_TENSOR, PER_CHANNEL")
    if past is None:
        raise s.b.bad("a quantised cache has a past, of which it takes the type")
    bits = {"i8": 8, "u8": 4}.get(past.dtype, 0)
    if s.attr("kv_cache_bit_width", 0) not in (0, bits) or not bits:
        raise s.b.bad(f"a cache of {past.dtype} does not hold numbers of "
                      f"{s.attr('kv_cache_bit_width', 0)} bits: 8 are i8, 4 u8")
    scale = s.val(f"{name}_scale")
    known = static_shape(scale.shape)
    count = 1
    for extent in known or (0,):
        count *= extent
    if count == 1:
        return CacheCodes(bits, s.reshape(scale, 1))
    if count != shape[0] * shape[1]:
        raise s.b.bad(f"{scale} is no scale of {shape[0]} heads of {shape[1]} columns")
    return CacheCodes(bits, s.reshape(scale, 1, shape[0], 1, shape[1]))


# ---------------------------------------------------------------- all keys

@dataclass(frozen=True)
class Whole:
    """``first``: how many keys come before those of this call, an extent where it is the same for
    all rows, else [batch] of i64; ``total``: keys there is room for."""

    first: Expr | Val
    total: Expr

    def places(self, s: Spelling, sequence: Expr) -> Val:
        """Places of the queries, [batch or 1, sequence]."""
        if isinstance(self.first, Val):
            return s("Add", s.spread(self.first, 1), s.places(sequence))
        return s.spread(s.places(sequence, self.first), 0)

    def joined(self, s: Spelling, name: str, new: Val, out: int) -> tuple[Val, Val]:
        """(the keys or values that are read, [batch, heads, total, size]; output ``out``)."""
        past, first = s.opt(name), self.first
        if past is None:
            made = s("Identity", new, out=out) if s.wants(out) else new
            return made, made
        both = appended(s, past, new, out if not isinstance(first, Val) else None)
        if not isinstance(first, Val):
            return both, both
        room, starts = past.shape[2], first

        def source(index: Index) -> Index:
            batch, head, place, column = index
            start = s.b.index_at(starts, (batch,))
            behind = minimum(place - start + room, both.shape[2] - 1)
            at = Where(compare("lt", place, start), place, behind)
            return batch, head, s.b.checked(at, both.shape[2]), column
        shape = (*both.shape[:2], self.total, both.shape[3])
        made = s.b.move(both, shape, source, "" if s.wants(out) else name, out)
        return made, made

    def kept(self, s: Spelling, sequence: Expr) -> Val:
        """Where a key counts, [batch or 1, 1, sequence, total] or [sequence, total].  Without a
        causal mask all keys there are count."""
        window = s.attr("local_window_size", -1)
        if not s.attr("causal", 1):
            key = s.spread(s.cast(s.places(self.total), s.val("seqlens_k").dtype), 0)
            there = s("LessOrEqual", key, s("Reshape", s.val("seqlens_k"), s.ints(-1, 1)))
            return s.spread(there, 1, 2)
        if not isinstance(self.first, Val):
            return causal(s, sequence, self.total, window)
        query = s.spread(s("Add", s.spread(self.first, 1), s.places(sequence)), 1, 3)
        key = s.places(self.total)
        keep = s("LessOrEqual", key, query)
        if window < 0:
            return keep
        near = s("Greater", key, s("Sub", query, s.number(window, "i64")))
        return s("And", keep, near)

    def bias(self, s: Spelling) -> Val | None:
        """What is added to scores; of keys that a cache has room for and nothing says anything
        about, anything."""
        bias, past = s.opt("attention_bias"), s.opt("past_key")
        if bias is None or past is None or not are_equal(past.shape[2], self.total):
            return bias
        return to_room(s, bias, self.total, "bias")


def whole(s: Spelling, k: Val) -> Whole:
    """Where the keys of this call go: behind those of the past, or, where the model declares that
    the cache does not grow, into its room."""
    past, sequence, counts = s.opt("past_key"), k.shape[2], s.opt("query_seqlens")
    if past is None:
        return Whole(Const(0), sequence)
    declared = expected_shape(s.b, s.node.outputs[1], 4) if s.wants(1) else None
    grows = declared is None or not are_equal(declared[2], past.shape[2])
    total = simplify(past.shape[2] + sequence) if grows else past.shape[2]
    lengths, most = s.val("seqlens_k"), s.val("total_sequence_length")
    if grows and counts is None:
        expect(s.b, [(s.b.index_at(most, (Const(0),) * most.rank), total)],
               f"a cache that grows holds {past.shape[2]} keys and this call's {sequence}, "
               "total_sequence_length is")
        if static_shape(k.shape[:1]) == (1,):
            length = s.b.index_at(lengths, (Const(0),) * lengths.rank)
            expect(s.b, [(length + 1, total)], f"the cache of {past.shape[2]} keys and this call's "
                   f"{sequence} are all there is, seqlens_k + 1 is")
            return Whole(past.shape[2], total)

    def start(index: Index) -> Expr:
        return s.b.checked(_before(s, index[0], sequence), total - sequence + 1,
                           "the cache has room for all keys")
    return Whole(s.b.map(k.shape[:1], start, [lengths], tag="first"), total)


def _length(s: Spelling, row: Expr) -> Expr:
    """The keys of a row, those of this call too."""
    lengths = s.val("seqlens_k")
    return s.b.index_at(lengths, (row, *[Const(0)] * (lengths.rank - 1))) + 1


def _before(s: Spelling, row: Expr, sequence: Expr) -> Expr:
    """The keys of a row before those of this call, which are as many as it has queries, or as
    ``query_seqlens`` says."""
    counts = s.opt("query_seqlens")
    own = sequence if counts is None else s.b.checked(
        s.b.index_at(counts, (row,)), sequence + 1, "query_seqlens is within the sequence")
    before = _length(s, row) - own
    return maximum(before, Const(0)) if counts is None else before


# ---------------------------------------------------------------- the last keys only

@dataclass(frozen=True)
class KeyWindow:
    """A cache of the last keys.  ``first`` [batch] of i64: how many keys came before those of this
    call; ``held``: how many of them the cache has, the last ones, from its beginning on; ``end``,
    ``left``: the same after the call; ``room``: what it has room for.  What a call reads are the
    rows of the cache and the keys of the call behind them."""

    first: Val
    held: Val
    end: Val
    left: Val
    room: Expr

    def places(self, s: Spelling, sequence: Expr) -> Val:
        """Places of the queries, [batch, sequence]."""
        return s("Add", s.spread(self.first, 1), s.places(sequence))

    def joined(self, s: Spelling, name: str, new: Val, out: int) -> tuple[Val, Val]:
        """(the keys or values that are read, [batch, heads, room + sequence, size]; output
        ``out``, whose rows behind the keys it holds may be anything)."""
        past = s.val(name)
        both, b = appended(s, past, new), s.b

        def source(index: Index) -> Index:
            batch, head, row, column = index
            first, held, end, left = (b.index_at(v, (batch,)) for v in (
                self.first, self.held, self.end, self.left))
            place = end - left + row
            old = minimum(maximum(place - first + held, Const(0)), self.room - 1)
            fresh = minimum(maximum(place - first, Const(0)) + self.room, both.shape[2] - 1)
            return batch, head, Where(compare("lt", place, first), old, fresh), column
        return both, b.move(both, past.shape, source, "" if s.wants(out) else name, out)

    def kept(self, s: Spelling, sequence: Expr) -> Val:
        """Where a key counts, [batch, 1, sequence, room + sequence]."""
        key = s.spread(self._places_of_keys(s, sequence), 1, 2)
        query = s.spread(self.places(s, sequence), 1, 3)
        window = s.number(s.attr("local_window_size", -1), "i64")
        near = s("Greater", key, s("Sub", query, window))
        return s("And", s("And", s("LessOrEqual", key, query), near),
                 s("GreaterOrEqual", key, s.number(0, "i64")))

    def _places_of_keys(self, s: Spelling, sequence: Expr) -> Val:
        """[batch, room + sequence]; of rows without a key one that no query looks at."""
        b = s.b

        def place(index: Index) -> Expr:
            first, held = (b.index_at(v, (index[0],)) for v in (self.first, self.held))
            old = Where(compare("lt", index[1], held), first - held + index[1], Const(-1))
            return Where(compare("lt", index[1], self.room), old, first + index[1] - self.room)
        return b.map((*self.first.shape, self.room + sequence), place, [self.first, self.held],
                     tag="places_of_keys")

    def bias(self, s: Spelling) -> Val | None:
        """What is added to scores, whose columns are places."""
        bias = s.opt("attention_bias")
        if bias is None:
            return None
        given, b = bias, s.b
        places = self._places_of_keys(s, bias.shape[2])
        last = given.shape[3] - 1

        def source(i: Index) -> Index:
            at = b.index_at(places, (i[0], i[3]))
            return (s.b.joins.at(given.shape[0], places.shape[0], i[0]), *i[1:3],
                    maximum(minimum(at, last), Const(0)))
        return b.move(given, (places.shape[0], *given.shape[1:3], places.shape[1]), source,
                      tag="bias")


def window(s: Spelling, k: Val) -> KeyWindow:
    """The cache of a node with ``sliding_window_cache``: it drops keys beyond its window, so many
    at a time that it has to do so once in ``room - window + 1`` keys."""
    past, near, b = s.val("past_key"), s.attr("local_window_size", -1), s.b
    room, sequence = past.shape[2], k.shape[2]
    if near < 1 or not s.attr("causal", 1):
        raise s.b.bad("sliding_window_cache needs local_window_size and a causal mask")
    b.require("ge", room, near, "the cache must have room for its window")
    lengths, step = s.val("seqlens_k"), simplify(room - near + 1)

    def resident(total: Expr) -> Expr:
        over = total - room
        return Where(compare("le", over, Const(0)), total,
                     total - step * ((over + step - 1) // step))

    def count(index: Index) -> Expr:
        return b.checked(_length(s, index[0]), MOST_KEYS, "seqlens_k counts keys")

    def before(index: Index) -> Expr:
        return b.checked(_before(s, index[0], sequence), MOST_KEYS, "query_seqlens is within "
                         "seqlens_k")
    end = b.map(k.shape[:1], count, [lengths], tag="end")
    first = b.map(k.shape[:1], before, [lengths], tag="first")
    left = b.map(end.shape, lambda i: resident(b.index_at(end, i)), [end], tag="left")
    held = b.map(end.shape, lambda i: resident(b.index_at(first, i)), [first], tag="held")
    return KeyWindow(first, held, end, left, room)


__all__ = ["CacheCodes", "Whole", "KeyWindow", "stored", "whole", "window"]

"""Hashes of numbers and of runs of words."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.ops.contrib.ops_token_rows import requests
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Shape,
    Unary,
    Where,
    any_holds,
    compare,
    maximum,
    minimum,
)
from aotc.ir.simplify import simplify


def _word(value: int) -> Expr:
    return const(value, "u32")


def _rolled(e: Expr, bits: int) -> Expr:
    return Binary("or", Binary("shl", e, _word(bits)), Binary("shr", e, _word(32 - bits)))


def _mixed(e: Expr, steps: tuple[tuple[int, int], ...], last: int) -> Expr:
    """Shifted onto itself and multiplied, step after step."""
    for shift, factor in steps:
        e = Binary("xor", e, Binary("shr", e, _word(shift))) * _word(factor)
    return Binary("xor", e, Binary("shr", e, _word(last)))


@spells("MurmurHash3", "X", "positive seed", kinds="fiu")
def murmur_hash(s: Spelling) -> Result:
    """MurmurHash3_x86_32 (A. Appleby, in the public domain) of every number's bytes."""
    x, signed = s.val("X"), not s.attr("positive", 1)
    size, is_float = DTYPES[x.dtype].size, DTYPES[x.dtype].kind == "f"
    if size not in (4, 8):
        raise s.b.unsupported(f"dtype {x.dtype}", "cast to 32 or 64 bits first")
    seed = s.attr("seed", 0) & 0xFFFFFFFF

    def words(i: Index) -> list[Expr]:
        e = s.b.at(x, i)
        bits = Unary("bits", e) if is_float else e
        if size == 4:
            return [cast("u32", bits)]
        bits = cast("u64", bits)
        return [cast("u32", bits), cast("u32", Binary("shr", bits, const(32, "u64")))]

    def hashed(i: Index) -> Expr:
        h = _word(seed)
        for word in words(i):
            word = _rolled(word * _word(0xCC9E2D51), 15) * _word(0x1B873593)
            h = _rolled(Binary("xor", h, word), 13) * _word(5) + _word(0xE6546B64)
        h = _mixed(Binary("xor", h, _word(size)), ((16, 0x85EBCA6B), (13, 0xC2B2AE35)), 16)
        return cast("i32", h) if signed else h
    return s.b.map(x.shape, hashed, [x])


# ---------------------------------------------------------------- runs of words

@spells("NGramRepeatBlock", "input_ids scores", "ngram_size", kinds="i")
def no_repeated_runs(s: Spelling) -> Result:
    """Scores of words that would end a run of ``ngram_size`` which is there already are -inf."""
    ids, scores, size = s.val("input_ids"), s.val("scores"), s.given("ngram_size")
    if size < 1:
        raise s.b.bad("ngram_size must be positive")
    length, before = ids.shape[1], size - 1
    s.b.require("ge", length, size, "a row holds a run")

    def same_run(i: Index) -> Expr:
        differs = any_holds(compare("ne", s.b.at(ids, (i[0], i[1] + k)),
                                    s.b.at(ids, (i[0], length - before + k)))
                            for k in range(before))
        never = const(-np.inf, "f32")
        return never if differs is None else Where(differs, const(np.inf, "f32"), never)
    ends = s.cut(ids, 1, before, length)
    found = s.b.map(ends.shape, same_run, [ids], tag="found")
    return s("ScatterElements", scores, ends, s.cast(found, scores.dtype), axis=1,
             reduction="min", out=0)


@dataclass(frozen=True)
class Runs:
    """How runs of words are hashed: those of 2 to ``most`` words, each with ``each`` heads.
    ``past`` [rows, most - 1]: the words before the first one; ``missing``: what stands where there
    is none, and ends a sentence where runs do not reach over it (``resets``)."""

    most: int
    each: int
    past: Val
    missing: Val
    resets: bool

    @property
    def heads(self) -> Expr:
        return Const((self.most - 1) * self.each)


def _runs(s: Spelling, rows: Expr) -> Runs:
    most, each, end = s.given("max_ngram_size"), s.given("n_head_per_ngram"), s.opt("eos_token_id")
    if most < 2 or each < 1:
        raise s.b.bad("max_ngram_size must be 2 or more, n_head_per_ngram positive")
    missing = s("Reshape", end, s.ints()) if end is not None else s.number(
        s.given("pad_id"), s.val("input_ids").dtype)
    past = s.opt("past_ids")
    past = s("Expand", missing, s.dims(rows, most - 1)) if past is None else past
    s.b.require("eq", past.shape[1], most - 1, "past_ids are the words that runs reach back")
    s.b.require("ge", s.val("multipliers").shape[0], most, "each word of a run has its multiplier")
    s.b.require("eq", s.val("vocab_sizes").shape[0], (most - 1) * each, "each head has its size")
    return Runs(most, each, past, missing, end is not None and bool(s.attr("reset_on_eos", 0)))


def _hashed(s: Spelling, runs: Runs, places: Shape, word: Callable[[Index, int], Expr],
            parted: Callable[[Index, int], Expr] | None, sources: list[Val]) -> Val:
    """Output 0: [places, heads].  ``word(place, back)``: the word so many before a place;
    ``parted(place, back)``: true where that is of another segment than the one behind it."""
    b, factors, sizes = s.b, s.val("multipliers"), s.val("vocab_sizes")
    offsets, nothing = s.opt("head_offsets"), b.at(runs.missing, ())

    def of_run(place: Index, back: int) -> Expr:
        apart: list[Expr] = []
        for k in range(1, back + 1):
            apart += [compare("eq", word(place, k), nothing)] if runs.resets else []
            apart += [parted(place, k)] if parted is not None else []
        other = any_holds(apart)
        return word(place, back) if other is None else Where(other, nothing, word(place, back))

    def mix(i: Index) -> Expr:
        *place, head = i
        found: Expr = of_run(tuple(place), 0) * b.at(factors, (Const(0),))
        out: Expr = const(0, nothing.dtype)
        for n in range(1, runs.most):
            found = Binary("xor", found, of_run(tuple(place), n) * b.at(factors, (Const(n),)))
            out = Where(compare("eq", head // runs.each, Const(n - 1)), found, out)
        return out
    mixed = b.map((*places, runs.heads), mix, sources, tag="mixed")

    def within(i: Index) -> Expr:
        rest = b.at(mixed, i) % maximum(b.at(sizes, (i[-1],)), const(1, nothing.dtype))
        return rest if offsets is None else rest + b.at(offsets, (i[-1],))
    return b.map(mixed.shape, within, [mixed])


@spells("NGramHashMapping", "input_ids multipliers vocab_sizes past_ids head_offsets eos_token_id "
        "segment_ids", "max_ngram_size n_head_per_ngram pad_id reset_on_eos", kinds="i")
def run_hashes(s: Spelling) -> Result:
    """[batch, sequence, heads]: of the runs of 2 words, then 3, .., that end at each word."""
    b, ids, segments = s.b, s.val("input_ids"), s.opt("segment_ids")
    batch, sequence = ids.shape
    runs = _runs(s, batch)
    before = runs.most - 1
    whole = s("Concat", runs.past, ids, axis=1)

    def parted(place: Index, back: int) -> Expr:
        assert segments is not None, place
        one, two = (b.at(segments, (place[0], maximum(place[1] - n, Const(0))))
                    for n in (back - 1, back))
        return Binary("and", compare("ge", place[1], Const(back)), compare("ne", one, two))
    made = _hashed(s, runs, ids.shape, lambda place, back: b.at(
        whole, (place[0], place[1] + before - back)), parted if segments is not None else None,
        [whole])
    if not s.wants(1):
        return made
    return made, s.cut(whole, 1, sequence, sequence + before, out=1)


@spells("VarlenNGramHashMapping", "input_ids multipliers vocab_sizes cumulative_sequence_length "
        "past_ids head_offsets eos_token_id segment_ids past_segment_ids -capture_count",
        "max_ngram_size n_head_per_ngram pad_id reset_on_eos", only={"state_update_capacity": 0},
        kinds="i")
def packed_hashes(s: Spelling) -> Result:
    """NGramHashMapping of every request: [tokens, heads], and the last words of each."""
    b, ids, ends = s.b, s.val("input_ids"), s.val("cumulative_sequence_length")
    segments, older = s.opt("segment_ids"), s.opt("past_segment_ids")
    tokens, count = ids.shape[0], simplify(ends.shape[0] - 1)
    b.nonempty(tokens, ends.shape, "a token")
    runs, which = _runs(s, count), requests(s, ends, tokens)
    before = runs.most - 1

    def begin(request: Expr) -> Expr:
        return b.checked(b.index_at(ends, (request,)), tokens + 1)

    def entry(v: Val, past: Val | None, request: Expr, place: Expr) -> Expr:
        """Element ``place`` of a request, below 0 of those before, the first where there are
        none."""
        near = place if past is not None else maximum(place, Const(0))
        row = minimum(maximum(begin(request) + near, Const(0)), tokens - 1)
        if past is None:
            return b.at(v, (row,))
        old = minimum(maximum(place + before, Const(0)), Const(before - 1))
        return Where(compare("ge", place, Const(0)), b.at(v, (row,)), b.at(past, (request, old)))

    def at(place: Index) -> tuple[Expr, Expr]:
        request = b.checked(b.index_at(which, place), count)
        return request, place[0] - begin(request)

    def word(place: Index, back: int) -> Expr:
        request, here = at(place)
        return entry(ids, runs.past, request, here - back)

    def parted(place: Index, back: int) -> Expr:
        assert segments is not None, place
        request, here = at(place)
        one, two = (entry(segments, older, request, here - n) for n in (back - 1, back))
        return compare("ne", one, two)

    def last(v: Val, past: Val | None, out: int) -> Val:
        return b.map((count, Const(before)), lambda i: entry(
            v, past, i[0], begin(i[0] + 1) - begin(i[0]) - before + i[1]), [v, ends], out=out)
    made = _hashed(s, runs, ids.shape, word, parted if segments is not None else None,
                   [ids, ends, which])
    kept = last(ids, runs.past, 1) if s.wants(1) else None
    if not s.wants(2):
        return made, kept
    if segments is None:
        raise b.bad("the output 'present_segment_ids' needs segment_ids")
    return made, kept, last(segments, older, 2)

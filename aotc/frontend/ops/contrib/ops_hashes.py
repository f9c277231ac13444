"""Hashes of numbers and of runs of words."""

import numpy as np

from aotc.frontend.building.spelling import Spelling, spelt
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Binary, Const, Expr, Unary, Where, any_of, compare, maximum


def _word(value: int) -> Expr:
    return const(value, "u32")


def _rolled(e: Expr, bits: int) -> Expr:
    return Binary("or", Binary("shl", e, _word(bits)), Binary("shr", e, _word(32 - bits)))


def _mixed(e: Expr, steps: tuple[tuple[int, int], ...], last: int) -> Expr:
    """Shifted onto itself and multiplied, step after step."""
    for shift, factor in steps:
        e = Binary("xor", e, Binary("shr", e, _word(shift))) * _word(factor)
    return Binary("xor", e, Binary("shr", e, _word(last)))


@spelt("MurmurHash3", "X", "positive seed", kinds="fiu")
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

@spelt("NGramRepeatBlock", "input_ids scores", "ngram_size", kinds="i")
def no_repeated_runs(s: Spelling) -> Result:
    """Scores of words that would end a run of ``ngram_size`` which is there already are -inf."""
    ids, scores, size = s.val("input_ids"), s.val("scores"), s.given("ngram_size")
    if size < 1:
        raise s.b.bad("ngram_size must be positive")
    length, before = ids.shape[1], size - 1
    s.b.require("ge", length, size, "a row holds a run")

    def same_run(i: Index) -> Expr:
        differs = any_of(compare("ne", s.b.at(ids, (i[0], i[1] + k)),
                                 s.b.at(ids, (i[0], length - before + k))) for k in range(before))
        never = const(-np.inf, "f32")
        return never if differs is None else Where(differs, const(np.inf, "f32"), never)
    ends = s.cut(ids, 1, before, length)
    found = s.b.map(ends.shape, same_run, [ids], tag="found")
    return s("ScatterElements", scores, ends, s.cast(found, scores.dtype), axis=1,
             reduction="min", out=0)


@spelt("NGramHashMapping", "input_ids multipliers vocab_sizes past_ids head_offsets eos_token_id "
       "segment_ids", "max_ngram_size n_head_per_ngram pad_id reset_on_eos", kinds="i")
def run_hashes(s: Spelling) -> Result:
    """[batch, sequence, heads]: of the runs of 2 words, then 3, .., that end at each word."""
    ids, most, each = s.val("input_ids"), s.given("max_ngram_size"), s.given("n_head_per_ngram")
    if most < 2 or each < 1:
        raise s.b.bad("max_ngram_size must be 2 or more, n_head_per_ngram positive")
    b, dtype, end, segments = s.b, ids.dtype, s.opt("eos_token_id"), s.opt("segment_ids")
    batch, sequence = ids.shape
    missing = s.number(s.given("pad_id"), dtype) if end is None else s("Reshape", end, s.ints())
    past = s.opt("past_ids")
    if past is None:
        past = s("Expand", missing, s.dims(batch, most - 1))
    b.require("eq", past.shape[1], most - 1, "past_ids are the words that runs reach back")
    whole = s("Concat", past, ids, axis=1)
    resets = end is not None and bool(s.attr("reset_on_eos", 0))
    factors, sizes, offsets = s.val("multipliers"), s.val("vocab_sizes"), s.opt("head_offsets")
    b.require("ge", factors.shape[0], most, "each word of a run has its multiplier")
    b.require("eq", sizes.shape[0], (most - 1) * each, "each head has its size")

    def word(row: Expr, place: Expr, back: int) -> Expr:
        """The word so many ``back``, in the run's own sentence and segment."""
        here = place + most - 1  # among all words
        found: Expr = b.at(whole, (row, here - back))
        apart: list[Expr] = []
        for k in range(1, back + 1):
            if resets:
                apart.append(compare("eq", b.at(whole, (row, here - k)), b.at(missing, ())))
            if segments is not None:
                apart.append(Binary("and", compare("ge", place, Const(k)), compare(
                    "ne", *(b.at(segments, (row, maximum(place - n, Const(0))))
                            for n in (k - 1, k)))))
        other = any_of(apart)
        return found if other is None else Where(other, b.at(missing, ()), found)

    def hashed(i: Index) -> Expr:
        row, place, head = i
        mix: Expr = word(row, place, 0) * b.at(factors, (Const(0),))
        out: Expr = const(0, dtype)
        for n in range(1, most):
            mix = Binary("xor", mix, word(row, place, n) * b.at(factors, (Const(n),)))
            out = Where(compare("eq", head // each, Const(n - 1)), mix, out)
        return out
    mixed = b.map((batch, sequence, Const((most - 1) * each)), hashed, [whole], tag="mixed")

    def within(i: Index) -> Expr:
        size = maximum(b.at(sizes, (i[2],)), const(1, dtype))
        rest = b.at(mixed, i) % size
        return rest if offsets is None else rest + b.at(offsets, (i[2],))
    made = b.map(mixed.shape, within, [mixed])
    if not s.wants(1):
        return made
    return made, s.cut(whole, 1, sequence, sequence + most - 1, out=1)



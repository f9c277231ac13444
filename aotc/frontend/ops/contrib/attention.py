"""What the attention operators of com.microsoft share: heads, masks, and the sums over keys, all
spelt in ONNX operators.  Queries are [batch, heads, sequence, size], keys and values [batch, heads,
total, size], scores [batch, heads, sequence, total]."""

import math

from aotc.frontend.building.declared import expect, expected_shape
from aotc.frontend.building.spelling import Spelling
from aotc.frontend.building.symbolic import conjunction
from aotc.frontend.building.values import Index, Val
from aotc.ir.dtypes import is_float
from aotc.ir.expr import Const, Expr, ExprLike, Where, compare, maximum, minimum
from aotc.ir.program import static_shape
from aotc.ir.simplify import are_equal

FILTER = -10000.0  # what masked scores get where the model does not say


def width(s: Spelling, extent: Expr, count: int, what: str) -> int:
    """Columns of each of ``count`` heads."""
    static = static_shape((extent,))
    if static is None:
        raise s.b.unsupported(f"a symbolic hidden size of {what}", "make it static")
    if count < 1 or static[0] % count:
        raise s.b.bad(f"{what} of {static[0]} columns has no {count} heads of one size")
    return static[0] // count


def heads(s: Spelling, v: Val, count: int, what: str) -> Val:
    """[batch, sequence, count * size] as [batch, count, sequence, size]."""
    size = width(s, v.shape[-1], count, what)
    return s.transpose(s("Reshape", v, s.ints(0, 0, count, size)), 0, 2, 1, 3)


def joined(s: Spelling, v: Val, out: int | None = 0) -> Val:
    """[batch, count, sequence, size] as [batch, sequence, count * size]."""
    turned = s.transpose(v, 0, 2, 1, 3)
    return s("Reshape", turned, s.ints(0, 0, width(s, v.shape[1], 1, "heads")
                                       * width(s, v.shape[3], 1, "a head")), out=out)


def parts(s: Spelling, v: Val, sizes: list[int]) -> list[Val]:
    """``v`` cut along its last dimension."""
    static = static_shape(v.shape[-1:])
    if static != (sum(sizes),):
        raise s.b.bad(f"{v} has no columns for hidden sizes {sizes}")
    return s.several("Split", [v, s.ints(*sizes)], [None] * len(sizes), axis=-1)


# ---------------------------------------------------------------- masks

def lowest(s: Spelling, dtype: str, value: float = -math.inf) -> Val:
    """``value``, no lower than the dtype's lowest number: what masked scores get."""
    return s.number(max(-65504.0 if dtype == "f16" else -3.4028234663852886e38, value), dtype)


def padding(s: Spelling, mask: Val | None, total: Expr, sequence: Expr, past: ExprLike,
            dtype: str) -> Val | None:
    """What a mask of integers adds to scores, as something that broadcasts to them; None without.

    [batch]: keys of every row; [2 * batch]: ends, then starts; [3 * batch + 2]: keys of every row,
    then where rows would begin without padding, which changes nothing; [batch, total]; [batch or 1,
    1]: no mask at all; [batch, sequence, total]; [batch, 1, most, most], of which rows from
    ``past`` on count."""
    if mask is None or mask.rank == 2 and static_shape(mask.shape[1:]) == (1,):
        return None
    if is_float(mask.dtype):
        raise s.b.unsupported(f"a mask of {mask.dtype}", "give it as integers")
    keep = _kept(s, mask, total, sequence, past)
    value = s.attr("mask_filter_value", FILTER)
    return s("Where", keep, s.number(0, dtype), lowest(s, dtype, value))


def _kept(s: Spelling, mask: Val, total: Expr, sequence: Expr, past: ExprLike) -> Val:
    """True where a score counts."""
    if mask.rank == 1:
        return _within(s, mask, total)
    keep = s.cast(mask, "bool") if mask.dtype == "bool" else s(
        "Greater", mask, s.number(0, mask.dtype))
    if mask.rank == 2:
        s.b.require("eq", mask.shape[1], total, "the mask must have a column for every key")
        return s.spread(keep, 1, 2)
    if mask.rank == 3:
        return s.spread(keep, 1)
    if mask.rank != 4:
        raise s.b.bad(f"{mask} is no mask")
    keep = s.cut(keep, 2, past, past + sequence)
    return s.cut(keep, 3, 0, total)


def _within(s: Spelling, mask: Val, total: Expr) -> Val:
    """The keys before each row's end, and from its start on."""
    batch = s.b.input(0).shape[0]
    pairs, packed = (are_equal(mask.shape[0], n) for n in (batch * 2, batch * 3 + 2))
    if not pairs and not packed:
        s.b.require("eq", mask.shape[0], batch, "a mask of one dimension has a number per row")
    place = s.cast(s.places(total), mask.dtype)
    end = s.cut(mask, 0, 0, batch) if pairs or packed else mask
    keep = s("Less", place, s.spread(end, 1, 2, 3))
    if not pairs:
        return keep
    start = s.spread(s.cut(mask, 0, batch, batch * 2), 1, 2, 3)
    return s("And", keep, s("GreaterOrEqual", place, start))


def causal(s: Spelling, sequence: Expr, total: Expr, window: int = -1) -> Val:
    """[sequence, total], true where a key is not behind its query, the last ones being of one
    place; ``window``: nor so many before it."""
    query = s.spread(s.places(sequence, total - sequence), 1)
    key = s.places(total)
    keep = s("LessOrEqual", key, query)
    if window < 0:
        return keep
    near = s("Greater", key, s("Sub", query, s.number(window, "i64")))
    return s("And", keep, near)


# ---------------------------------------------------------------- sums over keys

def scores(s: Spelling, q: Val, k: Val, scale: float, cap: float = 0.0) -> Val:
    """Products of queries and keys; ``cap`` bends them into -cap .. cap."""
    turned = s.transpose(k, *range(k.rank - 2), k.rank - 1, k.rank - 2)
    size = width(s, q.shape[-1], 1, "a head")
    scale = scale or 1 / math.sqrt(size)
    out = s("Mul", s("MatMul", q, turned), s.number(scale, q.dtype))
    if not cap:
        return out
    bent = s("Tanh", s("Div", out, s.number(cap, q.dtype)))
    return s("Mul", bent, s.number(cap, q.dtype))


def masked(s: Spelling, score: Val, added: list[Val | None], keep: Val | None) -> Val:
    """Scores with all that is added to them, the lowest number where ``keep`` does not hold."""
    for v in added:
        score = score if v is None else s("Add", score, v)
    return score if keep is None else s("Where", keep, score, lowest(s, score.dtype))


def weights(s: Spelling, score: Val, added: list[Val | None], keep: Val | None) -> Val:
    """Softmax of ``masked`` scores."""
    return s("Softmax", masked(s, score, added, keep), axis=-1)


def appended(s: Spelling, past: Val | None, new: Val, out: int | None = None) -> Val:
    """Keys or values behind those of earlier calls."""
    return new if past is None else s("Concat", past, new, axis=2, out=out)


# ---------------------------------------------------------------- buffers with room

def placed(s: Spelling, past: Val, new: Val, first: Val, out: int) -> Val:
    """Output ``out``: the buffer [batch, heads, room, size] with the rows from ``first`` (one
    number) on replaced by ``new``."""
    b, room, sequence = s.b, past.shape[2], new.shape[2]
    both = appended(s, past, new)

    def source(i: Index) -> Index:
        start = s.b.checked(b.index_at(first, (Const(0),) * first.rank), room - sequence + 1,
                            "the buffer has room for all keys")
        fresh = conjunction([compare("ge", i[2], start), compare("lt", i[2], start + sequence)])
        behind = maximum(minimum(i[2] - start, sequence - 1), Const(0)) + room
        return i[0], i[1], Where(fresh, behind, i[2]), i[3]
    return b.move(both, past.shape, source, "" if s.wants(out) else "buffer", out)


def of_beams(s: Spelling, buffer: Val, beams: Val, past: Val) -> Val:
    """The buffer's rows before ``past`` (one number) from the beams that they came from: ``beams``
    [batch, beams, room] of a buffer [batch * beams, ..]."""
    b, width_of = s.b, beams.shape[1]
    b.require("eq", beams.shape[0] * width_of, buffer.shape[0], "each row is a beam of a batch")
    b.require("ge", beams.shape[2], buffer.shape[2], "each row of the cache came from a beam")

    def source(i: Index) -> Index:
        batch, beam = i[0] // width_of, i[0] % width_of
        old = compare("lt", i[2], b.index_at(past, (Const(0),) * past.rank))
        came = Where(old, b.index_at(beams, (batch, beam, i[2])), beam)
        return batch * width_of + s.b.checked(came, width_of), *i[1:]
    return b.move(buffer, buffer.shape, source, tag="beams")


def to_room(s: Spelling, v: Val | None, total: Expr, tag: str) -> Val | None:
    """A mask or bias of the keys in use for all that there is room for; of others anything."""
    if v is None or are_equal(v.shape[-1], total):
        return v
    given, last = v, v.shape[-1] - 1
    s.b.nonempty(v.shape[-1], (total,), "a column for the first key")
    return s.b.move(given, (*v.shape[:-1], total), lambda i: (*i[:-1], minimum(i[-1], last)),
                    tag=tag)


def in_use(s: Spelling, score: Val, count: Expr, out: int) -> Val:
    """Scores of a buffer with room for those of the keys in use, of which data says the ``count``:
    as many as the model declares for output ``out``."""
    declared = expected_shape(s.b, s.node.outputs[out], 4)
    if declared is None:
        raise s.b.unsupported("scores of a buffer with room for more keys without a declared shape",
                              f"declare that of output {out}")
    expect(s.b, [(count, declared[3])],
           f"output {out} is declared with {declared[3]} keys, in use are")
    s.b.require("le", declared[3], score.shape[-1], "the buffer has room for the keys in use")
    return s.cut(score, score.rank - 1, 0, declared[3])

"""N-gram counts: how often given sequences of tokens occur in a row of tokens."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.stored_type_operators import is_text
from aotc.frontend.building.symbolic import add_values, cast, conjunction, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.dtypes import INDEX, Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Where, compare, maximum, minimum
from aotc.ir.simplify import simplify

NO_GRAM = -1

Gram = tuple[int, ...]  # tokens


@dataclass(frozen=True)
class _Pool:
    """``grams``: the n-grams of lengths that count, each once; ``outs``: the output of each, which
    several may share; ``weights`` f32 of each; ``gaps``: tokens may be up to so many places further
    apart than 1."""

    grams: tuple[Gram, ...]
    outs: tuple[int, ...]
    weights: Array
    width: int
    gaps: int

    def rows(self) -> list[Array]:
        """Of every output the number of an n-gram or ``NO_GRAM``, as often as one shares it."""
        rows: list[Array] = []
        seen: Counter[int] = Counter()
        for gram, out in enumerate(self.outs):
            if seen[out] == len(rows):
                rows.append(np.full(self.width, NO_GRAM, np.int64))
            rows[seen[out]][out] = gram
            seen[out] += 1
        return rows or [np.full(self.width, NO_GRAM, np.int64)]


@op("TfIdfVectorizer", since=9)
def tf_idf(node: Node, b: Builder) -> Result:
    """A weight belongs to an n-gram of the pool, not to the output that counts it."""
    x = b.input(0)
    if x.rank not in (1, 2):
        raise b.unsupported("n-grams of a tensor of another rank than 1 or 2", "reshape it")
    mode = node.attr("mode")
    if mode not in ("TF", "IDF", "TFIDF") or node.attr("max_skip_count") < 0:
        raise b.bad(f"mode {mode!r} with gaps of up to {node.attr('max_skip_count')}: use TF, IDF "
                    "or TFIDF, and 0 or more")
    pool = _pool(b, x)
    rows = [b.const(r, f"{node.label}_row{k}") for k, r in enumerate(pool.rows())]
    if mode == "IDF" and len(rows) > 1:
        raise b.unsupported("mode IDF where n-grams share an output", "give each its own")
    counts = _walked(b, x, pool) if b.may_call("ngrams") else _compared(b, x, pool)
    scale = b.const(pool.weights, f"{node.label}_weights")

    def of_gram(lead: Index, at: Expr) -> Expr:
        gram, none = maximum(at, Const(0)), const(0, "f32")
        count = cast("f32", b.at(counts, (*lead, gram)))
        if mode != "TF":
            weight = b.at(scale, (gram,))
            count = count * weight if mode == "TFIDF" else Where(compare("gt", count, none), weight,
                                                                 none)
        return Where(compare("ge", at, Const(0)), count, none)
    return b.map((*x.shape[:-1], Const(pool.width)),
                 lambda i: add_values(of_gram(i[:-1], b.at(r, i[-1:])) for r in rows),
                 [scale, counts, *rows])


def _pool(b: Builder, x: Val) -> _Pool:
    node = b.node
    texts = node.attr("pool_strings") or ()
    if bool(texts) != is_text(x):
        raise b.bad(f"a pool of {'strings' if texts else 'integers'} for {x}")
    tokens = [b.text(t) for t in texts] if texts else list(node.attr("pool_int64s") or ())
    starts, outs = node.attr("ngram_counts"), node.attr("ngram_indexes")
    weights = np.array(node.attr("weights") or (1,) * len(outs), np.float32)
    low, high = node.attr("min_gram_length"), node.attr("max_gram_length")
    made: dict[Gram, int] = {}  # the number of the n-gram among all
    k = 0
    for length, begin in enumerate(starts, 1):
        end = starts[length] if length < len(starts) else len(tokens)
        if (end - begin) % length:
            raise b.bad(f"{end - begin} pool entries for n-grams of length {length}")
        for at in range(begin, end, length):
            gram = tuple(tokens[at:at + length])
            if gram in made:
                raise b.bad(f"the pool has an n-gram twice, as number {made[gram]} and {k}")
            if low <= length <= high:
                made[gram] = k
            k += 1
    if k > len(outs) or len(weights) != len(outs):
        raise b.bad(f"{k} n-grams with {len(outs)} outputs and {len(weights)} weights")
    return _Pool(tuple(made), tuple(outs[n] for n in made.values()), weights[list(made.values())],
                 max(outs, default=-1) + 1, node.attr("max_skip_count"))


def _walked(b: Builder, x: Val, pool: _Pool) -> Val:
    """Counts i64[.., n-grams] by a library kernel that walks a tree of them."""
    nodes, roots = _tree(pool)
    tokens = x if x.dtype == INDEX else b.map(
        x.shape, lambda i: cast(INDEX, b.at(x, i)), [x], "tokens")
    return b.call("ngrams", (tokens, b.const(nodes, f"{b.node.label}_grams")),
                  ((*x.shape[:-1], Const(len(pool.grams))),), roots=roots, gaps=pool.gaps)[0]


def _tree(pool: _Pool) -> tuple[Array, int]:
    """(nodes [m, 4] as the kernel wants them, how many begin n-grams): level by level."""
    number = {gram: k for k, gram in enumerate(pool.grams)}
    children: dict[Gram, set[int]] = defaultdict(set)
    for gram in number:
        for k, token in enumerate(gram):
            children[gram[:k]].add(token)
    order: list[Gram] = [()]
    for gram in order:  # grows meanwhile
        order += [(*gram, token) for token in sorted(children.get(gram, ()))]
    first, nodes = len(children[()]), []
    for gram in order[1:]:
        count = len(children.get(gram, ()))
        nodes.append((gram[-1], first, count, number.get(gram, NO_GRAM)))
        first += count
    return np.array(nodes, np.int64).reshape(-1, 4), len(children[()])


def _compared(b: Builder, x: Val, pool: _Pool) -> Val:
    """The same where every n-gram is compared at every place: work that grows with the pool."""
    longest, n = max(map(len, pool.grams), default=1), x.shape[-1]
    tokens = np.zeros((len(pool.grams), longest), np.int64)
    for k, gram in enumerate(pool.grams):
        tokens[k, :len(gram)] = gram
    table = b.const(tokens, f"{b.node.label}_grams")
    lengths = b.const(np.array([len(g) for g in pool.grams], np.int64), f"{b.node.label}_lengths")
    axes = b.axes((*x.shape[:-1], Const(len(pool.grams))))
    # wider gaps than the row has places, and gaps of one token alone, there are none
    gap = Axis("gap", simplify(minimum(Const(pool.gaps + 1), maximum(n - 1, Const(1)))))
    at, length = Axis("at", n), b.at(lengths, axes[-1:])
    inside = conjunction((compare("lt", at + (gap + 1) * (length - 1), n),
                          Binary("or", compare("gt", length, Const(1)),
                                 compare("eq", gap, Const(0)))))
    hits = conjunction(Binary("or", compare("le", length, Const(j)), compare(
        "eq", b.index_at(x, (*axes[:-1], minimum(at + (gap + 1) * j, n - 1))),
        b.at(table, (axes[-1], Const(j))))) for j in range(longest))
    body = Where(inside, Where(hits, Const(1), Const(0)), Const(0))
    return b.compute(axes, body, (gap, at), "sum", "counts")

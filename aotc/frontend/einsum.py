"""Reading an Einsum equation, and which of its operands are multiplied with each other first."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod

Labels = tuple[str, ...]
Product = tuple[tuple[int, ...], Labels]  # numbers of what is multiplied, labels of what is made
MOST_ORDERED = 6  # operands of which all orders are looked at
LEAST_TERMS = 1 << 14  # products of elements in all, from which on an order is looked for
MOST_MORE = 1.25  # times as many in several steps: each is a matrix product, all in one are none


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """(labels per operand, labels of the result).  An ellipsis becomes labels ``.0``, ``.1``, ...,
    counted from the right so that operands of different rank broadcast.  ValueError that says what
    is wrong with the equation."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"Einsum equation {equation!r} has {len(terms)} terms for {len(ranks)} "
                         "inputs")
    labels = [_labels(t, r) for t, r in zip(terms, ranks)]
    dots = max((sum(c[0] == "." for c in term) for term in labels), default=0)
    hidden = [f".{k}" for k in range(dots - 1, -1, -1)]
    if arrow:
        result = [c for part in _parts(right) for c in (hidden if part == "..." else [part])]
    else:
        flat = [c for term in labels for c in term if c[0] != "."]
        result = hidden + sorted(c for c in set(flat) if flat.count(c) == 1)
    if len(set(result)) != len(result) or not set(result) <= {c for t in labels for c in t}:
        raise ValueError(f"Einsum equation {equation!r}: the result has labels no input has, or "
                         "twice")
    return labels, result


def _parts(term: str) -> list[str]:
    head, dots, tail = term.partition("...")
    return list(head) + (["..."] if dots else []) + list(tail)


def _labels(term: str, rank: int) -> list[str]:
    parts = _parts(term)
    if not all(p == "..." or p.isalpha() for p in parts):
        raise ValueError(f"Einsum term {term!r} is not made of letters")
    free = rank - sum(p != "..." for p in parts)
    if free < 0 or free and "..." not in parts:
        raise ValueError(f"Einsum term {term!r} does not fit rank {rank}")
    return [c for p in parts for c in
            ([f".{k}" for k in range(free - 1, -1, -1)] if p == "..." else [p])]


def order_products(terms: Sequence[Labels], result: Labels,
                   sizes: Mapping[str, int]) -> tuple[Product, ...]:
    """In which steps the operands are multiplied and summed, those that are made being numbered
    behind them: in one, or two at a time where that takes sums out of others and no more products
    of elements.  What only scales another operand goes with it.  sizes: extents by label."""
    groups = _scaled(terms)
    whole = (tuple(range(len(terms))), result)
    alone = prod(sizes.values())
    if not 2 < len(groups) <= MOST_ORDERED or alone < LEAST_TERMS:
        return (whole,)
    made = [tuple(c for c in dict.fromkeys(c for k in g for c in terms[k])) for g in groups]
    cost, pairs = min(_orders(list(enumerate(made)), result, sizes, len(made)),
                      key=lambda found: found[0])
    if cost > MOST_MORE * alone or not any(map(_sums, pairs[:-1])):
        return (whole,)
    numbers = dict(enumerate(groups)) | {
        len(groups) + k: (len(terms) + k,) for k in range(len(pairs))}
    return tuple((numbers[x] + numbers[y], out) for (x, _), (y, _), out in pairs)


Pair = tuple[tuple[int, Labels], tuple[int, Labels], Labels]


def _sums(pair: Pair) -> bool:
    """True if a step sums over a label."""
    (_, x), (_, y), out = pair
    return not {*x, *y} <= {*out}


def _scaled(terms: Sequence[Labels]) -> list[tuple[int, ...]]:
    """Numbers of operands: each with those that only scale it."""
    owner: dict[int, list[int]] = {}
    for k in sorted(range(len(terms)), key=lambda k: -len({*terms[k]})):
        held = next((o for o in owner if {*terms[k]} <= {*terms[o]}), k)
        owner.setdefault(held, []).append(k)
    return [tuple(sorted(v)) for _, v in sorted(owner.items())]


def _orders(left: list[tuple[int, Labels]], result: Labels, sizes: Mapping[str, int],
            number: int) -> Iterator[tuple[int, tuple[Pair, ...]]]:
    """(products of elements, steps) of every order in which two at a time become one.  number: of
    what is made next."""
    for x, y in combinations(left, 2):
        rest = [v for v in left if v not in (x, y)]
        cost = prod(sizes[c] for c in {*x[1], *y[1]})
        if not rest:
            yield cost, ((x, y, result),)
            continue
        needed = {*result}.union(*(labels for _, labels in rest))
        both = [c for c in x[1] if c in y[1]]
        out = tuple(c for c in dict.fromkeys((*both, *x[1], *y[1])) if c in needed)
        for more, pairs in _orders([*rest, (number, out)], result, sizes, number + 1):
            yield cost + more, ((x, y, out), *pairs)

"""Reading an Einsum equation."""

from collections.abc import Sequence


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

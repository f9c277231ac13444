"""Which cores compute which part of an instance, and where its output is: Algorithm 4.

Instances are bound from the last to the first.  One is bound like its consumers read it where they
agree; where they do not, its output goes to the next memory out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

Bind = tuple[int, ...]  # parts per dimension
Carries = Mapping[tuple[str, str], tuple[tuple[int, int], ...]]
FACTORS = (8, 4, 2, 1)  # parts of a dimension, the most that fit are taken


@dataclass(frozen=True)
class BoundInstances:
    """bind: instance -> parts per dimension of its output.  scope: instance -> how many memories
    further out than the cores' own its output is.  why: instance -> the consumer that disagreed."""

    bind: Mapping[str, Bind]
    scope: Mapping[str, int]
    why: Mapping[str, str]

    def __str__(self) -> str:
        return "\n".join(f"{x}: {self.bind[x]} at {self.scope[x]}"
                         + (f", {self.why[x]}" if x in self.why else "") for x in self.bind)


def bind_outermost_first(shape: Sequence[int], cores: int, unbound: Sequence[int] = ()) -> Bind:
    """Cores given to dimensions greedily, outermost first.  unbound: dimensions that get none."""
    left, out = cores, []
    for d, extent in enumerate(shape):
        part = 1 if d in unbound else next(
            f for f in FACTORS if f <= left and extent % f == 0)
        out.append(part)
        left //= part
    return tuple(out)


def carry_binding(bind: Bind, shape: Sequence[int], matches: Sequence[tuple[int, int]],
                  unbound: Sequence[int] = ()) -> Bind | None:
    """The binding of an input that a consumer's ``bind`` means: parts of the dimensions that match
    ((the consumer's, the input's), ..).  None if no dimension matches, or if the input's shape
    cannot be divided so."""
    out = [1] * len(shape)
    for mine, its in matches:
        out[its] = bind[mine]
    good = all(n % f == 0 and (f == 1 or d not in unbound)
               for d, (n, f) in enumerate(zip(shape, out)))
    return tuple(out) if matches and good else None


def bind_instances(order: Sequence[str], shapes: Mapping[str, Sequence[int]],
                   producers: Mapping[str, Sequence[str]], carries: Carries, cores: int,
                   unbound: Mapping[str, Sequence[int]] | None = None) -> BoundInstances:
    """Bindings and scopes of instances in ``order``.  shapes: of their outputs.  carries:
    (consumer, producer) -> dimensions of both that match.  unbound: dimensions no core gets a part
    of.  An instance whose binding was inferred passes it on, and one that takes more cores than its
    consumers meant is checked again."""
    none = unbound or {}
    bind: dict[str, Bind] = {}
    scope = dict.fromkeys(order, 0)
    why: dict[str, str] = {}
    asked: dict[str, list[tuple[str, Bind]]] = {x: [] for x in order}
    for x in reversed(order):
        best = bind_outermost_first(shapes[x], cores, none.get(x, ()))
        if x not in bind or scope[x]:
            bind[x] = best
        elif prod(best) > prod(bind[x]):
            bind[x] = best
            other = next((c for c, b in asked[x] if b != best), None)
            if other is not None:
                scope[x], why[x] = 1, f"{other} reads it in other parts than {best}"
        for p in producers.get(x, ()):
            if p not in asked:
                continue
            b = carry_binding(bind[x], shapes[p], carries.get((x, p), ()), none.get(p, ()))
            if b is None:
                continue
            asked[p].append((x, b))
            if p not in bind:
                bind[p] = b
            elif bind[p] != b and not scope[p]:
                scope[p], why[p] = 1, f"{x} reads it in parts {b}, {asked[p][0][0]} in {bind[p]}"
    return BoundInstances({x: bind[x] for x in order}, scope, why)

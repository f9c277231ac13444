"""Which of many candidates a set of calls keeps: voting, and how many votes each call has.

Every call votes for the ``k`` candidates that serve it best; the candidate with most votes, weighed
by how well it serves the voters and what they count, takes them all, and so on until no call is
left.  A call then runs the best of those that were kept, whoever took it.  Few votes keep many
candidates that fit well, many votes a single one: the ``k`` that is taken maximises

    G = performance * size^-alpha

Source: Zheng et al., DietCode (MLSys 2022), 4.2 and Eq. 1, in throughput form: performance is what
a candidate reaches of the best possible, 1 at most.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ALPHA = 0.05  # how much size counts against performance
MOST_VOTES = 5
Performance = Sequence[Sequence[float]]  # [candidate][call], higher is better


@dataclass(frozen=True)
class Selection:
    """``kept``: numbers of candidates in the order in which they were taken; ``best``: for every
    call, the one of them that serves it best; ``performance``: its weighted mean over the calls;
    ``votes`` that every call had."""

    kept: tuple[int, ...]
    best: tuple[int, ...]
    performance: float
    votes: int

    def __str__(self) -> str:
        return (f"kept {', '.join(map(str, self.kept))} by {self.votes} votes each: "
                f"{self.performance:.3f} of the best")


def votes(performance: Performance, call: int, k: int) -> tuple[int, ...]:
    """The ``k`` candidates that serve a call best, the first of equal ones first."""
    order = sorted(range(len(performance)), key=lambda c: (-performance[c][call], c))
    return tuple(order[:k])


def select(performance: Performance, weights: Sequence[float], k: int,
           shares: Sequence[float] | None = None) -> Selection:
    """The Selection by ``k`` votes of every call.  ``weights``: what a call counts in the vote (its
    operations, say) times how likely it is; ``shares``: in the mean (default: all alike)."""
    calls = range(len(weights))
    ballots = [votes(performance, i, k) for i in calls]
    left, kept = set(calls), []
    while left:
        scores = [sum(weights[i] * served[i] for i in sorted(left) if c in ballots[i])
                  for c, served in enumerate(performance)]
        winner = scores.index(max(scores))
        left -= {i for i in left if winner in ballots[i]}
        kept.append(winner)
    return _kept(performance, kept, k, shares)


def _kept(performance: Performance, kept: Sequence[int], k: int,
          shares: Sequence[float] | None) -> Selection:
    best = tuple(max(kept, key=lambda c: performance[c][i]) for i in range(len(performance[0])))
    parts = shares or [1.0] * len(best)
    mean = sum(p * performance[c][i] for i, (c, p) in enumerate(zip(best, parts))) / sum(parts)
    return Selection(tuple(kept), best, mean, k)


def _smaller(performance: Performance, found: Selection, size: Callable[[Sequence[int]], float],
             most: float, shares: Sequence[float] | None, always: int | None) -> Selection:
    if always is not None and always not in found.kept and any(
            performance[always][i] > performance[c][i] for i, c in enumerate(found.best)):
        found = _kept(performance, (always, *found.kept), found.votes, shares)
    while len(found.kept) > 1 and size(found.kept) > most:
        found = max((_kept(performance, [c for c in found.kept if c != gone], found.votes, shares)
                     for gone in found.kept if gone != always), key=lambda s: s.performance)
    return found


def select_by_gain(performance: Performance, weights: Sequence[float],
                   size: Callable[[Sequence[int]], float], alpha: float = ALPHA,
                   shares: Sequence[float] | None = None,
                   most: float = float("inf"), always: int | None = None,
                   least: float = 0.0) -> Selection:
    """The Selection with the largest G among those by 1 to ``MOST_VOTES`` votes, the smaller one of
    equals; ``size``: of a set of candidates, at most ``most``: candidates that the calls miss least
    are dropped until it is; ``always``: a candidate that is kept where the others would serve a
    call worse; ``least``: what every call shall reach of its best, where any of the Selections has
    that for it."""
    count = min(MOST_VOTES, len(performance))
    found = [_smaller(performance, select(performance, weights, k, shares), size, most, shares,
                      always) for k in range(1, count + 1)]
    def worst(s: Selection) -> float:
        return min([least, *(performance[c][i] for i, c in enumerate(s.best))])

    return max(found, key=lambda s: (worst(s), s.performance * size(s.kept) ** -alpha,
                                     -len(s.kept)))


__all__ = ["ALPHA", "Performance", "Selection", "select", "select_by_gain", "votes"]

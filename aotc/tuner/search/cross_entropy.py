"""Cross-entropy search: a distribution per knob that moves towards the best points seen.

Rubinstein's method on independent categorical distributions: draw points, keep the best part (the
elite), move every distribution towards the elite's frequencies.  It starts around the base point,
because the scheduler's own decisions are rarely far off.  ``neighbours`` are what a descent from
a point would try.
"""

from collections.abc import Sequence
from math import exp
from random import Random
from typing import Any

from aotc.tuner.space.knobs import Knob
from aotc.tuner.space.trial import Values

ELITE = 0.25  # part of the measured points that counts as the elite, at least LEAST of them
LEAST = 3
STEP = 0.5  # how far a distribution moves towards the elite's frequencies
FLOOR = 0.15  # probability that every choice keeps, all together
NEAR = 0.4  # how fast the first probabilities fall with the distance from the base
STAY = 0.6  # probability of the base where choices have no order


class CrossEntropy:
    """``knobs``: Knobs of a Space; ``rng``: a ``random.Random``."""

    def __init__(self, knobs: Sequence[Knob], rng: Random) -> None:
        self.knobs, self.rng = knobs, rng
        self.weights = {k.name: _first_weights(k) for k in knobs}

    def draw(self) -> dict[str, Any]:
        """{knob name: choice} from the present distributions."""
        return {k.name: self.rng.choices(k.choices, self.weights[k.name])[0] for k in self.knobs}

    def update(self, scored: Sequence[tuple[Values, float]]) -> None:
        """Move towards the elite of ``scored``: [({knob: choice}, score)], smaller is better; a
        knob that a point does not name is at its base."""
        if not scored:
            return
        count = max(LEAST, int(len(scored) * ELITE))
        elite = [values for values, _ in sorted(scored, key=lambda x: x[1])[:count]]
        for k in self.knobs:
            seen = [v.get(k.name, k.base) for v in elite]
            found = [seen.count(c) / len(seen) for c in k.choices]
            mixed = [(1 - STEP) * w + STEP * f for w, f in zip(self.weights[k.name], found)]
            self.weights[k.name] = [(1 - FLOOR) * w + FLOOR / len(mixed) for w in mixed]


def neighbours(knobs: Sequence[Knob], values: dict[str, Any]) -> list[dict[str, Any]]:
    """[{knob name: choice}] of points that differ from ``values`` in one knob: choices without an
    order each, of a tile's extents the nearest on both sides and the ends."""
    out = []
    for k in knobs:
        now = values.get(k.name, k.base)
        at, last = k.choices.index(now), len(k.choices) - 1
        near = k.choices if not all(isinstance(c, int) for c in k.choices) else dict.fromkeys(
            k.choices[i] for i in (at - 1, at + 1, last, 0) if 0 <= i <= last)
        out += [values | {k.name: c} for c in near if c != now]
    return out


def _first_weights(knob: Knob) -> list[float]:
    n = len(knob.choices)
    if all(isinstance(c, int) for c in knob.choices):
        at = knob.choices.index(knob.base)
        weights = [exp(-NEAR * abs(i - at)) for i in range(n)]
    else:
        weights = [STAY if c == knob.base else (1 - STAY) / max(1, n - 1) for c in knob.choices]
    return [w / sum(weights) for w in weights]


__all__ = ["CrossEntropy", "neighbours"]

"""Plans: all that runs a model, each under the condition for it.

    plans       = Plans((alternative, ..))           the first whose condition holds runs
    alternative = Alternative(condition, plan, schedule)
    condition   = Condition(features, when, why)

``features`` are the CPU's, asked once, when a context is made; ``when`` is a box of extents, asked
at every call.  Those for one target stand together, the last of them serves every call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from aotc.ir.access import volume
from aotc.ir.dtypes import Array
from aotc.ir.expr import Const, Expr, Shape, Sym, binary
from aotc.ir.plan import Place, Plan
from aotc.ir.program import Check
from aotc.ir.schedule import Schedule, When, show_when
from aotc.ir.simplify import simplify

_CALLERS = ("input", "output")  # whose memory it is


@dataclass(frozen=True)
class Condition:
    """``features``: what the CPU must have, () for nothing; ``when``: {symbol: (lowest, highest
    extent)} of the calls, {} for any; ``why`` is for readers, as is ``left``: the box around the
    calls that are left for one that holds for any, behind others."""

    features: tuple[str, ...] = ()
    when: When = field(default_factory=dict, hash=False)
    why: str = ""
    left: When = field(default_factory=dict, hash=False)

    def holds(self, syms: dict[str, int]) -> bool:
        """True for calls with these extents."""
        return all(lo <= syms[n] and (hi is None or syms[n] <= hi)
                   for n, (lo, hi) in self.when.items())

    def test(self, syms: tuple[Sym, ...]) -> Expr:
        """The condition on extents: what ``syms``, the model's symbols with their ranges, do not
        say anyway."""
        tests: list[Expr] = []
        for s in syms:
            lo, hi = self.when.get(s.name, (s.lo, s.hi))
            if lo == hi and s.lo != s.hi:
                tests.append(binary("eq", s, Const(lo)))
                continue
            tests += [binary("ge", s, Const(lo))] if lo > s.lo else []
            tests += [binary("le", s, Const(hi))] if hi is not None and hi != s.hi else []
        out: Expr = Const(True, "bool")
        for test in tests:
            out = test if isinstance(out, Const) else binary("and", out, test)
        return simplify(out)

    def __str__(self) -> str:
        parts = [f"CPU {', '.join(self.features)}"] if self.features else []
        parts += [show_when(self.when)] if self.when else []
        return "; ".join(parts) or "any call"


@dataclass(frozen=True)
class Alternative:
    """A Plan, the Schedule it came from, and when it runs.  The Plan assumes the extents of its
    condition; of the last one of a target, the Schedule holds those of its others."""

    condition: Condition
    plan: Plan
    schedule: Schedule

    def __str__(self) -> str:
        return f"when {self.condition}:\n{self.plan}"


@dataclass(frozen=True)
class Plans:
    """``alternatives`` in the order in which conditions are asked.  What callers see, whatever
    runs: ``syms``, the model's symbols with their whole ranges, ``checks`` at entry, and ``shapes``
    of inputs and outputs by name."""

    alternatives: tuple[Alternative, ...]
    syms: tuple[Sym, ...]
    checks: tuple[Check, ...]
    shapes: dict[str, Shape] = field(hash=False)

    @staticmethod
    def of(plan: Plan, schedule: Schedule) -> "Plans":
        """One Plan for every call."""
        shapes = {p.name: p.shape for p in plan.places if p.storage in _CALLERS}
        return Plans((Alternative(Condition(), plan, schedule),), plan.syms, plan.checks, shapes)

    def seen(self, plan: Plan) -> Plan:
        """One of the Plans with the symbols, checks, inputs and outputs that callers see."""
        places = tuple(replace(p, shape=self.shapes[p.name], elements=volume(self.shapes[p.name]))
                       if p.storage in _CALLERS else p for p in plan.places)
        return replace(plan, syms=self.syms, checks=self.checks, places=places)

    @property
    def main(self) -> Alternative:
        """The last one of the first target: it knows the whole Schedule of the widest CPU."""
        return next(self.sets())[-1]

    def sets(self) -> Iterator[tuple[Alternative, ...]]:
        """Those of one target after another."""
        for _, found in groupby(self.alternatives, lambda a: a.plan.target):
            yield tuple(found)

    def __str__(self) -> str:
        if len(self.alternatives) == 1:
            return str(self.alternatives[0].plan)
        return "\n\n".join(map(str, self.alternatives))


def with_defaults(plan: Plan, arrays: Mapping[str, Array]) -> Plan:
    """The Plan with default values in its weights image.  arrays: {ONNX name of input: array}."""
    places, weights, defaults, end = [], [], [], plan.weights_bytes
    taken = {p.name for p in plan.places}
    for p in plan.places:
        if p.storage != "input" or p.onnx not in arrays:
            continue
        name, array = f"{p.name}_default", np.ascontiguousarray(arrays[p.onnx])
        while name in taken:
            name += "_"
        taken.add(name)
        end = -(-end // 64) * 64
        places.append(Place(name, p.dtype, p.shape, "weights", Const(array.size), end))
        weights.append((name, array.reshape(arrays[p.onnx].shape)))
        defaults.append((p.name, name))
        end += array.nbytes
    return plan if not defaults else replace(
        plan, places=plan.places + tuple(places), weights=plan.weights + tuple(weights),
        defaults=tuple(defaults))


__all__ = ["Alternative", "Condition", "Plans", "with_defaults"]

"""Library calls that put new entries into a tensor where it lies, as one kernel with others.

Where threads share a work item, such a call (``LibraryKernel.grows``) is a copy, and may compute
what it stores: a group may hold several of them, with maps that make their new entries and that
nothing else reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.errors import ScheduleError
from aotc.ir.expr import Expr, Load, Shape, rewrite, substitute
from aotc.ir.library import grows
from aotc.ir.program import Compute, LibCall, Program
from aotc.ir.schedule import Group
from aotc.ir.simplify import simplify


@dataclass(frozen=True)
class NewEntries:
    """What a call of a group stores; ``inside``: the maps of the group, by what they make."""

    call: LibCall
    inside: dict[str, Compute]

    def value(self, index: Shape, dtype: str) -> Expr:
        """The new entry at an index."""
        return self._inlined(Load(self.call.inputs[1], index, dtype))

    def _inlined(self, e: Expr) -> Expr:
        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.buffer not in self.inside:
                return None
            made = self.inside[node.buffer]
            return self._inlined(substitute(made.body, dict(zip(made.axes, node.index))))
        return simplify(rewrite(e, visit))


def find_new_entries(program: Program, group: Group) -> tuple[NewEntries, ...]:
    """What the calls of a group store, in its order.  ScheduleError if something else is in it."""
    steps = [program.producer[c] for c in group.computes]
    calls = [s for s in steps if isinstance(s, LibCall) and grows(s)]
    maps = {s.out: s for s in steps if isinstance(s, Compute) and s.fold == "none"}
    wrong = [s.outs[0] for s in steps if s not in calls and s.outs[0] not in maps]
    wrong += [b for b in maps if b in program.results or not set(group.computes).issuperset(
        s.outs[0] for s in program.consumers.get(b, ()))]
    if wrong or not calls:
        raise ScheduleError([f"group {group.name}: {', '.join(wrong)} shares a kernel with a "
                             "library call that stores new entries; maps that only it reads may"])
    return tuple(NewEntries(c, maps) for c in calls)


def stored_entries(found: Sequence[NewEntries]) -> tuple[str, ...]:
    """The tensors that the calls of a group make."""
    return tuple(o for n in found for o in n.call.outs)


__all__ = ["NewEntries", "find_new_entries", "stored_entries"]

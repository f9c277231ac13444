"""Legality of a group that streams: its algebra, the rows of both products, its work items."""

from aotc.ir.program import Program
from aotc.ir.schedule import STREAM, Group
from aotc.ir.simplify import upper
from aotc.sched.check.choices import choices_of, value_faults
from aotc.sched.rows.stream_stages import find_stream
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def stream_faults(program: Program, target: Target, g: Group) -> list[str]:
    """Faults of a group with edges at the level ``stream``."""
    where = f"group {g.name}"
    found = find_stream(program, g)
    if found is None:
        names = ", ".join(b for b, level in g.connect.items() if level == STREAM)
        return [f"{where}: {names} at level {STREAM!r}; that is for what lies between two "
                "products, of which the second has exp of the first less its greatest, or these "
                "over their sum, as its rows"]
    legal = [r.name for r in target.rows("stream")]
    faults = [f"{where}, stage {s}: ukernel {g.choice(s).row or None!r}; legal here: "
              + (", ".join(legal) or "none") for s in found.names if g.choice(s).row not in legal]
    if faults:
        return faults
    scores, values = (target.product_row(g.choice(s).row)
                      for s in (found.scores.name, found.values.name))
    faults += _rows(scores, values, where)
    for what, extent, most in (("terms of a score", found.scores.raxes[0].extent, scores.steps),
                               ("columns", found.valued.n[0].extent, values.tile.nr)):
        if (upper(extent) or most + 1) > most:
            faults.append(f"{where}: {extent} {what}, its row has {most}; choose another row")
    faults += [f"{where}: tile of {a.name}; a work item has all columns of a stream's rows"
               for a in found.valued.n if a.name in g.tile]
    for name in (found.scores.name, found.values.name):
        choice, row = g.choice(name), target.product_row(g.choice(name).row)
        known = choices_of(target, g, name)
        faults += [f"{where}, stage {name}: loops has {x!r}; {row.name} takes "
                   + (", ".join(known) or "nothing") for x in choice.said if x not in known]
        faults += [f"{where}, stage {name}: {f}" for f in value_faults(row, choice)]
    return faults


def _rows(scores: ProductRow, values: ProductRow, where: str) -> list[str]:
    """Faults of two rows beside each other."""
    alike = (scores.a, scores.tile.mr, scores.threads, scores.tile.nr) == (
        values.a, values.tile.mr, values.threads, values.steps)
    return [] if alike else [
        f"{where}: rows {scores.name} and {values.name} do not go together: the second sums as "
        "many terms at a time as the first has columns, of the same type, by the same threads"]


__all__ = ["stream_faults"]

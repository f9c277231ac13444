"""The calls of kernels as a tree, for the templates: loops and branches around them."""

from collections.abc import Mapping, Sequence
from typing import Any

from aotc.emit.text.cexpr import c_index, sym_field
from aotc.emit.text.places import address, bytes_of
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Place, Plan
from aotc.ir.plan_regions import PlanRegion, Rounds
from aotc.ir.program import Entry, State
from aotc.ir.simplify import simplify

Call = dict[str, Any]
_PROFILED = "it was compiled with --profile: events around kernels tell what they cost"


def calls(plan: Plan, kernels: Sequence[Call], first: int = 0) -> list[Call]:
    """Rows of what a call of the model does, in order: ``kind`` is "kernel" (a row of ``kernels``
    with its ``index``, from ``first`` on), "loop" or "branch", which hold rows themselves."""
    rows = [{**k, "kind": "kernel", "index": i, "turn": ()} for i, k in enumerate(kernels, first)]
    if plan.turns:
        return [{**rows[k], **_turn(plan.kernels[k], rows[k]["tiles"], *own)}
                for k, *own in plan.turns]
    return _calls(plan, rows, 0, len(rows), list(enumerate(plan.regions)))


def _turn(kernel: Kernel, tiles: str, first: int, end: int) -> Call:
    """What a turn changes of a kernel's row."""
    return {"turn": (first, end - first),
            "tiles": str((end - first) * max(1, kernel.clusters)) if end else tiles}


def _calls(plan: Plan, rows: Sequence[Call], first: int, end: int,
           regions: Sequence[tuple[int, PlanRegion]]) -> list[Call]:
    """Calls of kernels first .. end - 1 and of ``regions``, those inside them, outer ones first."""
    out: list[Call] = []
    at, rest = first, list(regions)
    while rest:
        number, region = rest.pop(0)
        inner = [r for r in rest if r[1].end <= region.end]
        rest = rest[len(inner):]
        out += rows[at:region.first]
        if isinstance(region, Rounds):
            body = _calls(plan, rows, region.first, region.end, inner)
            out.append(_loop(plan, region, number, body))
        else:
            one = [r for r in inner if r[1].end <= region.middle]
            out.append({"kind": "branch", "name": region.name,
                        "cond": address(plan.place(region.cond)),
                        "then": _calls(plan, rows, region.first, region.middle, one),
                        "other": _calls(plan, rows, region.middle, region.end, inner[len(one):])})
        at = region.end
    return out + list(rows[at:end])


def _loop(plan: Plan, region: Rounds, number: int, body: Sequence[Call]) -> Call:
    names = [s.after for s in region.states]
    return {"kind": "loop", "name": region.name, "number": number, "body": body,
            "trip": c_index(simplify(region.trip)), "round": sym_field(region.round.name),
            "count": address(plan.place(region.count)) if region.count else "",
            "going": address(plan.place(region.going)) if region.going else "",
            "again": names.index(region.again) if region.again else -1,
            "ran": address(plan.place(region.ran)) if region.ran else "",
            "states": [_state(plan, s) for s in region.states],
            "slices": [_slice(plan, s) for s in region.slices],
            "stacks": [_slice(plan, s) for s in region.stacks]}


def _state(plan: Plan, state: State) -> Call:
    start, last, spare = map(plan.place, (state.start, state.last, state.spare))
    return {"before": plan.place(state.before).index, "after": plan.place(state.after).index,
            "start": address(start), "last": address(last), "spare": address(spare),
            "bytes": bytes_of(last), "name": state.last}


def _slice(plan: Plan, part: Entry) -> Call:
    own: Place = plan.place(part.part)
    return {"index": own.index, "whole": address(plan.place(part.whole)),
            "backward": part.backward, "bytes": bytes_of(own), "name": part.whole}


def round_fields(plans: Sequence[Plan], profile: bool = False) -> Mapping[str, Any]:
    """What the frame has for regions: names of the counters of rounds, numbers of pointers; and
    why a call is in no CUDA graph ("uncaptured"; "" if it may be)."""
    regions = [r for p in plans for r in p.regions if isinstance(r, Rounds)]
    asks = [r for p in plans for r in p.regions if asks_data(r)]
    return {"regions": any(p.regions for p in plans), "asks": bool(asks),
            "uncaptured": _why_asks(asks[0]) if asks else _PROFILED * profile,
            "turns": any(p.turns for p in plans),
            "rounds": sorted({sym_field(r.round.name) for r in regions}),
            **{kind: max((p.index + 1 for plan in plans for p in plan.places
                          if p.storage == kind), default=0) for kind in ("round_in", "round_out")}}


def asks_data(region: PlanRegion) -> bool:
    """True if a region's host waits for data to say what runs."""
    return not isinstance(region, Rounds) or any(getattr(region, b) for b in Rounds.BUFFERS)


def _why_asks(region: PlanRegion) -> str:
    """Words for why a call with this region is in no CUDA graph."""
    what, says = ("loop", "how often it runs") if isinstance(region, Rounds) else (
        "branch", "which way it goes")
    return f"{what} {region.name}: data says {says}, which the host waits for"

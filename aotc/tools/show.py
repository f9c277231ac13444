"""``aotc show``: the value after any stage, as text or as JSON data."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from aotc.emit.bundle.describe import arena_max
from aotc.emit.bundle.variants import variants
from aotc.ir.expr import Expr, show
from aotc.ir.plan import Plan
from aotc.ir.plans import Plans
from aotc.ir.schedule import json_lines
from aotc.options import Dims, Options
from aotc.pipeline import STAGES, Work, run_pipeline
from aotc.runtime.compile_bundle import Progress
from aotc.sched.accelerator.places import instance_report
from aotc.sched.precision.levels import levels_of
from aotc.sched.report.explain import explain
from aotc.sched.report.layout_report import layout_report, report_lines
from aotc.sched.report.summary import summarise
from aotc.sched.shape_variants import Part, parts
from aotc.target.base import Target


def show_stage(model: Any, stage: str, target: str = "native", dims: Dims = None,
               as_json: bool = False, progress: Progress | None = None, **decisions: Any) -> str:
    """Text (or JSON text) of the value after ``stage``; ``kernels`` says what every group became
    and why, ``layouts`` how every tensor in memory is stored, why, and what that costs, of every
    variant of the schedule; ``variants`` is what serves which calls; ``precision``: which products
    are rounded, and what each costs and gains where a budget of error chose them; ``source`` is
    the C of the bundle's kernel files.  ``schedule`` also explains the instances of sub-graphs on
    machines whose clusters have a memory of their own.  decisions: as ``aotc.compile``'s.  Raises
    what the compiler raises."""
    stop = {"source": "bundle", "kernels": "schedule", "layouts": "schedule",
            "precision": "schedule", "variants": "plan"}.get(stage, stage)
    # a decision stands once its Plan is proved; one that is given is shown as it is
    proved = stop == "schedule" and decisions.get("schedule") is None
    work = run_pipeline(Options(model, target=target, dims=dims,
                                stop_after="plan" if proved else stop, progress=progress,
                                **decisions))
    if proved:
        work = replace(work, parts=parts(work.program, work.schedule))
    if stage in _REPORTS:
        return _by_part(work, as_json, _REPORTS[stage])
    if stage == "variants":
        return _variants(work, as_json)
    if stage == "precision":
        return _precision(work, as_json)
    if stage == "source":
        files = {n: t.decode() for n, t in sorted(work.bundle.files.items()) if "_kernels" in n}
        return json.dumps(files, indent=1) if as_json else "\n".join(
            f"// ---- {n}\n{t}" for n, t in files.items())
    row = next(s for s in STAGES if s.name == stop)
    if not as_json:
        found = _instances(work) if stage == "schedule" else None
        return "\n".join([row.text(work), *(found[1] if found else ())])
    value = getattr(work, row.value)
    if stage == "schedule":
        data = json.loads(value.to_json())  # the form that --schedule reads
        *own, data["summary"] = (summarise(p.program, p.schedule, work.target)
                                 for p in work.parts)
        for variant, summary in zip(data.get("variants", ()), own):
            variant["schedule"]["summary"] = summary
        found = _instances(work)
        data["summary"] |= {"instances": found[0]} if found else {}
        return json_lines(data)
    if stage == "plan" and len(value.alternatives) == 1:
        value = value.main.plan
    return json.dumps(plain_data(value), indent=1)


def _instances(work: Work) -> tuple[dict[str, Any], list[str]] | None:
    """What the deciders of instances find of the Program: by the paper's rules where those connect,
    else by cost.  None on machines whose clusters have no memory of their own."""
    return instance_report(work.program, work.target.machine,
                           work.options.connect == "graphturbo")


def _by_part(work: Work, as_json: bool,
             report: Callable[[Part, Target], tuple[Any, list[str]]]) -> str:
    """A report of every part of the Schedule, under its title if there are several."""
    found = [(p.title, *report(p, work.target)) for p in work.parts]
    if len(found) == 1:
        _, data, lines = found[0]
        return json.dumps(data, indent=1) if as_json else "\n".join(lines)
    if as_json:
        return json.dumps({title: data for title, data, _ in found}, indent=1)
    return "\n\n".join("\n".join([title, *lines]) for title, _, lines in found)


def _kernels(part: Part, target: Target) -> tuple[Any, list[str]]:
    rows = explain(part.program, part.schedule, target)
    return dict(rows), [line for name, (first, *more) in rows
                        for line in (f"{name}: {first}", *(f"    {x}" for x in more))]


def _layouts(part: Part, target: Target) -> tuple[Any, list[str]]:
    report = layout_report(part.program, part.schedule, target)
    return {**plain_data(report), "totals": report.totals()}, report_lines(report)


_REPORTS = {"kernels": _kernels, "layouts": _layouts}


def _variants(work: Work, as_json: bool) -> str:
    """What serves which calls; where cost chose them, the table of what was predicted, too."""
    rows, found = variant_rows(work.plans), work.found
    if as_json:
        return json.dumps(rows if found is None else {"variants": rows, "chosen": {
            "calls": plain_data(found.calls), "seconds": found.seconds,
            "leaves": plain_data(found.leaves),
            "candidates": found.labels,
            "loss": [found.loss(when) for when, _ in found.leaves]}}, indent=1)
    return "\n".join([*map(_variant_line, rows), *([] if found is None else ["", str(found)])])


def _precision(work: Work, as_json: bool) -> str:
    """Which products are rounded, and why."""
    rows = [{"product": c, "level": str(x)} for c, x in levels_of(work.schedule.rewrites).items()]
    if as_json:
        return json.dumps({"precision": work.schedule.precision, "products": rows,
                           "chosen": plain_data(work.narrowed)}, indent=1)
    if work.narrowed is not None:
        return str(work.narrowed)
    return "\n".join([f"precision {work.schedule.precision}", *(
        f"  {r['product']}: {r['level']}" for r in rows)])


def variant_rows(plans: Plans) -> list[dict[str, Any]]:
    """Plain data: of each of Plans its target, ``when`` and ``why``, the most bytes of arena for a
    call with one worker (null: no bound), its kernels, how many of their functions no other
    variant for its target has, and bytes of weights that none has."""
    rows, found = [], variants("model", plans)
    places = Counter(at for v in found for p in v.plans for at in _weights(p))
    for variant in found:
        for choice in variant.choices:
            others = {k.name for p in variant.plans if p is not choice.plan for k in p.kernels}
            names = {k.name for k in choice.plan.kernels}
            stored, slab = arena_max(choice.plan), choice.plan.slab_bytes
            most = None if stored is None or not isinstance(slab, int) else stored + slab
            rows.append({"target": variant.target.name, "when": choice.about or "any call",
                         "why": choice.why, "arena_bytes": most,
                         "kernels": len(choice.plan.kernels), "own": len(names - others),
                         "own_weights_bytes": sum(n for at, n in _weights(choice.plan).items()
                                                  if places[at] == 1)})
    return rows


def _weights(plan: Plan) -> dict[int, int]:
    """{place in the image: bytes} of a Plan's constants."""
    return {plan.place(name).offset: array.nbytes for name, array in plan.weights}


def _variant_line(row: dict[str, Any]) -> str:
    arena = "any" if row["arena_bytes"] is None else row["arena_bytes"]
    return (f"{row['target']}, {row['when']}: {row['kernels']} kernels, {row['own']} of them its "
            f"own, {arena} bytes of arena, {row['own_weights_bytes']} bytes of weights its own"
            + (f"; {row['why']}" if row["why"] else ""))


def plain_data(value: Any) -> Any:
    """A value of the compiler as JSON data: dataclasses become objects with a "type" field,
    expressions their text, arrays their dtype and shape."""
    if isinstance(value, Expr):
        return show(value)
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if is_dataclass(value):
        return {"type": type(value).__name__,
                **{f.name: plain_data(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, dict):
        return {str(k): plain_data(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_data(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)

"""``aotc show``: the value after any stage, as text or as JSON data."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from aotc.ir.expr import Expr, show
from aotc.options import Dims, Options
from aotc.pipeline import STAGES, run_pipeline
from aotc.runtime.compile_bundle import Progress
from aotc.sched.report.explain import explain
from aotc.sched.report.layout_report import layout_report, report_lines
from aotc.sched.report.summary import summarise


def show_stage(model: Any, stage: str, target: str = "native", dims: Dims = None,
               as_json: bool = False, progress: Progress | None = None, **decisions: Any) -> str:
    """Text (or JSON text) of the value after ``stage``; ``kernels`` says what every group became
    and why, ``layouts`` how every tensor in memory is stored, why, and what that costs, ``source``
    is the C of the bundle's kernel files.  decisions: as ``aotc.compile``'s.  Raises what the
    compiler raises."""
    stop = {"source": "bundle", "kernels": "schedule", "layouts": "schedule"}.get(stage, stage)
    work = run_pipeline(Options(model, target=target, dims=dims, stop_after=stop,
                                progress=progress, **decisions))
    if stage == "kernels":
        rows = explain(work.program, work.schedule, work.target)
        return json.dumps(dict(rows), indent=1) if as_json else "\n".join(
            "\n".join([f"{name}: {lines[0]}"] + [f"    {x}" for x in lines[1:]])
            for name, lines in rows)
    if stage == "layouts":
        report = layout_report(work.program, work.schedule, work.target)
        data = {**plain(report), "totals": report.totals()}
        return json.dumps(data, indent=1) if as_json else "\n".join(report_lines(report))
    if stage == "source":
        files = {n: t.decode() for n, t in sorted(work.bundle.files.items()) if "_kernels" in n}
        return json.dumps(files, indent=1) if as_json else "\n".join(
            f"// ---- {n}\n{t}" for n, t in files.items())
    row = next(s for s in STAGES if s.name == stop)
    if not as_json:
        return row.text(work)
    value = getattr(work, row.value)
    if stage == "schedule":
        data = json.loads(value.to_json())  # the form that --schedule reads
        data["summary"] = summarise(work.program, value, work.target)
        return json.dumps(data, indent=1)
    return json.dumps(plain(value), indent=1)


def plain(value: Any) -> Any:
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
                **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)

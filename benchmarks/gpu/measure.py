"""Products, other operators and nets on the GPU, beside PyTorch: right, and how long."""

import importlib.util

import numpy as np

from aotc.errors import AotcError
from aotc.oracle.shares import share_of_range
from aotc.runtime.loading import load
from aotc.tools.peers import open_reference
from benchmarks.gpu import torch_nets, torch_twins
from benchmarks.gpu.cases import TOLERANCE, make_feeds
from benchmarks.gpu.nets import net_feeds
from benchmarks.gpu.providers import provider_systems
from benchmarks.gpu.timing import Graph, System, in_turn, time_systems

CACHE = 128 << 20  # bytes of weights in turn, so that no L2 holds those of the next call
COPIES = 6  # of a model's weights at most
RANGE = 0.05  # of outputs: how far a net of f16 or 4 bits may be from what another runtime has
SECONDS = 0.15  # of every system and operator


def _calls(prepared, feeds, count, simulate):
    """[(model, bound call with its inputs on the device)], so many with weights of their own."""
    out = []
    for _ in range(count):
        model = load(prepared.folder, simulate=simulate)
        bound = model.bind(feeds)
        bound()
        out.append((model, bound))
    return out


def _our_systems(calls, row):
    """{name: System} of aotc: launches on a stream, and a CUDA graph of them."""
    starts = [bound.launch for _, bound in calls]
    found = {"aotc": System(in_turn(starts), calls[0][0].synchronize)}
    try:
        found["aotc graph"] = Graph(starts).system()
    except (AotcError, OSError) as err:
        row["aotc graph"] = str(err)
    return found


def _their_systems(function, args, modes, row):
    """{name: System} of PyTorch: eager, as a CUDA graph, and compiled in these modes."""
    ways = {"torch": lambda: torch_twins.eager(function, args),
            "torch graph": lambda: torch_twins.captured(function, args),
            **{f"torch {m}": lambda m=m: torch_twins.compiled(function, args, m) for m in modes}}
    found = {}
    for name, way in ways.items():
        try:
            found[name] = way()
            found[name].call()
            found[name].wait()
        except Exception as err:  # torch's compilers raise whatever they like
            row[name] = f"{type(err).__name__}: {err}".splitlines()[0][:120]
    return found


def _note_times(systems, seconds, row, work=0):
    """Milliseconds of all systems, aotc's by the best of torch's, and its rate."""
    times = time_systems(systems, seconds)
    row |= {f"{n} ms": t for n, t in times.items()}
    ours = min(t for n, t in times.items() if n.startswith("aotc"))
    for peer in ("torch", "onnxruntime"):
        theirs = [t for n, t in times.items() if n.startswith(peer)]
        if theirs:
            row[f"speed by {peer}'s best"] = min(theirs) / ours
    if work:
        row["TFLOP/s"] = work / ours * 1e-9


def _begin(prepared):
    """The row of something prepared, finished if it could not be."""
    if prepared.fault:
        return {"refused": prepared.fault}
    compile_, build = prepared.seconds
    return {"compile s": round(compile_, 2), "build s": round(build, 2),
            "kernels": prepared.kernels, "predicted ms": sum(prepared.predicted) * 1e3}


def measure_case(case, prepared, simulate, why_no_torch, modes=()):
    """The row of an operator: right, times, and what was refused."""
    row = _begin(prepared)
    if prepared.fault:
        return row
    feeds = make_feeds(prepared.inputs)
    calls = _calls(prepared, feeds, 1 if simulate else _copies(case), simulate)
    (ours,) = calls[0][1].outputs.values()
    if why_no_torch:
        (want,) = open_reference(prepared.path)[1](feeds).values()
        row["torch"] = why_no_torch
    else:
        torch_twins.allow_tf32(False)
        args = [t for of in torch_twins.tensors_of(case, feeds) for t in of]
        function = torch_twins.function_of(case)
        want = torch_twins.eager(function, args).call()
        want = (want.float() if want.is_floating_point() else want).cpu().numpy()
    share = share_of_range(ours, want.reshape(ours.shape))
    row |= {"share": float(share), "ok": bool(share <= TOLERANCE[case.type])}
    if simulate:
        return row
    systems = _our_systems(calls, row)
    if not why_no_torch:
        torch_twins.allow_tf32(case.type == "tf32")
        systems |= _their_systems(function, args, modes, row)
    _note_times(systems, SECONDS, row, case.flops())
    moved = case.moved_bytes()
    if moved:
        best = min(v for k, v in row.items() if k in ("aotc ms", "aotc graph ms"))
        row["GB/s"] = moved / best * 1e-6
    return row


def _has_few_rows(case):
    return case.kind == "matmul" and case.sizes[0] <= 64


def _copies(case):
    """Of a case's weights, in turn: of few rows they are most of what is read."""
    return min(COPIES, -(-CACHE // max(case.weight_bytes(), 1))) if _has_few_rows(case) else 1


def measure_kernels(prepared, case, simulate, calls=9):
    """{kernel: (predicted, measured)} seconds of something prepared with ``profile``, by the events
    around each launch, as tuning measures them: medians of calls."""
    made = _calls(prepared, make_feeds(prepared.inputs), 1 if simulate else _copies(case), simulate)
    for model, _ in made:
        model.profile(reset=True)
    runs = []
    for n in range(1 if simulate else calls):
        model, bound = made[n % len(made)]
        bound.launch()
        bound.synchronize()
        runs.append([c.seconds for c in model.profile(reset=True)])
    measured = np.median(runs, axis=0)
    return {f"{case.name}: {k['c']}": (p, float(s)) for k, p, s in zip(
        model.manifest["kernels"], prepared.predicted, measured) if p > 0 and s > 0}


def measure_net(net, prepared, simulate, why_no_torch, mode):
    """The row of a net; mode: that of torch.compile."""
    row = _begin(prepared)
    if prepared.fault:
        return row
    feeds = net_feeds(net, prepared.inputs)
    calls = _calls(prepared, feeds, 1, simulate)
    row["finite"] = bool(all(np.isfinite(a.astype("f8")).all()
                             for a in calls[0][1].outputs.values()))
    if simulate or (net.batch == 1 and importlib.util.find_spec("onnxruntime")):
        try:
            want = open_reference(prepared.path)[1](feeds)
            share = max(share_of_range(a, want[n]) for n, a in calls[0][1].outputs.items())
            row |= {"share": float(share), "ok": bool(share < RANGE)}
        except Exception as err:  # a runtime that lacks an operator in f16
            row["reference"] = str(err).splitlines()[0][:120]
    if simulate:
        return row
    systems = _our_systems(calls, row)
    try:
        if why_no_torch:
            raise LookupError(why_no_torch)
        torch_twins.allow_tf32(net.type == "tf32")
        args = [torch_twins.on_gpu(a) for a in feeds.values()]
        systems |= _their_systems(torch_nets.torch_module(net), args, (mode,), row)
    except LookupError as err:
        row["torch"] = str(err)
    systems |= provider_systems(prepared.path, feeds, row)
    _note_times(systems, 2 * SECONDS, row)
    return row


__all__ = ["measure_case", "measure_kernels", "measure_net"]

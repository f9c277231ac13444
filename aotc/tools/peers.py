"""Other executors of ONNX models behind one shape: ``open(path, threads, feeds) -> run(feeds)``,
which gives a dict of outputs; some need the shapes of what they will run on.

They are references for ``aotc verify`` and opponents for ``aotc bench``; none is needed to
compile.  Each import happens when its peer is asked for.
"""

import importlib.util
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from aotc.errors import AotcError
from aotc.ir.dtypes import Array
from aotc.samples import Feeds
from aotc.tools.peer_maps import with_maps
from aotc.tools.peer_ncnn import Run, open_ncnn


def _onnxruntime(path: str | Path, threads: int, feeds: Feeds | None, literal: bool = False,
                 exact: bool = False, lean: bool = False) -> Run:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    if lean:  # what a run has allocated is given back, not kept for the next one
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    if literal:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options,
                                           providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]

    def run(feeds: Feeds) -> Feeds:
        return dict(zip(names, session.run(None, feeds)))
    maps = any("map(" in v.type for v in (*session.get_inputs(), *session.get_outputs()))
    return with_maps(path, run) if maps else run


# what its exact kernels' faults with s8 activations say
REFUSED = ("Attempt to replace the existing tensor", "Failed to find kernel for")


def _exact_onnxruntime(path: str | Path, threads: int, literal: bool = False) -> Run:
    """ONNX Runtime as a reference, in as little memory as it can do with, by its kernels that do
    not saturate: on CPUs without VNNI, those of its default add two products of u8 and s8 in 16
    bits.  It refuses them to some models of s8 activations (``REFUSED``), which need none."""
    try:
        return _onnxruntime(path, threads, None, literal, exact=True, lean=True)
    except Exception as err:  # its own kinds are known only where it is installed
        if not any(text in str(err) for text in REFUSED):
            raise
        return _onnxruntime(path, threads, None, literal, lean=True)


def _openvino(path: str | Path, threads: int, feeds: Feeds | None,
              precision: str | None = "f32") -> Run:
    import openvino
    core = openvino.Core()
    # its threads stay on the CPUs that this process may use, where others run beside it
    config: dict[str, object] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
                                 "ENABLE_CPU_PINNING": False}
    # its default on some CPUs is bfloat16, which is no opponent for f32
    config |= {"INFERENCE_PRECISION_HINT": precision} if precision else {}
    compiled = core.compile_model(core.read_model(str(path)), "CPU", config)
    request, outputs = compiled.create_infer_request(), list(compiled.outputs)

    def run(feeds: Feeds) -> Feeds:
        request.infer(feeds, share_inputs=True)
        return {o.get_any_name(): request.get_tensor(o).data for o in outputs}
    return run


def _reference(path: str | Path, threads: int, feeds: Feeds | None = None) -> Run:
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator
    model = onnx.load(str(path))
    evaluator = ReferenceEvaluator(model, new_ops=[_erf()])
    names = [o.name for o in model.graph.output]

    def run(feeds: Feeds) -> Feeds:
        with np.errstate(all="ignore"):  # NaN and infinities are results
            return dict(zip(names, evaluator.run(None, feeds)))
    return run


def _erf() -> type:
    """The reference evaluator's Erf rounds f64 to f32: one that does not."""
    import numpy as np
    from onnx.reference.op_run import OpRun

    class Erf(OpRun):
        def _run(self, x: Array) -> tuple[Array]:
            made = np.fromiter(map(math.erf, np.ravel(x).tolist()), np.float64, np.size(x))
            return (made.reshape(np.shape(x)).astype(x.dtype),)
    return Erf


def _ncnn(path: str | Path, threads: int, feeds: Feeds | None) -> Run:
    import onnx
    if feeds is None:
        raise AotcError("its converter needs the inputs' shapes")
    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {t.name for t in graph.initializer}
    return open_ncnn(path, threads, feeds, [i.name for i in graph.input if i.name not in stored],
                     [o.name for o in graph.output])


PEERS: dict[str, Callable[..., Run]] = {
    "onnxruntime": _onnxruntime, "openvino": _openvino, "ncnn": _ncnn}
REFERENCES: dict[str, Callable[..., Run]] = {"onnxruntime": _exact_onnxruntime, "onnx": _reference}
_KNOWN: dict[str, Callable[..., Run]] = {**REFERENCES, **PEERS}


def check_peer(name: str) -> None:
    """AotcError unless ``name`` is a peer's."""
    if name not in _KNOWN:
        raise AotcError(f"no peer {name!r}; known: {', '.join(_KNOWN)}")


def open_peer(name: str, path: str | Path, threads: int = 1, feeds: Feeds | None = None,
              **how: Any) -> Run:
    """``run(feeds) -> {output: array}`` of a peer for inputs shaped like ``feeds`` (arrays by
    name; None: any); AotcError if it is unknown, not installed or refuses the model.  ``how``:
    what only this peer knows (``precision`` of openvino, "f32"; None: its default)."""
    check_peer(name)
    return _opened(name, _KNOWN[name], path, threads, feeds, **how)


def _opened(name: str, system: Callable[..., Run], *args: Any, **how: Any) -> Run:
    if importlib.util.find_spec(name) is None:
        raise AotcError(f"peer {name} is not installed in this Python")
    try:
        return system(*args, **how)
    except Exception as err:  # peers raise exceptions of their own making
        raise AotcError(f"{name} cannot run this model: {first_line(err)}") from err


def open_literal(name: str, path: str | Path, threads: int = 1) -> Run | None:
    """``run`` of the reference ``name`` with no node fused, moved or replaced; None if it has no
    such mode of its own."""
    return _exact_onnxruntime(path, threads, literal=True) if name == "onnxruntime" else None


def open_reference(path: str | Path, threads: int = 1,
                   told: Callable[[str], object] = lambda why: None,
                   skip: Collection[str] = ()) -> tuple[str, Run]:
    """(name, run) of the first reference that is importable and takes the model: ONNX Runtime
    (which refuses opsets newer than itself), else the ONNX reference evaluator.  ``told`` is called
    with why one before it does not, ``skip`` names those that are not asked.  AotcError if there is
    none."""
    refused: list[str] = []
    absent = [n for n in REFERENCES if importlib.util.find_spec(n) is None]
    for name, system in REFERENCES.items():
        if name not in skip and name not in absent:
            try:
                return name, _opened(name, system, path, threads)
            except AotcError as err:
                refused.append(str(err))
                told(refused[-1])
    other = [f"install {n}, which may take it" for n in absent]
    raise AotcError("no reference for this model: " + (
        "; ".join(refused + other) or "none is left"))


def first_line(err: Exception) -> str:
    """What an exception says, on one line."""
    return (str(err).strip().splitlines() or [type(err).__name__])[0][:300]

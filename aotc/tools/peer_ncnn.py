"""ncnn as a peer: the model is converted by pnnx into a scratch folder, tried in a process of its
own (a converted model that ncnn cannot run may end the process), then loaded here, all in f32.

ncnn has no batch axis: of every tensor the first axis, which must have one element, is left out.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aotc.errors import AotcError
from aotc.ir.dtypes import Array
from aotc.samples import Feeds

CONVERT_SECONDS, TRIAL_SECONDS = 300, 120
_CODES = {"float32": "f32", "int64": "i64", "int32": "i32", "bool": "i8"}  # as pnnx calls dtypes

Run = Callable[[Feeds], Feeds]  # inputs by name -> outputs by name


def open_ncnn(path: str | Path, threads: int, feeds: Feeds, inputs: Sequence[str],
              outputs: Sequence[str]) -> Run:
    """``run(feeds) -> {output: array}`` of an .onnx file.

    feeds: arrays by input name with the shapes that every run will have.  inputs, outputs: names
    in graph order.  AotcError if a tool is missing, or the model cannot be converted or run.
    """
    for n in inputs:
        if not feeds[n].shape or feeds[n].shape[0] != 1:
            raise AotcError(f"input {n} has shape {list(feeds[n].shape)}; ncnn runs one sample: "
                            "the first extent must be 1")
    with tempfile.TemporaryDirectory(prefix="aotc-ncnn-") as scratch:
        _convert(path, Path(scratch), [feeds[n] for n in inputs])
        arrays = Path(scratch) / "inputs.npz"
        np.savez(arrays, *[feeds[n] for n in inputs])
        _tool([sys.executable, __file__, scratch, str(arrays)], scratch, TRIAL_SECONDS,
              "a trial run of the converted model", PYTHONPATH=os.pathsep.join(sys.path))
        net = _load(scratch, threads)
    return lambda feeds: dict(zip(outputs, _run(net, [feeds[n] for n in inputs])))


def _convert(path: str | Path, scratch: Path, arrays: Sequence[Array]) -> None:
    """model.ncnn.param and model.ncnn.bin in ``scratch``."""
    spec = importlib.util.find_spec("pnnx")
    if spec is None or spec.origin is None:
        raise AotcError("pnnx, which converts models for ncnn, is not installed in this Python")
    (scratch / "model.onnx").symlink_to(Path(path).resolve())
    unknown = [str(a.dtype) for a in arrays if str(a.dtype) not in _CODES]
    if unknown:
        raise AotcError(f"pnnx takes no inputs of type {unknown[0]}")
    shapes = ",".join(f"[{','.join(map(str, a.shape))}]{_CODES[str(a.dtype)]}" for a in arrays)
    tool = Path(spec.origin).parent / "pnnx"
    _tool([str(tool), "model.onnx", f"inputshape={shapes}", "fp16=0"], scratch, CONVERT_SECONDS,
          "the conversion by pnnx")
    if not (scratch / "model.ncnn.bin").exists():
        raise AotcError("pnnx wrote no model for ncnn")


def _tool(command: Sequence[str], folder: str | Path, seconds: float, what: str,
          **env: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                              timeout=seconds, env={**os.environ, **env})
    except subprocess.TimeoutExpired:
        raise AotcError(f"{what} took more than {seconds} s") from None
    except OSError as err:
        raise AotcError(f"{what}: {err}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        how = f"signal {-done.returncode}" if done.returncode < 0 else lines[-1].strip()
        raise AotcError(f"{what} failed: {how}")


def _load(folder: str | Path, threads: int) -> Any:
    import ncnn
    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = False
    net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    base = f"{folder}/model.ncnn"
    if net.load_param(f"{base}.param") or net.load_model(f"{base}.bin"):
        raise AotcError("the converted model has layers that ncnn lacks")
    return net


def _run(net: Any, arrays: Sequence[Array]) -> list[Array]:
    import ncnn
    extractor, found = net.create_extractor(), []
    mats = [ncnn.Mat(a[0]) for a in arrays]  # views, alive until the last output is there
    for i, mat in enumerate(mats):
        extractor.input(f"in{i}", mat)
    for i in range(len(net.output_names())):
        code, mat = extractor.extract(f"out{i}")
        if code:
            raise AotcError(f"ncnn could not compute output {i} (code {code})")
        found.append(np.asarray(mat)[None])
    return found


def _trial(folder: str, arrays: str) -> None:
    with np.load(arrays) as data:
        _run(_load(folder, 1), [data[n] for n in data.files])


if __name__ == "__main__":
    try:
        _trial(*sys.argv[1:])
    except AotcError as err:
        sys.exit(str(err))

"""``load(folder)``: a bundle on disk becomes a Model for this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aotc.errors import AotcError
from aotc.ir.bundle import Manifest
from aotc.runtime.compile_bundle import build, is_cuda, read_manifest
from aotc.runtime.cuda_model import CudaModel, require_device
from aotc.runtime.device_arrays import device_of
from aotc.runtime.feeds import machine
from aotc.runtime.model import Model
from aotc.runtime.shared_library import Library


def load(folder: str | Path, threads: int = 1, jobs: int = 2,
         progress: Callable[[int, int, str], object] | None = None, variant: str | None = None,
         simulate: bool | str = False, device: Any = None) -> Model | CudaModel:
    """Model of a bundle folder; compiles its C files first if that has not been done.

    ``threads``: 1 = the calling thread alone, 0 = one per processor.  ``jobs`` and ``progress``
    as in ``build``.  ``variant``: name of the target whose kernels shall run, where the bundle
    has several; None = the widest this CPU can run.  A CUDA bundle runs on the GPU ``device`` (its
    number, "cuda:1", or an object of torch or CuPy; None: the first one), or with ``simulate`` on
    the CPU, slowly and with its memory accesses checked (a text gives the order in which threads
    take turns, see ``CudaModel``).  Raises AotcError (no
    bundle, no such variant, another machine's bundle), DeviceError (no GPU), ToolchainError
    (compiler), WeightsError.
    """
    folder = Path(folder).resolve()
    manifest = read_manifest(folder)
    if is_cuda(manifest):
        if not simulate:
            require_device(manifest["name"])
        library = Library(folder, manifest, build(folder, jobs, progress, bool(simulate)))
        return CudaModel(folder, manifest, library, variant, simulate, device_of(device))
    if device is not None:
        raise AotcError(f"{folder}: compiled for CPUs, device={device} is for CUDA bundles")
    _check_machine(folder, manifest)
    library = Library(folder, manifest, build(folder, jobs, progress, bool(simulate)))
    return Model(folder, manifest, library, threads, variant)


def _check_machine(folder: Path, manifest: Manifest) -> None:
    arch, here = manifest["build"]["arch"], machine()
    if arch not in ("", here):
        raise AotcError(f"{folder}: compiled for {arch}, this machine is {here}; compile the model "
                        "for another target, e.g. target='c'")

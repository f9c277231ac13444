"""Where kernels of a target are built and timed: on CPUs of this machine, or on its GPU.

A rig is a value that worker processes are given.  Which one a target has follows from how its
kernels are timed (``Target.timed``); what is missing here for it is one error, before anything is
built.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aotc.emit.bundle.render import render_bundle
from aotc.errors import ToolchainError, UnsupportedError
from aotc.ir.bundle import Bundle
from aotc.ir.plan import Plan
from aotc.ir.schedule import Schedule
from aotc.runtime.compile_bundle import build
from aotc.runtime.cuda_bound import CudaBound
from aotc.runtime.cuda_model import devices
from aotc.runtime.loading import load
from aotc.runtime.model import Binding, Model
from aotc.runtime.processors import usable_processors
from aotc.runtime.tools import find_nvcc
from aotc.target import TARGETS, runs_here
from aotc.target.base import Target
from aotc.target.named_machines import runs_on
from aotc.tuner.measure.cpu_builds import cpu_name, precompile_header, time_by_thread, use_cpus
from aotc.tuner.measure.portable import portable_files
from aotc.tuner.measure.portable_blocks import portable_block_files

Info = Mapping[str, Any]  # of a model, as ``render_bundle`` takes it


class Rig(Protocol):
    """``target``: what is built for, with its machine; ``jobs``: compilers that run at a time."""

    @property
    def target(self) -> Target: ...

    @property
    def jobs(self) -> int: ...

    @property
    def machine(self) -> str:
        """What times of records depend on beside the target."""

    def render(self, plan: Plan, schedule: Schedule, info: Info) -> Bundle:
        """A Bundle that counts, whose kernels are compiled once for all Plans that have them."""

    def build(self, folder: Path, jobs: int, objects: Path | None = None) -> None:
        """The library of a bundle's folder; objects: a folder of object files that are shared."""

    def open(self, folder: Path) -> Model:
        """The Model of a folder that has been built."""

    def settle(self) -> None:
        """Bind this process to where it shall measure."""

    def repeat(self, bound: Binding) -> Callable[[], object]:
        """What runs the kernels of a binding that has been called before, once more."""

    def elapsed(self) -> float:
        """Seconds of the clock by which it is measured for so long."""


@dataclass(frozen=True)
class CpuRig:
    """CPUs: kernels run on so many ``threads``."""

    target: Target
    threads: int = 1
    jobs: int = 2

    @property
    def machine(self) -> str:
        """As of ``Rig``."""
        return cpu_name()

    def render(self, plan: Plan, schedule: Schedule, info: Info) -> Bundle:
        """As of ``Rig``; what one thread has run is counted, whatever interrupts it."""
        bundle = render_bundle(plan, schedule, info, profile=True,
                               kernel_files=portable_files(plan, self.target))
        return time_by_thread(bundle) if self.threads == 1 else bundle

    def build(self, folder: Path, jobs: int, objects: Path | None = None) -> None:
        """As of ``Rig``."""
        if objects is not None:
            precompile_header(folder, objects)
        build(folder, jobs=jobs, objects=objects)

    def open(self, folder: Path) -> Model:
        """As of ``Rig``."""
        return load(folder, threads=self.threads)

    def settle(self) -> None:
        """As of ``Rig``: what moves between CPUs loses its caches."""
        use_cpus(self.threads)

    def repeat(self, bound: Binding) -> Callable[[], object]:
        """As of ``Rig``."""
        return bound

    def elapsed(self) -> float:
        """CPU seconds of a thread: where others use the CPUs too, that is longer by the clock."""
        return time.process_time() / self.threads


@dataclass(frozen=True)
class GpuRig:
    """The first GPU of this machine, or with ``simulate`` the simulator, which tells what it took
    itself."""

    target: Target
    simulate: bool = False

    @property
    def jobs(self) -> int:
        """As many as there are CPUs: nvcc takes seconds for a kernel."""
        return max(2, len(usable_processors()))

    @property
    def machine(self) -> str:
        """As of ``Rig``."""
        return f"simulated on {cpu_name()}" if self.simulate else devices()[0][0]

    def render(self, plan: Plan, schedule: Schedule, info: Info) -> Bundle:
        """As of ``Rig``."""
        return render_bundle(plan, schedule, info, profile=True,
                             kernel_files=portable_block_files(plan, self.target))

    def build(self, folder: Path, jobs: int, objects: Path | None = None) -> None:
        """As of ``Rig``."""
        build(folder, jobs=jobs, objects=objects, simulate=self.simulate)

    def open(self, folder: Path) -> Model:
        """As of ``Rig``."""
        return load(folder, simulate=self.simulate)

    def settle(self) -> None:
        """As of ``Rig``: the driver's threads may run where they like."""

    def repeat(self, bound: Binding) -> Callable[[], object]:
        """As of ``Rig``: inputs stay on the device, outputs too."""
        assert isinstance(bound, CudaBound), bound

        def call() -> None:
            bound.launch()
            bound.synchronize()
        return call

    def elapsed(self) -> float:
        """Seconds by the clock: while the GPU works the CPU may do nothing."""
        return time.process_time() if self.simulate else time.monotonic()


def find_rig(target: Target, threads: int = 1, simulate: bool = False) -> Rig:
    """The Rig of a target on this machine.  UnsupportedError says what is missing for it; simulate:
    on the simulator of GPUs, whose times say nothing of a GPU's."""
    if simulate and target.timed != "events":
        raise UnsupportedError(f"tune: simulate: {target.name} is no GPU; leave simulate out")
    if target.timed == "events":
        if threads != 1:
            raise UnsupportedError(f"tune: threads {threads}: {target.name} runs on a GPU, whose "
                                   "threads are chosen by kernel; leave threads out")
        if not simulate:
            _require_gpu(target)
        return GpuRig(target, simulate)
    if target.variants or not target.timed or not runs_here(target):
        raise UnsupportedError(f"tune: measuring needs a CPU target that runs here, {target.name} "
                               "does not or stands for several; choose native or one of them")
    return CpuRig(target, threads)


def _require_gpu(target: Target) -> None:
    """UnsupportedError with all that is missing here to build and time kernels of a target."""
    missing, found = [], devices()
    try:
        find_nvcc(target.arch)
    except ToolchainError:
        missing.append("nvcc is not found (install the CUDA toolkit, or name yours in the "
                       "environment variable NVCC)")
    if not found:
        missing.append("there is no GPU (no device behind libcuda.so.1; run it on a machine that "
                       "has one)")
    elif not runs_on(target, _capability(found[0][1])):
        name, arch = found[0]
        others = [t.name for t in TARGETS.values() if runs_on(t, _capability(arch))]
        choose = f"choose --target {' or '.join(others)}" if others else "no target runs there"
        missing.append(f"its GPU ({name}) has compute capability {_capability(arch) / 10}, "
                       f"{target.name} is for {_capability(target.arch) / 10} ({choose})")
    if missing:
        raise UnsupportedError(f"tune: candidates for {target.name} are timed on this machine's "
                               f"GPU, and {'; '.join(missing)}; a dry run of all but the times is "
                               "--simulate (simulate=True)")


def _capability(arch: str) -> int:
    """90 of sm_90."""
    return int(arch.removeprefix("sm_"))


__all__ = ["CpuRig", "GpuRig", "Info", "Rig", "find_rig"]

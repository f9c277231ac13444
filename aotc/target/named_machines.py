"""The machine that a user decides for: a GPU by name, or a machine file."""

from dataclasses import replace
from pathlib import Path

from aotc.errors import ScheduleError, UnsupportedError
from aotc.target.base import Machine, Target
from aotc.target.gpus import GPUS, Gpu
from aotc.target.machine_file import with_machine


def choose_machine(target: Target, given: str | Path) -> Target:
    """The target with the machine that ``given`` names, one of ``GPUS``, or the machine file that
    lies there; a block's memory is at most what the target's code may use.  UnsupportedError where
    code of the target does not run on that GPU, ScheduleError where there is no such file, or what
    is wrong with it."""
    gpu = GPUS.get(str(given))
    if gpu is None:
        try:
            return with_machine(target, Path(given).read_text())
        except (OSError, UnicodeDecodeError) as err:
            raise ScheduleError(f"machine file {given}: cannot be read: {err}; GPUs by name: "
                                + ", ".join(GPUS)) from None
    if not runs_on(target, gpu.capability):
        raise UnsupportedError(f"machine {given} ({gpu.about}): code of target {target.name} does "
                               f"not run there; choose --target cuda:sm_{gpu.capability} or cuda")
    return replace(target, machine=_with_own_memory(target, gpu))


def _with_own_memory(target: Target, gpu: Gpu) -> Machine:
    """The GPU's machine, whose blocks have no more memory than those of the target's code."""
    near = replace(gpu.machine.near, capacity=min(
        gpu.machine.near.capacity, target.machine.near.capacity))
    return replace(gpu.machine, memories=tuple(
        near if m.name == near.name else m for m in gpu.machine.memories))


def runs_on(target: Target, capability: int) -> bool:
    """True if code of a target runs on a GPU of a compute capability: that for an older one of the
    same major version does, and on every later one what its driver compiles."""
    if target.emitter != "simt":
        return False
    own = int(target.arch.removeprefix("sm_"))
    return own <= capability and (has_compiled_later(target) or own // 10 == capability // 10)


def has_compiled_later(target: Target) -> bool:
    """True if drivers of GPUs that come later compile the code of a target for themselves."""
    return any("compute_" in flag.partition("code=")[2] for flag in target.cflags)


__all__ = ["choose_machine", "has_compiled_later", "runs_on"]

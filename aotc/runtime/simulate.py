"""The CUDA simulator: where its sources lie and how code is compiled against it.

The sources (``runtime_c/cuda/sim``) are installed with the package and never travel in a bundle."""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from aotc.errors import ToolchainError
from aotc.installed import runtime_c
from aotc.target.gpus import block_bytes

SOURCES = ("aotc_cusim.cpp", "aotc_cusim_events.cpp", "aotc_cusim_fiber.cpp",
           "aotc_cusim_memory.cpp", "aotc_cusim_mma.cpp", "aotc_cusim_shared.cpp",
           "aotc_cusim_streams.cpp")
# -O2 makes it a third faster, but what takes long is compiling
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-ffp-contract=fast")


def cuda_folder() -> Path:
    """Folder of aotc_cuda.h, with the simulator in ``sim``.  AotcError if it is not installed."""
    return runtime_c() / "cuda"


def find_cxx() -> list[str]:
    """The C++ compiler's command as a list: $CXX, else c++, g++ or clang++.  ToolchainError with
    what to do if there is none."""
    given = shlex.split(os.environ.get("CXX", ""))
    for command in [given] if given else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    wanted = given[0] if given else "c++, g++, clang++"
    raise ToolchainError(f"no C++ compiler found for the simulator (tried {wanted}); install g++, "
                         "or name yours in the environment variable CXX")


def compile_command(cxx: Sequence[str], arch: str) -> list[str]:
    """The start of the command that compiles .cu and .cpp files against the simulator of a device
    of architecture ``arch`` ("sm_90"; "" for the largest); $CXXFLAGS are added."""
    smem, capability = block_bytes(arch), arch.removeprefix("sm_") or "90"
    given, folder = shlex.split(os.environ.get("CXXFLAGS", "")), cuda_folder()
    # -idirafter: a bundle's own copy of aotc_cuda.h comes first
    return [*cxx, *_FLAGS, *given, f"-DAOTC_CUSIM_SMEM={smem}",
            f"-DAOTC_CUSIM_CAPABILITY={capability}", "-idirafter", str(folder),
            "-idirafter", str(folder / "sim"), "-x", "c++"]

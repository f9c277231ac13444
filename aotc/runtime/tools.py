"""Which commands make a shared library of a bundle's files."""

import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotc.errors import ToolchainError
from aotc.runtime.platforms import ELF, Platform, platform_of
from aotc.runtime.simulate import SOURCES, compile_command, cuda_folder, find_cxx

_C_FLAGS = ("-std=c11", "-O2")
_NVCC_FLAGS = ("-std=c++17", "-O3", "-Xcompiler", "-fPIC")


@dataclass(frozen=True)
class Tools:
    """``compile``: {suffix of a source: command without flags, source and output}; ``link``: the
    command without objects and output, ``libraries`` what follows them; ``bundle_flags``: whether
    the flags that a bundle states for its kernels are meant for these compilers; ``further``:
    paths of sources beside the bundle's; ``headers``: paths of the headers these need;
    ``platform``: the system that they make a library for."""

    compile: dict[str, Sequence[str]]
    link: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    bundle_flags: bool = True
    further: tuple[Path, ...] = ()
    headers: tuple[Path, ...] = field(default=(), repr=False)
    platform: Platform = ELF

    def command(self, source: str | Path, flags: Iterable[str]) -> list[str]:
        """The command that compiles a source (a path) with these flags of the bundle; the output
        is to be added."""
        return [*self.compile[Path(source).suffix], *(flags if self.bundle_flags else ()),
                f"-I{Path(source).parent}", "-c", str(source)]

    @property
    def executables(self) -> list[str]:
        """Paths of the programs the commands start."""
        names = sorted({self.link[0], *(c[0] for c in self.compile.values())})
        return [found for found in map(shutil.which, names) if found]


def user_flags() -> list[str]:
    """$CFLAGS as a list."""
    return shlex.split(os.environ.get("CFLAGS", ""))


def c_tools(compiler: Sequence[str], link: Sequence[str] = ()) -> Tools:
    """Tools of bundles in C; ``compiler``: its command as a list; link: further flags of libraries
    for their machine."""
    system = platform_of(compiler)
    return Tools({".c": (*compiler, *_C_FLAGS, "-fvisibility=hidden", *system.compile,
                         *user_flags())},
                 (*compiler, *system.link, *link,
                  *(f for f in user_flags() if f not in system.unlinked)),
                 system.libraries, platform=system)


def cuda_tools(compiler: Sequence[str], arch: str) -> Tools:
    """Tools of CUDA bundles for a GPU: nvcc, and the C compiler for the files that are C.  The
    CUDA runtime is linked in, so that the library loads, and says so, where there is no GPU.
    ToolchainError if there is no nvcc."""
    nvcc = find_nvcc(arch)
    return Tools({".c": (*compiler, *_C_FLAGS, *ELF.compile, *user_flags()),
                  ".cu": (*nvcc, *_NVCC_FLAGS)},
                 (*nvcc, "-shared", "-cudart", "static", "-Xcompiler", "-fPIC,-pthread",
                  "-Xlinker", "-Bsymbolic"))


def simulated_tools(compiler: Sequence[str], arch: str) -> Tools:
    """Tools of CUDA bundles for the simulator of a device of architecture ``arch`` (sm_90)."""
    cxx, sim = find_cxx(), cuda_folder() / "sim"
    command = tuple(compile_command(cxx, arch))
    return Tools({".c": (*compiler, *_C_FLAGS, *ELF.compile, *user_flags()), ".cu": command,
                  ".cpp": command},
                 (*cxx, *ELF.link), ELF.libraries, False, tuple(sim / s for s in SOURCES),
                 tuple(sorted(sim.glob("*.h"))))


def find_nvcc(arch: str = "") -> list[str]:
    """nvcc's command as a list: $NVCC, else nvcc on the PATH or in the usual folders.
    ToolchainError with what to do if there is none."""
    given = shlex.split(os.environ.get("NVCC", ""))
    homes = [os.environ.get(n, "") for n in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    usual = [[os.path.join(h, "bin", "nvcc")] for h in homes if h]
    for command in [given] if given else [["nvcc"], *usual]:
        if shutil.which(command[0]):
            return command
    raise ToolchainError(f"nvcc is not found ({arch or 'CUDA'} bundles need it); install the CUDA "
                         "toolkit, or name yours in the environment variable NVCC; without one, "
                         "`aotc verify --simulate` runs the same sources on the CPU")

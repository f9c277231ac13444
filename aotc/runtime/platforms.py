"""How systems call and make shared libraries, by the machine that a compiler compiles for."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from aotc.errors import ToolchainError

Words = tuple[str, ...]


@dataclass(frozen=True)
class Platform:
    """``words``: of which a compiler's name of such a system has one (-dumpmachine; () = any
    other).  ``suffix`` of shared libraries; flags that compile for one, that link one, and what
    follows the objects; ``exports``: it takes the file NAME.def, which lists what others may
    call, where others tell that by visibility; ``parts``: sources of the bundle NAME ({}) that are
    for its libraries alone; ``unlinked``: flags of compilers that its linkers do not take."""

    name: str
    words: Words
    suffix: str
    compile: Words
    link: Words
    libraries: Words
    exports: bool = False
    parts: Words = ()
    unlinked: Words = ()


# with GNU linkers a library's own calls stay inside it, also if another one has the same names
# (Apple's does that by itself)
ELF = Platform("ELF", (), ".so", ("-fPIC", "-pthread"), ("-shared", "-pthread", "-Wl,-Bsymbolic"),
               ("-lm",))
MACOS = Platform("macOS", ("darwin", "macos", "apple"), ".dylib", ("-fPIC",), ("-shared",), ())
WINDOWS = Platform("Windows", ("windows", "mingw", "msvc"), ".dll", (), ("-shared",), (), True)
EMSCRIPTEN = Platform("emscripten", ("emscripten",), ".wasm", (),
                      ("--no-entry", "-sSTANDALONE_WASM", "-sALLOW_MEMORY_GROWTH"), (), parts=(
                          "{}_module.c",), unlinked=("-Og",))
WEBASSEMBLY = Platform("WebAssembly", ("wasm",), ".wasm", (), ("-mexec-model=reactor", "-Wl,-s"),
                       (), parts=("{}_module.c",), unlinked=("-Og",))
PLATFORMS = (MACOS, WINDOWS, EMSCRIPTEN, WEBASSEMBLY, ELF)


def platform_of(compiler: Sequence[str]) -> Platform:
    """The Platform that a C compiler (its command) makes code for."""
    return _of(tuple(compiler))


@cache
def _of(compiler: Words) -> Platform:
    try:
        machine = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True,
                                 errors="replace").stdout.strip()
    except OSError as err:
        raise ToolchainError(f"{compiler[0]}: cannot be started: {err}") from None
    return platform_named(machine or {"darwin": "darwin", "win32": "windows"}.get(
        sys.platform, sys.platform))


def platform_named(machine: str) -> Platform:
    """The Platform of a machine as compilers name it (``x86_64-apple-darwin23``)."""
    return next(p for p in PLATFORMS if not p.words or any(w in machine for w in p.words))


__all__ = ["ELF", "EMSCRIPTEN", "MACOS", "PLATFORMS", "WEBASSEMBLY", "WINDOWS", "Platform",
           "platform_named", "platform_of"]

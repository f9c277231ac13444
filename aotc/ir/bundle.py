"""Bundle: what a user receives, as plain data: relative file name -> bytes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aotc.ir.dtypes import Array

MANIFEST = "manifest.json"
MEMORY = "memory.json"  # who lives where in the arena, and when: a ``MemoryMap``
WEIGHTS = ("file", "embed")  # where a bundle has them: in a file, or linked into its library
FORMAT_VERSION = 1
BUNDLE_VERSION = "1.0.0"  # of a bundle's interface, where its maker names none

Manifest = dict[str, Any]  # what the file of that name holds, as JSON data
# an input or output of a model, and its tensors: itself, those of a list, or None of an optional
# that is not there
Part = tuple[str, str | tuple[str, ...] | None]


@dataclass(frozen=True)
class Bundle:
    """``name`` is the C prefix of every function; ``files`` maps a relative path to bytes."""

    name: str
    files: dict[str, bytes | bytearray] = field(hash=False, repr=False)

    def __str__(self) -> str:
        """Its files with sizes, then every kernel file."""
        lines = [f"bundle {self.name}"]
        lines += [f"  {name}  {len(data)} bytes" for name, data in sorted(self.files.items())]
        for name, data in sorted(self.files.items()):
            if name.endswith((".c", ".h")):
                lines += [f"// ---- {name}", data.decode()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Sample:
    """One recorded run for a bundle's own test: ``syms`` values, ``inputs`` and ``outputs`` by ONNX
    name."""

    syms: dict[str, int]
    inputs: dict[str, Array]
    outputs: dict[str, Array]


def is_version(text: str) -> bool:
    """True for one to three numbers between dots, which file names and CMake take."""
    return re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,5}){0,2}", text) is not None


def emulators(cross: Mapping[str, Any] | None) -> dict[int | None, list[str]]:
    """{vlen: command as a list} of the CPUs that can be emulated, from the ``cross`` of a
    manifest's build: bits of a vector register, or None where the CPU's vectors have one length.
    Empty if there is no emulator."""
    command = list(cross["emulator"]) if cross else []
    if not cross or not command or not cross["vlens"]:
        return {None: command} if command else {}
    return {v: [w.replace("{vlen}", str(v)) for w in command] for v in cross["vlens"]}

"""What GPU code is made of: registers and spills as ptxas says them, instructions and loops as
cuobjdump lists them."""

import importlib.metadata
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_INSTRUCTION = re.compile(
    r"^\s+/\*([0-9a-f]{4,6})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;\n]*);", re.M)
_USED = re.compile(r"Function properties for (\S+)\n\s+(\d+) bytes stack frame, (\d+) bytes spill "
                   r"stores, (\d+) bytes spill loads\n.*?Used (\d+) registers")
REGISTERS = 65536  # of a multiprocessor
_GRAIN = 8  # registers of a thread are handed out in so many


@dataclass(frozen=True)
class Instruction:
    """``opcode`` with its modifiers, such as LDG.E.128; ``operands`` as text."""

    address: int
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]


@dataclass(frozen=True)
class Code:
    """Instructions one after the other: of a function, or of one of its loops."""

    name: str
    instructions: tuple[Instruction, ...]

    def count(self, *opcodes: str) -> int:
        """How many there are of these; "LDG.128" is any LDG with that modifier."""
        wanted = [o.split(".") for o in opcodes]
        return sum(any(i.name == name and set(rest) <= set(i.opcode.split("."))
                       for name, *rest in wanted) for i in self.instructions)

    def loops(self) -> list["Code"]:
        """What lies between a jump back and where it goes, inner loops apart and in outer ones."""
        found = []
        for i in self.instructions:
            to = re.search(r"0x([0-9a-f]+)\s*$", i.operands) if i.name == "BRA" else None
            if to and int(to[1], 16) < i.address:
                found.append(Code(self.name, tuple(
                    x for x in self.instructions if int(to[1], 16) <= x.address <= i.address)))
        return found

    def hot_loop(self, *opcodes: str) -> "Code | None":
        """The innermost loop that has most of these, or None if none has any."""
        with_some = [c for c in self.loops() if c.count(*opcodes)]
        inner = [c for c in with_some if not any(
            set(d.instructions) < set(c.instructions) for d in with_some)]
        return max(inner, key=lambda c: c.count(*opcodes), default=None)


@dataclass(frozen=True)
class Compiled:
    """A function that ptxas has made: ``registers`` of a thread, bytes that it ``spilled``."""

    code: Code
    registers: int
    spilled: int

    @property
    def most_threads(self) -> int:
        """Threads that a multiprocessor has registers for."""
        return REGISTERS // (-(-self.registers // _GRAIN) * _GRAIN) // 32 * 32


def parse_sass(text: str) -> dict[str, Code]:
    """{function: Code} of what ``cuobjdump -sass`` writes."""
    return {name: Code(name, tuple(
        Instruction(int(a, 16), op, rest.strip()) for a, op, rest in _INSTRUCTION.findall(body)))
        for name, body in (p.split("\n", 1) for p in text.split("Function : ")[1:])}


def find_cuobjdump() -> str | None:
    """The tool: $CUOBJDUMP, on PATH, or that of the package nvidia-cuda-cuobjdump, with nvdisasm,
    which it calls, on PATH or beside it."""
    tool = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or _packaged()
    beside = os.path.dirname(tool or "")
    return tool if tool and (shutil.which("nvdisasm") or shutil.which("nvdisasm", path=beside)
                             ) else None


def _packaged() -> str | None:
    try:
        files = importlib.metadata.files("nvidia-cuda-cuobjdump") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(f.locate()) for f in files if f.stem == "cuobjdump"), None)


def why_no_sass() -> str:
    """What is missing to look at GPU code ("" if nothing)."""
    if not shutil.which("nvcc"):
        return "no nvcc: install the CUDA toolkit (Debian: nvidia-cuda-toolkit)"
    if not find_cuobjdump():
        return ("no cuobjdump with nvdisasm: pip install -e '.[sass]', or name the tool in the "
                "environment variable CUOBJDUMP")
    return ""


def compile_kernels(folder: Path, flags) -> dict[str, Compiled]:
    """{kernel as the Plan names it: Compiled} of all kernels of a bundle's folder, by nvcc with the
    ``flags`` of a target."""
    found = {}
    for source in sorted(folder.glob("*_kernels_*.cu")):
        cubin = source.with_suffix(".cubin")
        done = subprocess.run(["nvcc", "-std=c++17", "-O3", *flags, "-Xptxas", "-v", "-cubin", "-o",
                               str(cubin), str(source)], capture_output=True, text=True,
                              timeout=900)
        assert done.returncode == 0, done.stderr[-4000:]
        text = subprocess.run([find_cuobjdump(), "-sass", str(cubin)], capture_output=True,
                              text=True, check=True, timeout=300).stdout
        used = {name: (int(n), int(stores) + int(loads))
                for name, _, stores, loads, n in _USED.findall(done.stderr)}
        for name, code in parse_sass(text).items():
            kernel = re.search(r"k\d{3}_\w*?(?=_device)", name)
            assert kernel, name
            found[kernel.group()] = Compiled(code, *used[name])
    return found

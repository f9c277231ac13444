"""What a bundle's C becomes, by the compiler for its machine: bytes of code and constants, function
by function, and the deepest stack.

Every function and constant has a section of its own (``-ffunction-sections``), so that relocations
say who refers to whom: what is kept of them by ``-Wl,--gc-sections``, and the deepest chain of
calls.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from aotc.errors import AotcError, ToolchainError
from aotc.footprint.elf import ElfObject, ElfSection, read_elf
from aotc.ir.bundle import Manifest
from aotc.runtime.compile_bundle import compiler_of, is_cuda
from aotc.runtime.tools import user_flags

Node = tuple[int, int]  # number of the file, of the section in it
_HOSTED, _BARE = ("-fPIC", "-pthread"), ("-ffreestanding", "-DAOTC_FREESTANDING")
_SYSTEMS = ("__unix__", "__linux__", "__APPLE__", "_WIN32")  # macros of compilers for them
_OPTIMISE = "-O2"


@dataclass(frozen=True)
class CodePart:
    """A function, or a constant: ``kind`` as of an ElfSection, ``file`` it is compiled from,
    ``stack`` bytes of its own frame."""

    name: str
    kind: str
    file: str
    bytes: int
    stack: int = 0


@dataclass(frozen=True)
class CodeSize:
    """``compiler``: its command, with flags; ``bare``: it compiles for no operating system;
    ``parts``: what a program keeps that opens the weights, makes a context and runs it; ``stack``:
    bytes of the deepest chain of calls, None where ``endless`` functions have no bound;
    ``outside``: functions that others bring (libraries of C and of the compiler), and bytes of
    these ``libraries``, with what aligns the program's parts: None where there is an operating
    system, which has them, or nothing is linked here; ``context``: bytes of a context with the
    opened weights."""

    compiler: str
    bare: bool
    parts: tuple[CodePart, ...]
    stack: int | None
    endless: tuple[str, ...]
    outside: tuple[str, ...]
    libraries: int | None
    context: int

    def bytes(self, *kinds: str) -> int:
        """Bytes of the parts of these kinds."""
        return sum(p.bytes for p in self.parts if p.kind in kinds)


def measure_code(folder: Path, manifest: Manifest) -> CodeSize:
    """The CodeSize of the bundle in a folder.  ToolchainError if there is no compiler for it or it
    fails, AotcError for a bundle whose code is not measured so."""
    if is_cuda(manifest):
        raise AotcError(f"code for {manifest['target']} is not measured")
    compiler = compiler_of(manifest)
    bare = _has_no_system(compiler)
    flags = ["-std=c11", *(_BARE if bare else _HOSTED), _OPTIMISE, *user_flags(), "-fstack-usage",
             "-ffunction-sections", "-fdata-sections", "-w", f"-I{folder}"]
    name = manifest["name"]
    build = manifest["build"]
    sources = [(f, part["cflags"]) for part in build["kernels"] for f in part["files"]]
    sources += [(f, []) for f in build["others"]]
    with tempfile.TemporaryDirectory(prefix="aotc-size-") as work:
        probe = Path(work) / f"{_PROBE}.c"
        probe.write_text(f'#include "{name}.h"\nchar {_PROBE}[sizeof({name}_context)'
                         f" + sizeof({name}_weights)];\n")
        for source, own in [*((folder / f, own) for f, own in sources), (probe, [])]:
            _run([*compiler, *flags, *own, "-c", str(source), "-o", f"{work}/{source.stem}.o"],
                 folder)
        objects = {p.stem: read_elf(p.read_bytes(), p.name) for p in sorted(Path(work).glob("*.o"))}
        frames = {p.stem: _frames(p.read_text(errors="replace")) for p in Path(work).glob("*.su")}
        context = objects.pop(_PROBE)
        found = _Linked(objects, frames, name, manifest["weights"] == "embed",
                        [k["c"] for k in manifest["kernels"]])
        parts, deepest = tuple(found.parts()), found.deepest
        program = [*compiler, *user_flags()]
        linked = _linked_bytes(program, Path(work), found.roots) if bare else None
    libraries = None if linked is None else linked - sum(p.bytes for p in parts if p.kind in _FLASH)
    return CodeSize(" ".join([*compiler, _OPTIMISE, *user_flags()]), bare, parts,
                    None if found.endless else deepest, tuple(sorted(found.endless)),
                    tuple(sorted(found.outside)), libraries,
                    max(s.bytes for s in context.sections if _PROBE in s.objects))


_PROBE = "aotc_size_probe"
_FLASH = ("code", "tables", "data")  # kinds of parts that lie there


def _linked_bytes(compiler: Sequence[str], work: Path, roots: Sequence[str]) -> int | None:
    """Bytes of code and constants of a program that calls ``roots``, of the objects in a folder and
    the compiler's libraries; None if it does not link: not every compiler for bare machines has
    these."""
    program = work / "linked"
    objects = sorted(str(p) for p in work.glob("*.o") if p.stem != _PROBE)
    command = [*compiler, "-nostartfiles", "-static", "-Wl,--gc-sections",
               f"-Wl,--entry={roots[-1]}", *(f"-Wl,--undefined={r}" for r in roots), *objects,
               "-o", str(program)]
    try:
        _run(command, work)
        sections = read_elf(program.read_bytes(), program.name).sections
    except AotcError:  # which names it has is known all the same
        return None
    return sum(s.bytes for s in sections if s.kind in _FLASH)


def _has_no_system(compiler: Sequence[str]) -> bool:
    """True if a compiler's programs run without an operating system."""
    done = _run([*compiler, *user_flags(), "-dM", "-E", "-xc", "-"], None)
    return not {w for line in done.splitlines() for w in line.split()[1:2]} & {*_SYSTEMS}


def _run(command: Sequence[str], folder: Path | None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, cwd=folder)
    except OSError as err:
        raise ToolchainError(f"{command[0]}: cannot be started: {err}") from None
    if done.returncode:
        lines = done.stderr.splitlines()
        raise ToolchainError("\n".join([f"{' '.join(command)} failed:", *lines[:5]]))
    return done.stdout


def _frames(text: str) -> dict[str, int | None]:
    """{function: bytes of its frame; None: no number} of what -fstack-usage writes."""
    out: dict[str, int | None] = {}
    for line in text.splitlines():
        where, size, kind = line.split("\t")
        out[where.rsplit(":", 1)[-1]] = int(size) if kind.startswith("static") or (
            "bounded" in kind) else None
    return out


@dataclass
class _Linked:
    """Sections of all files as a graph of who refers to whom, from what a caller calls on."""

    objects: Mapping[str, ElfObject]
    frames: Mapping[str, Mapping[str, int | None]]
    name: str
    embedded: bool
    kernels: Sequence[str]
    outside: set[str] = field(default_factory=set)
    endless: set[str] = field(default_factory=set)

    @cached_property
    def _files(self) -> tuple[str, ...]:
        return tuple(self.objects)

    @cached_property
    def _exports(self) -> dict[str, Node]:
        return {symbol: (n, section) for n, f in enumerate(self._files)
                for symbol, section in self.objects[f].exports.items()}

    def _section(self, node: Node) -> ElfSection:
        return self.objects[self._files[node[0]]].sections[node[1]]

    @property
    def roots(self) -> list[str]:
        """The functions that a caller calls."""
        opens = "weights_embedded" if self.embedded else "weights_from_memory"
        return [f"{self.name}_{f}" for f in (opens, "init", "run")]

    @cached_property
    def _roots(self) -> list[Node]:
        return [self._exports[f] for f in self.roots]

    @cached_property
    def kept(self) -> dict[Node, tuple[Node, ...]]:
        """{section that is reached: those that it refers to}."""
        out: dict[Node, tuple[Node, ...]] = {}
        todo = list(self._roots)
        while todo:
            node = todo.pop()
            if node not in out:
                out[node] = tuple(self._referred(node))
                todo += out[node]
        return out

    def _referred(self, node: Node) -> Iterable[Node]:
        for other in self._section(node).refers:
            if isinstance(other, int):
                if other != node[1]:  # jumps inside a function are relocated on some machines
                    yield node[0], other
            elif other in self._exports:
                yield self._exports[other]
            else:
                self.outside.add(other)

    def parts(self) -> Iterable[CodePart]:
        """What is kept, in the order of files and sections."""
        for node in sorted(self.kept):
            s = self._section(node)
            if s.kind and s.bytes:
                name = next((n for n in (*s.functions, *s.objects) if n[0] != "."),
                            f"texts of {self._files[node[0]]}.c")
                yield CodePart(name, s.kind, self._files[node[0]], s.bytes, self._frame(node))

    def _frame(self, node: Node) -> int:
        """Bytes of the frame of a section's function."""
        frames = self.frames.get(self._files[node[0]], {})
        found = 0
        for function in self._section(node).functions:
            while function not in frames and re.search(r"\.\d+$", function):
                function = function.rpartition(".")[0]  # gcc numbers the parts of a function
            size = frames.get(function, 0)
            if size is None:
                self.endless.add(function)
            found = max(found, size or 0)
        return found

    @cached_property
    def deepest(self) -> int:
        """Bytes of the deepest chain of calls.  Who starts kernels is told which: it refers to none
        of them, and they lie on it."""
        starts = set(self.kernels)
        kernels = tuple(n for n in self.kept if starts & {*self._section(n).functions})
        depth: dict[Node, int] = {}
        open_: set[Node] = set()

        def walk(node: Node) -> int:
            if node in depth:
                return depth[node]
            if node in open_:
                self.endless.add(self._section(node).name)
                return 0
            open_.add(node)
            below = self.kept[node]
            if any(f.split(".")[0] == "launch" for f in self._section(node).functions):
                below = (*below, *kernels)
            depth[node] = self._frame(node) + max(map(walk, below), default=0)
            open_.remove(node)
            return depth[node]

        return max(map(walk, self._roots))


def count_by_kernel(code: CodeSize, kernels: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """(bytes of code, of the largest frame) of each kernel's own functions, by its C name; what
    they share is under ""."""
    names = sorted(kernels, key=len, reverse=True)
    sizes: Counter[str] = Counter()
    frames: Counter[str] = Counter()
    for p in code.parts:
        if p.kind == "code" and "_kernels_" in p.file:
            own = next((k for k in names if re.match(re.escape(k) + r"([._]|$)", p.name)), "")
            sizes[own] += p.bytes
            frames[own] = max(frames[own], p.stack)
    return sizes, frames


__all__ = ["CodePart", "CodeSize", "count_by_kernel", "measure_code"]

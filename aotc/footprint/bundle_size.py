"""What a bundle takes of flash and of RAM, part by part, and the limits that a user sets it."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aotc.emit.bundle.memory_map import MemoryMap, Tenant
from aotc.errors import AotcError, LimitError, ToolchainError
from aotc.footprint.code_size import CodeSize, count_by_kernel, measure_code
from aotc.frontend.graph import shorten
from aotc.ir.bundle import MEMORY, Bundle, Manifest
from aotc.ir.dtypes import DTYPES
from aotc.json_text import read_json
from aotc.options import Options
from aotc.pipeline import Work, run_pipeline
from aotc.runtime.compile_bundle import read_manifest
from aotc.sched import parse_bytes

LARGEST = 3  # contributors that are named


@dataclass(frozen=True)
class SizePart:
    """Bytes of something: ``kind`` is its line of the report, ``what`` tells it from others."""

    kind: str
    what: str
    bytes: int


@dataclass(frozen=True)
class KernelSize:
    """A kernel by its C name: bytes of its own code, of constants it reads, of scratch, of tensors
    alive while it runs, of its own frame."""

    name: str
    code: int | None
    weights: int
    scratch: int
    stored: int
    frame: int | None


@dataclass(frozen=True)
class BundleSize:
    """``code``: None without a compiler, and then ``no_code`` says why; ``memory``: of a call at
    the largest extents; ``free``: dimensions without a bound, for which those are a guess."""

    name: str
    target: str
    memory: MemoryMap
    code: CodeSize | None
    no_code: str
    image: int
    arguments: tuple[SizePart, ...]
    free: tuple[str, ...]

    @cached_property
    def flash(self) -> tuple[SizePart, ...]:
        """What lies in flash, by constants, functions and tables."""
        constants = [SizePart("weights", c.onnx or c.name, c.bytes) for c in self.memory.constants]
        rest = self.image - sum(c.bytes for c in constants)
        parts = [*constants, SizePart("weights", "header, gaps, what other variants read", rest)]
        if self.code is not None:
            kinds = {"code": "code", "tables": "tables", "data": "values of variables"}
            parts += [SizePart(kinds[p.kind], p.name, p.bytes) for p in self.code.parts
                      if p.kind in kinds and (p.kind, p.file) != ("tables", f"{self.name}_image")]
            parts += [SizePart("libraries", "libraries of C and of the compiler, alignment",
                               self.code.libraries)] if self.code.libraries else []
        return tuple(parts)

    @cached_property
    def ram(self) -> tuple[SizePart, ...]:
        """What a call takes of memory, tensors of the arena by what is alive at its fullest."""
        m, peak = self.memory, self.memory.peak
        alive = peak.own if peak is not None else ()
        parts = [SizePart("arena", tensor_name(t), own) for t, own in alive]
        parts += [SizePart("arena", "counters of the profile", m.front)] if m.front else []
        worst = max(m.users, key=lambda u: u.scratch, default=None)
        if worst is not None and worst.scratch:
            parts.append(SizePart("arena", f"scratch of {worst.name}", worst.scratch))
        taken = sum(p.bytes for p in parts)
        if taken < m.arena:
            parts.append(SizePart("arena", "tensors of other moments, gaps", m.arena - taken))
        if self.code is not None:
            parts += [SizePart("stack", "stack of a call", self.code.stack or 0),
                      SizePart("context", "context and opened weights", self.code.context),
                      SizePart("variables", "variables", self.code.bytes("data", "zeros"))]
        return (*parts, *self.arguments)

    @property
    def kernels(self) -> Iterator[KernelSize]:
        """Of every kernel, in call order."""
        m = self.memory
        names = [u.name for u in m.users]
        sizes, frames = count_by_kernel(self.code, names) if self.code else ({}, {})
        for n, (user, moment) in enumerate(zip(m.users, m.moments)):
            yield KernelSize(user.name, sizes.get(user.name, 0) if self.code else None,
                             sum(c.bytes for c in m.constants if n in c.users), user.scratch,
                             moment.stored, frames.get(user.name, 0) if self.code else None)


def tensor_name(t: Tenant) -> str:
    """Its name in the model, if it has one there."""
    return shorten(t.onnx or t.name)


def total_bytes(parts: Sequence[SizePart]) -> int:
    """Bytes of all of them."""
    return sum(p.bytes for p in parts)


def size_of(source: Any, options: Options) -> BundleSize:
    """The BundleSize of a bundle's folder, or of a model that is compiled with these options into
    none.  AotcError for a bundle that has no map of its memory."""
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return measure_bundle(Path(source))
    return measure_work(run_pipeline(replace(options, out=None, stop_after="bundle")))


def measure_work(work: Work) -> BundleSize:
    """The BundleSize of what is about to be written."""
    bundle: Bundle = work.bundle
    with tempfile.TemporaryDirectory(prefix="aotc-size-") as folder:
        for file, data in bundle.files.items():
            (Path(folder) / file).write_bytes(data)
        return measure_bundle(Path(folder))


def measure_bundle(folder: Path) -> BundleSize:
    """The BundleSize of a bundle's folder."""
    manifest = read_manifest(folder)
    try:
        memory = MemoryMap.from_json(read_json((folder / MEMORY).read_text()))
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise AotcError(f"{folder}: no map of its memory ({MEMORY}: {err}); bundles for CPUs have "
                        "one: compile the model again, or see what `aotc check` says of the "
                        "arena of other targets") from None
    code, why = None, ""
    try:
        code = measure_code(folder.resolve(), manifest)
    except AotcError as err:
        why = f"{'no compiler' if isinstance(err, ToolchainError) else 'no code'}: {err}"
    return BundleSize(manifest["name"], manifest["target"], memory, code, why,
                      manifest["weights_bytes"], tuple(_arguments(manifest, memory)),
                      tuple(s["name"] for s in manifest["symbols"] if s["hi"] is None))


def _arguments(manifest: Manifest, memory: MemoryMap) -> Iterator[SizePart]:
    """Inputs and outputs, which are the caller's, at the extents of the memory's map."""
    for t in (*manifest["inputs"], *manifest["outputs"]):
        if t.get("alias", -1) >= 0:
            continue  # it lies in an input's buffer
        count = 1
        for d in t["shape"]:
            count *= d if isinstance(d, int) else memory.extents.get(d["symbol"],
                                                                     d["hi"] or d["lo"])
        yield SizePart("inputs and outputs", t["onnx"], count * DTYPES[t["dtype"]].size)


# ---------------------------------------------------------------- limits

@dataclass(frozen=True)
class SizeLimit:
    """At most ``bytes`` of ``memory``, "flash" or "ram"."""

    memory: str
    bytes: int


def limits_of(options: Options) -> tuple[SizeLimit, ...]:
    """The SizeLimits that options name; AotcError for what is no number of bytes."""
    found = []
    for memory in ("flash", "ram"):
        limit = parse_bytes(getattr(options, memory), memory)
        if limit is not None:
            found.append(SizeLimit(memory, limit))
    return tuple(found)


def check_limits(size: BundleSize, limits: Sequence[SizeLimit]) -> None:
    """LimitError with what is over a SizeLimit, and the three largest contributors; ToolchainError
    where that cannot be told, because no compiler says what code takes; AotcError where a dimension
    has no bound."""
    if size.free and any(b.memory == "ram" for b in limits):
        raise AotcError(f"ram: dimension {', '.join(size.free)} has no bound, so that no number of "
                        f"bytes is enough; give it a range (--dim {size.free[0]}=LO..HI)")
    faults = [line for b in limits for line in _over(size, b)]
    if faults:
        raise LimitError(faults)
    if limits and size.code is None:
        raise ToolchainError(f"{limits[0].memory}: what is known fits, but nothing tells what code "
                             f"and stack take. {size.no_code}")
    if limits and size.code is not None and size.code.endless:
        raise AotcError(f"ram: the stack has no bound in {', '.join(size.code.endless)}")


def _over(size: BundleSize, limit: SizeLimit) -> Iterator[str]:
    parts = size.flash if limit.memory == "flash" else size.ram
    need = total_bytes(parts)
    if need > limit.bytes:
        without = "" if size.code else " without code and stack, which no compiler told"
        yield (f"{limit.memory}: {size.name} needs {need} bytes ({show_bytes(need)}){without}, "
               f"{need - limit.bytes} more than the {limit.bytes} that it may have; the largest:")
        for p in sorted(parts, key=lambda p: -p.bytes)[:LARGEST]:
            yield f"  {show_bytes(p.bytes):>9}  {p.kind}: {shorten(p.what)}"


def check_work(work: Work) -> None:
    """``check_limits`` of what is about to be written."""
    check_limits(measure_work(work), limits_of(work.options))


def show_bytes(count: int) -> str:
    """Bytes as a number to read."""
    for factor, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


__all__ = ["BundleSize", "KernelSize", "SizeLimit", "SizePart", "check_limits", "check_work",
           "limits_of", "measure_bundle", "measure_work", "show_bytes", "size_of",
           "tensor_name", "total_bytes"]

"""What ``aotc size`` says of a BundleSize: as text and as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from aotc.footprint.bundle_size import (
    LARGEST,
    BundleSize,
    SizePart,
    show_bytes,
    tensor_name,
    total_bytes,
)
from aotc.frontend.graph import shorten


def describe_size(size: BundleSize) -> str:
    """The text of a BundleSize."""
    return "\n".join([*_head(size), *_memory_lines("flash", size.flash),
                      *_memory_lines("RAM", size.ram), *_notes(size), *_moment_lines(size),
                      *_kernel_lines(size)])


def _head(size: BundleSize) -> Iterator[str]:
    at = ", ".join(f"{n}={v}" for n, v in size.memory.extents.items())
    yield f"{size.name} for {size.target}" + (f" at {at}" if at else "")
    if size.code is None:
        yield f"  code and stack are not known. {size.no_code}"
        return
    system = "without an operating system" if size.code.bare else "with an operating system"
    yield f"  code by {size.code.compiler}, {system}"
    if size.target == "c" and not size.code.bare:
        yield ("  of another machine: name its compiler in CC, such as "
               "CC='arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb'")


def _memory_lines(title: str, parts: Sequence[SizePart]) -> Iterator[str]:
    yield f"{title:24}{show_bytes(total_bytes(parts)):>12}"
    for kind in dict.fromkeys(p.kind for p in parts):
        own = [p for p in parts if p.kind == kind]
        if total_bytes(own):
            most = max(own, key=lambda p: p.bytes)
            told = f"   most: {shorten(most.what)} {show_bytes(most.bytes)}" if len(own) > 1 else ""
            yield f"  {kind:22}{show_bytes(total_bytes(own)):>12}{told}"


def _notes(size: BundleSize) -> Iterator[str]:
    if size.free:
        yield f"dimension {', '.join(size.free)} has no bound: larger calls need more RAM"
    if size.code is not None and size.code.endless:
        yield f"the stack has no bound in {', '.join(size.code.endless)}"
    if size.code is not None and size.code.outside:
        how = "on top, from" if size.code.libraries is None else "of"
        yield f"{how} the libraries of C and of the compiler: {', '.join(size.code.outside)}"


def _moment_lines(size: BundleSize) -> Iterator[str]:
    m = size.memory
    yield f"arena {show_bytes(m.arena)}; the moments that need most of it:"
    for moment in sorted(m.moments, key=lambda x: -x.bytes)[:LARGEST]:
        tensors = ", ".join(f"{tensor_name(t)} {show_bytes(t.bytes)}"
                            for t in moment.tenants[:LARGEST])
        more = len(moment.tenants) - LARGEST
        yield (f"  {show_bytes(moment.bytes):>9}  {m.users[moment.kernel].name}: scratch "
               f"{show_bytes(moment.scratch)}" + (f", {tensors}" if tensors else "")
               + (f" and {more} more" if more > 0 else ""))


def _kernel_lines(size: BundleSize) -> Iterator[str]:
    titles = ("code", "weights", "scratch", "tensors", "frame")
    yield "".join(f"{t:>9}" for t in titles) + "  kernel, in bytes"
    for k in size.kernels:
        numbers = (k.code, k.weights, k.scratch, k.stored, k.frame)
        yield "".join(f"{'?' if n is None else n:>9}" for n in numbers) + f"  {k.name}"


def size_json(size: BundleSize) -> str:
    """The JSON of a BundleSize."""
    m, code = size.memory, size.code

    def rows(parts: Sequence[SizePart]) -> dict[str, Any]:
        kinds = {k: total_bytes([p for p in parts if p.kind == k]) for k in (p.kind for p in parts)}
        return {"bytes": total_bytes(parts), "by_kind": kinds,
                "parts": [{"kind": p.kind, "what": p.what, "bytes": p.bytes} for p in parts]}

    data = {"name": size.name, "target": size.target, "extents": dict(m.extents),
            "unbounded": list(size.free), "flash": rows(size.flash), "ram": rows(size.ram),
            "arena": {"bytes": m.arena, "tensors": m.slots, "scratch": m.scratch,
                      "front": m.front},
            "code": None if code is None else {
                "compiler": code.compiler, "operating_system": not code.bare, "stack": code.stack,
                "context": code.context, "from_libraries": list(code.outside)},
            "why_no_code": size.no_code,
            "kernels": [vars(k) for k in size.kernels],
            "moments": [{"kernel": m.users[x.kernel].name, "bytes": x.bytes, "tensors": x.stored,
                         "scratch": x.scratch, "alive": [t.name for t in x.tenants]}
                        for x in m.moments]}
    return json.dumps(data, indent=1)


__all__ = ["describe_size", "size_json"]

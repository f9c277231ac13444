"""The same as ``portable`` of kernels for blocks of threads: each is a file with its launcher, over
numbered tensors; the bundle's launchers say where these lie.

Rules that data may break have the numbers of the whole Plan, which all of its variants have alike.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aotc.emit.bundle.device_needs import needs_permission
from aotc.emit.simt.simt_kernels import render_kernels
from aotc.emit.text.c_names import prefix
from aotc.emit.text.cexpr import sym_field
from aotc.emit.text.functions import shared_functions
from aotc.emit.text.places import address
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Place, Plan
from aotc.ir.plan_regions import Rounds
from aotc.target.base import Target
from aotc.tuner.measure.portable import PIECE, SLOTS, hash_texts, piece_of, rename_files

_HEADER = "zzframe.h"
_FRAME = """#ifndef ZZFRAME_H
#define ZZFRAME_H

#include "aotc_cuda.h"

#include "aotc_index.h"

/* What a launcher reads: addresses of its kernel's tensors, extents. */
typedef struct zzframe {
FIELDS    uint8_t *slot[SLOTS];
    int32_t *fault;
} zzframe;

#endif
"""


def portable_block_files(plan: Plan, target: Target) -> dict[str, str]:
    """{file name: CUDA text} of the kernels of a plan, in place of ``render_kernels``."""
    name = prefix(plan.name)
    rounds = [r.round for r in plan.regions if isinstance(r, Rounds)]
    fields = [sym_field(s.name) for s in (*plan.syms, *rounds)]
    count = max((len(k.touched) for k in plan.kernels), default=0)
    slots = -(-max(count, 1) // SLOTS) * SLOTS
    files: dict[str, str] = {}
    owns: dict[str, str] = {}  # of each kernel, what its files are called after
    protos: dict[str, str] = {}
    calls = []
    for k in plan.kernels:
        used = [plan.place(b) for b in k.touched]
        found, own = _kernel_files(plan, k, used, target)
        files |= found
        owns[k.name] = own
        protos[own] = f"cudaError_t {own}_run(const zzframe *f, cudaStream_t stream);"
        calls.append(_call(name, k.name, own, fields, used))
    for f in shared_functions((plan,)):
        if needs_permission(f.written.kernel):
            some = dict.fromkeys(owns[o.kernel.name] for o in f.kernels)
            protos |= {f"{own} permit": f"cudaError_t {own}_run_permit(void);" for own in some}
            calls.append(_permit(name, f.written.kernel.name, some))
    files[_HEADER] = _FRAME.replace("FIELDS", "".join(
        f"    int64_t {f};\n" for f in fields)).replace("SLOTS", str(slots))
    files[f"{name}_kernels_0.cu"] = "\n".join([
        f"#include \"{name}_internal.h\"", f"#include \"{_HEADER}\"", *protos.values(), *calls,
        ""])
    return files


def _kernel_files(plan: Plan, kernel: Kernel, used: Sequence[Place],
                  target: Target) -> tuple[dict[str, str], str]:
    """({file: text}, prefix of the names in them) of one kernel."""
    places = tuple(replace(p, storage="arena", offset=0, slot=n) for p, n in zip(
        used, _slots(used)))
    alone, numbers = piece_of(plan, kernel, places)
    texts = {f: re.sub(r"\b[ts]_\w+\b", lambda m: numbers.get(m[0], m[0]), text)
             for f, text in render_kernels(alone, target, rules=plan.rules).items()}
    texts = {f: re.sub(rf"\b{PIECE}_frame\b", "zzframe", text).replace(
        f"{PIECE}_internal.h", _HEADER) for f, text in texts.items()}
    library = {f: text for f, text in texts.items() if not f.startswith(PIECE)}
    texts = {f: text for f, text in texts.items() if f not in library}
    own = f"k{hash_texts(texts)}"
    return library | rename_files(texts, own), own


def _permit(name: str, kernel: str, owns: Iterable[str]) -> str:
    """What the bundle asks for the shared memory of a kernel, and of all that have its function."""
    return "\n".join([f"cudaError_t {name}_{kernel}_permit(void)", "{",
                      "    cudaError_t error = cudaSuccess;",
                      *(f"    error = error == cudaSuccess ? {own}_run_permit() : error;"
                        for own in owns), "    return error;", "}"])


def _slots(used: Sequence[Place]) -> list[int]:
    """Of each tensor the number of its address.  One that lies where another does has the same: the
    kernel's text says that it may."""
    numbers: dict[tuple[object, ...], int] = {}
    return [numbers.setdefault((p.storage, p.slot, p.offset) if p.storage == "arena" else (p.name,),
                               len(numbers)) for p in used]


def _call(name: str, kernel: str, own: str, fields: Sequence[str], used: Sequence[Place]) -> str:
    """The launcher that the bundle calls: it tells the kernel's own where its tensors are."""
    lines = [f"cudaError_t {name}_{kernel}(const {name}_frame *f, cudaStream_t stream)", "{",
             "    zzframe p;"]
    lines += [f"    p.{x} = f->{x};" for x in fields]
    lines += [f"    p.slot[{n}] = (uint8_t *)(uintptr_t)({address(p)});"
              for n, p in dict(zip(_slots(used), used)).items()]
    return "\n".join([*lines, "    p.fault = f->fault;",
                      f"    return {own}_run(&p, stream);", "}"])


__all__ = ["portable_block_files"]

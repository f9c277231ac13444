"""Library kernels in a bundle: calls of them, and copies of the sources that are called, one per
kernel and dtype (``runtime_c/library``)."""

from collections.abc import Sequence

from aotc.emit.c.arrays import address
from aotc.emit.c.scalars import LocalNames
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.env import Env, KernelEnv
from aotc.installed import runtime_c
from aotc.ir.dtypes import DTYPES, is_float
from aotc.ir.kernel.plan_stages import Call
from aotc.ir.library import LIBRARY
from aotc.ir.plan import Plan
from aotc.ir.statements import walk_body

_SHARED = ("aotc_heap.h", "aotc_walk.h")
_DEVICE_SHARED = ("aotc_order.h", "aotc_block.h")


def call_lines(call: Call, env: KernelEnv, names: LocalNames) -> list[str]:
    """The C statement of a Call stage."""
    pointers = [address(env, at.buffer, at.offset, c_index) for at in call.operands]
    numbers = [c_index(e, 0) for e in call.numbers]
    return [f"{env['prefix']}_{call.kernel}_{call.dtype}({', '.join(pointers + numbers)});"]


def device_call_lines(call: Call, env: Env) -> list[str]:
    """The CUDA statement of a Call stage: of a function that all threads of a block call."""
    pointers = [address(env, at.buffer, at.offset, c_index) for at in call.operands]
    return [f"aotc_{call.kernel}({', '.join(pointers + [c_index(e, 0) for e in call.numbers])});"]


def device_library(plans: Sequence[Plan]) -> dict[str, str]:
    """{file: text} of the headers whose functions kernels of CUDA plans call, as they include
    them."""
    called = {s.kernel for plan in plans for k in plan.kernels for s in k.lowered.stages
              if isinstance(s, Call)}
    folder = runtime_c() / "cuda" / "library"
    files = {f: (folder / f).read_text() for f in (f"aotc_{k}.h" for k in sorted(called))}
    shared = [f for f in _DEVICE_SHARED if any(f'"{f}"' in text for text in files.values())]
    return {f: (folder / f).read_text() for f in shared} | files


def library_files(plans: Sequence[Plan], name: str, banner: str) -> dict[str, str]:
    """{file: text} of the library kernels that plans call, {} if there are none.  ``banner``: the
    comment that a generated file starts with."""
    calls = {(s.kernel, s.dtype): (plan, s) for plan in plans for k in plan.kernels
             for s in walk_body(k.body) if isinstance(s, Call)}
    if not calls:
        return {}
    folder = runtime_c() / "library"
    prototypes = [_prototype(name, *calls[key]) for key in sorted(calls)]
    guard = f"{name.upper()}_LIBRARY_H"
    files = {library_header(name): banner + f"#ifndef {guard}\n#define {guard}\n\n"
             "#include <stdbool.h>\n#include <stdint.h>\n\n" + "\n".join(prototypes)
             + "\n\n#endif\n"}
    for kernel, dtype in sorted(calls):
        nan = "((x) != (x))" if is_float(dtype) else "0"
        text = (folder / f"aotc_{kernel}.c").read_text()
        files[f"{name}_{kernel}_{dtype}.c"] = (
            f"#define AOTC_LIBRARY(x) {name}_##x##_{dtype}\n"
            f"#define AOTC_ELEMENT {DTYPES[dtype].c}\n#define AOTC_ISNAN(x) {nan}\n"
            f"#define AOTC_WRAPPING {DTYPES[dtype].c if is_float(dtype) else 'uint64_t'}\n"
            f"#define AOTC_WORD uint{8 * DTYPES[dtype].size}_t\n"
            f"#include \"{library_header(name)}\"\n\n{text}")
        files |= {f: (folder / f).read_text() for f in _SHARED if f'"{f}"' in text}
    return files


def library_header(name: str) -> str:
    """The header of a plan's library kernels."""
    return f"{name}_library.h"


def _prototype(name: str, plan: Plan, call: Call) -> str:
    row = LIBRARY[call.kernel]
    inputs = len(row.inner) - len(row.outs)
    types = []
    for i, at in enumerate(call.operands):
        c = DTYPES[plan.place(at.buffer).dtype].c
        types.append(f"const {c} *" if i < inputs else f"{c} *")
    types += ["int64_t"] * len(call.numbers)
    lines, width = [f"void {name}_{call.kernel}_{call.dtype}("], 96
    for i, t in enumerate(types):
        part = t + (", " if i + 1 < len(types) else ");")
        if len(lines[-1]) + len(part) > width:
            lines.append("    ")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)

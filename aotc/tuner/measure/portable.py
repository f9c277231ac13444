"""Kernels whose text does not depend on the model around them, so that each is compiled once.

In a bundle a kernel's text holds its number, the names of its tensors and where they lie in the
arena and the weights: a change of one group changes the text of most others.  Here every kernel
is a function of its own file over tensors that are numbered, called by a small function that
passes their addresses.  Equal kernels have equal files, in one model and in all its variants.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.emit.bundle.describe import counts_workers
from aotc.emit.c.kernels import render_kernels
from aotc.emit.text.c_names import prefix
from aotc.emit.text.cexpr import sym_field
from aotc.emit.text.places import address
from aotc.ir.kernel.plan_kernels import About, Kernel
from aotc.ir.plan import Place, Plan
from aotc.ir.plan_regions import Rounds
from aotc.ir.statements import WORKERS, Body, Section, bodies, with_bodies
from aotc.sched.shared_functions import share_functions
from aotc.target.base import Target

PIECE = "zzpiece"  # what a kernel's bundle is called until its text has been hashed
_HEADER = "zzframe.h"
HEAD = "zzhead.h"
SLOTS = 32  # frames have room for a multiple of so many tensors

_FRAME = """#ifndef ZZFRAME_H
#define ZZFRAME_H

#include "aotc_index.h"
#include <stdint.h>

/* What a kernel reads: addresses of its tensors, extents, scratch. */
typedef struct zzframe {
FIELDS    uint8_t *slot[SLOTS];
    uint8_t *slab;
    int64_t slab_stride;
    int32_t fault; /* 1 + the number among the kernel's own rules */
    int64_t fault_value;
    int64_t fault_bound;
} zzframe;

#define AOTC_ARENA(number, offset) ((void *)(f->slot[number] + (offset)))
#define AOTC_SLAB(offset) ((void *)(f->slab + worker * f->slab_stride + (offset)))

static inline void zzfault(zzframe *f, int32_t rule, int64_t value, int64_t bound)
{
    int32_t none = 0;
    if (__atomic_compare_exchange_n(&f->fault, &none, rule + 1, 0, __ATOMIC_RELAXED,
            __ATOMIC_RELAXED)) {
        f->fault_value = value;
        f->fault_bound = bound;
    }
}

static inline int64_t zzchecked(zzframe *f, int32_t rule, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    zzfault(f, rule, i, n);
    return 0;
}

static inline int64_t zzexpected(zzframe *f, int32_t rule, int64_t i, int64_t n)
{
    if (i != n)
        zzfault(f, rule, i, n);
    return i;
}

#endif
"""


def portable_files(plan: Plan, target: Target) -> dict[str, str]:
    """{file name: C text} of the kernels of a plan, in place of ``render_kernels``."""
    name = prefix(plan.name)
    files: dict[str, str] = {}
    places = {p.name: p for p in plan.places}
    rounds = [r.round for r in plan.regions if isinstance(r, Rounds)]
    fields = [sym_field(s.name) for s in (*plan.syms, *rounds, *[WORKERS] * counts_workers(plan))]
    count = max((len(k.reads + k.writes) for k in plan.kernels), default=0)
    slots = -(-max(count, 1) // SLOTS) * SLOTS
    calls, protos = [], {}
    for k in plan.kernels:
        used = k.reads + k.writes
        found, own = _kernel_files(plan, k, [places[b] for b in used], target)
        files |= found
        protos[own] = f"void {own}_run(void *frame, int64_t begin, int64_t end, int worker);"
        rules = [plan.rules.index(r) for r in replace(plan, kernels=(k,)).rules]
        calls.append(_call(name, k.name, rules, own, fields, [places[b] for b in used]))
    files[_HEADER] = _FRAME.replace("FIELDS", "".join(
        f"    int64_t {f};\n" for f in fields)).replace("SLOTS", str(slots))
    files = {f: f"#include \"{HEAD}\"\n" + text if f.endswith(".c") else text
             for f, text in files.items()}
    files[HEAD] = _head(files)
    files[f"{name}_kernels_0.c"] = "\n".join([
        f"#include \"{name}_internal.h\"", f"#include \"{_HEADER}\"", *protos.values(), *calls])
    return files


def _head(files: Mapping[str, str]) -> str:
    """What the files of kernels include, and the definitions that these headers look for."""
    first = next((text for f, text in sorted(files.items()) if f.endswith("_kernels_1.c")), "")
    found = re.findall(r'^(?:#define AOTC_\w+(?: \d+)?|#include "aotc_(?:num|vec)\.h")$', first,
                       re.M)
    return "\n".join([f"#include \"{_HEADER}\"", *found, ""])


def _kernel_files(plan: Plan, kernel: Kernel, used: Sequence[Place],
                  target: Target) -> tuple[dict[str, str], str]:
    """({file: text}, prefix of the names in them) of one kernel."""
    places = tuple(replace(p, storage="arena", slot=i, offset=0) for i, p in enumerate(used))
    alone, numbers = piece_of(plan, kernel, places)
    texts = {f: re.sub(r"\b[ts]_\w+\b", lambda m: numbers.get(m[0], m[0]), text)
             for f, text in render_kernels(alone, target).items()}
    texts = {f: re.sub(rf"\b{PIECE}_(frame|checked|expected)\b", r"zz\1", text).replace(
        f"{PIECE}_internal.h", _HEADER) for f, text in texts.items()}
    return _named(texts)


def piece_of(plan: Plan, kernel: Kernel,
             places: tuple[Place, ...]) -> tuple[Plan, dict[str, str]]:
    """(a Plan of a kernel alone, {name of a tensor or of scratch in its text: a number's}).
    places: where what it touches lies there, in order."""
    alone = replace(plan, name=PIECE, places=places, weights=(), slots=(), kernels=(
        replace(kernel, lowered=replace(kernel.lowered, name="run", about=About()),
                body=without_names(kernel.body)),))
    numbers = {f"t_{p.name}": f"t_{i}" for i, p in enumerate(places)}
    numbers |= {f"s_{s.name}": f"s_{i}" for i, s in enumerate(kernel.scratch)}
    return share_functions((alone,))[0], numbers  # its functions are called after it


def without_names(body: Body) -> Body:
    """The statements without the Program's lines, which name tensors of the model."""
    inside = (with_bodies(s, {f: without_names(b) for f, b in bodies(s)}) for s in body)
    return tuple(replace(s, says=()) if isinstance(s, Section) else s for s in inside)


def _named(texts: dict[str, str]) -> tuple[dict[str, str], str]:
    """Files and names of a kernel, its micro-kernels apart, called after what they contain."""
    header, shared = f"{PIECE}_ukernels.h", f"{PIECE}_kernels_0.c"
    out = {}
    if header in texts:
        rows = {f: texts.pop(f) for f in (header, shared)}
        own = f"u{hash_texts(rows)}"
        for word in re.findall(rf"\b{PIECE}_(\w+)\(", rows[header]):
            texts = {f: re.sub(rf"\b{PIECE}_{word}\b", f"{own}_{word}", text)
                     for f, text in texts.items()}
        texts = {f: text.replace(header, f"{own}_ukernels.h") for f, text in texts.items()}
        out = rename_files(rows, own)
    own = f"k{hash_texts(texts)}"
    return out | rename_files(texts, own), own


def rename_files(texts: Mapping[str, str], name: str) -> dict[str, str]:
    """Files of a piece, and the names in them, called after ``name``."""
    return {f.replace(PIECE, name): text.replace(PIECE, name).replace(
        PIECE.upper(), name.upper()) for f, text in texts.items()}


def hash_texts(texts: Mapping[str, str]) -> str:
    """A short hash of files and what is in them."""
    return hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]


def _call(name: str, kernel: str, rules: Sequence[int], own: str, fields: Sequence[str],
          used: Sequence[Place]) -> str:
    """The function that the bundle calls: it tells the kernel where its tensors are, and the bundle
    which of its rules (``rules``: their numbers there) data have broken."""
    lines = [f"void {name}_{kernel}(void *frame, int64_t begin, int64_t end, int worker)", "{",
             f"    {name}_frame *const f = frame;", "    zzframe p;"]
    lines += [f"    p.{x} = f->{x};" for x in fields]
    for i, p in enumerate(used):
        lines.append(f"    p.slot[{i}] = (uint8_t *)(uintptr_t)({address(p)});")
    lines += ["    p.slab = f->slab;", "    p.slab_stride = f->slab_stride;", "    p.fault = 0;",
              f"    {own}_run(&p, begin, end, worker);"]
    if rules:
        lines += [f"    static const int32_t rules[] = {{{', '.join(map(str, rules))}}};",
                  "    if (p.fault != 0) {",
                  f"        {name}_fault(f, rules[p.fault - 1], p.fault_value, p.fault_bound);",
                  "    }"]
    lines.append("}")
    return "\n".join(lines)


__all__ = ["HEAD", "PIECE", "SLOTS", "hash_texts", "piece_of", "portable_files", "rename_files"]

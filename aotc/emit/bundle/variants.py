"""Several plans of one model in one bundle: each CPU runs the widest it can."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aotc.emit.bundle.call_tree import calls
from aotc.emit.bundle.describe import kernel_order, kernels, rules
from aotc.emit.bundle.kits import KITS
from aotc.emit.c import kernels as c_kernels
from aotc.emit.simt import simt_kernels as simt
from aotc.emit.text.cexpr import c_index
from aotc.ir.expr import as_expr
from aotc.ir.plan import Plan
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import simplify
from aotc.target import get_target
from aotc.target.base import Target

_ALIGNMENT = 64
# /proc/cpuinfo's name -> the words of Linux's auxiliary vector and the bits of <sys/auxv.h>
_ARM_BITS = {"asimddp": ("AT_HWCAP", "HWCAP_ASIMDDP"), "i8mm": ("AT_HWCAP2", "HWCAP2_I8MM")}
EMITTERS = {"c": c_kernels.render_kernels, "simt": simt.render_kernels}


@dataclass(frozen=True)
class Variant:
    """One plan of a bundle.  ``suffix``: "" if it is the only one, else "_" and what its target
    is called; ``prefix`` of its kernels and files; ``files``: {name: C text} of its kernels."""

    plan: Plan
    schedule: Schedule
    target: Target
    suffix: str
    prefix: str
    files: Mapping[str, str] = field(hash=False, repr=False)

    def row(self) -> dict[str, Any]:
        """What the templates and the manifest say about it."""
        plan, target, rows = self.plan, self.target, kernels(self.plan)
        return {"suffix": self.suffix, "prefix": self.prefix, "target": target.name,
                "cflags": kernel_flags(plan, target), "cpu_flags": target.cpu_flags,
                "asks": kernel_asks(target),
                "needs": ", ".join(target.cpu_flags) or target.name,
                "schedule_hash": self.schedule.hash, "kernels": rows,
                "calls": calls(plan, rows),
                "rules": rules(plan),
                "slots": [c_index(simplify(s)) for s in plan.slots],
                "slab_bytes": c_index(simplify(as_expr(plan.slab_bytes)), 12),
                "kernel_files": sorted((f for f in self.files if f.endswith((".c", ".cu"))),
                                       key=kernel_order)}


def kernel_asks(target: Target) -> tuple[str, ...]:
    """C conditions that ask Linux for the CPU's features, where the compiler has no builtin."""
    if target.arch == "riscv64":  # one bit for each letter
        return tuple(f"getauxval(AT_HWCAP) >> ('{f}' - 'a') & 1" for f in target.cpu_flags)
    if target.arch == "aarch64":
        return tuple(f"getauxval({word}) & {bit}" for word, bit in map(
            _ARM_BITS.__getitem__, target.cpu_flags))
    return ()


def kernel_flags(plan: Plan, target: Target) -> tuple[str, ...]:
    """The C compiler's flags for the kernels of a plan."""
    return target.cflags + (KITS[target.emitter].small if plan.optimize == "size" else ())


def variants(name: str, plans: Sequence[tuple[Plan, Schedule]],
             kernel_files: Mapping[str, str] | None = None) -> tuple[Variant, ...]:
    """Variants of (plan, schedule) pairs, one weights image under all of them.

    ``name``: the bundle's prefix.  ``kernel_files``: texts of the first plan's kernels instead of
    rendered ones.  A single plan keeps the bundle's own prefix for its kernels.
    """
    targets = [get_target(plan.target) for plan, _ in plans]
    suffixes = [""] if len(plans) == 1 else [f"_{t.name.rpartition('-')[2]}" for t in targets]
    shared = share_weights([plan for plan, _ in plans])
    out: list[Variant] = []
    for (_, schedule), plan, target, suffix in zip(plans, shared, targets, suffixes):
        own = name + suffix
        files = kernel_files if kernel_files is not None and not out else EMITTERS[
            target.emitter](replace(plan, name=own), target)
        out.append(Variant(plan, schedule, target, suffix, own, files))
    return tuple(out)


def share_weights(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans with their weights moved into one image: equal constants lie at one place."""
    if len(plans) == 1:
        return tuple(plans)
    offsets, end, out = {}, 0, []
    for plan in plans:
        moved = {}
        for name, array in plan.weights:
            data = np.ascontiguousarray(array)
            key = (data.dtype.str, hashlib.sha256(data.reshape(-1).view("u1").data).digest())
            if key not in offsets:
                offsets[key] = end
                end += -(-data.nbytes // _ALIGNMENT) * _ALIGNMENT
            moved[name] = offsets[key]
        places = tuple(replace(p, offset=moved[p.name]) if p.name in moved else p
                       for p in plan.places)
        out.append(replace(plan, places=places))
    return tuple(out)

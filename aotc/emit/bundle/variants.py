"""Several plans of one model in one bundle: each CPU runs the widest it can, and every call the
first whose extents are its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aotc.emit.bundle.call_tree import calls
from aotc.emit.bundle.describe import kernel_order, kernels, rules, slab_bytes
from aotc.emit.bundle.kits import KITS, kit_name
from aotc.emit.c import kernels as c_kernels
from aotc.emit.dsa import dsa_kernels as dsa
from aotc.emit.dsa.device_text import arena_slots, kept_slots
from aotc.emit.simt import simt_kernels as simt
from aotc.emit.text.cexpr import c_index
from aotc.ir.expr import as_expr
from aotc.ir.plan import Plan
from aotc.ir.plans import Alternative, Plans
from aotc.ir.schedule import Schedule, When, show_when
from aotc.ir.simplify import simplify
from aotc.target import get_target
from aotc.target.base import Target

# /proc/cpuinfo's name -> the words of Linux's auxiliary vector and the bits of <sys/auxv.h>
_ARM_BITS = {"asimddp": ("AT_HWCAP", "HWCAP_ASIMDDP"), "i8mm": ("AT_HWCAP2", "HWCAP2_I8MM"),
             "bf16": ("AT_HWCAP2", "HWCAP2_BF16")}
# a RISC-V extension of several letters -> C condition on what aotc_rvv_asked.h finds out
_RISCV_ASKS = {"zvfh": "aotc_rvv_has(30)", "zvl1024b": "aotc_rvv_bits() >= 1024"}
RISCV_ASKED = "aotc_rvv_asked.h"
# /proc/cpuinfo's name of a CPU's maker -> the compilers' word for __builtin_cpu_is
_MAKERS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
EMITTERS = {"c": c_kernels.render_kernels, "dsa": dsa.render_kernels, "simt": simt.render_kernels}


@dataclass(frozen=True)
class VariantPlan:
    """One plan of a Variant.  ``mark``: what its functions' names end with behind the Variant's
    suffix, "" if it is the only one; ``test``: when it is taken, "" for always; ``about``: that
    for readers; ``when``: the extents, {} for all that are left; ``why``: the Schedule's reason."""

    plan: Plan
    mark: str
    test: str
    about: str
    why: str
    when: When = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class TargetVariant:
    """The plans of a bundle for one target, in the order in which a call's extents choose.
    ``schedule``: of them all; ``suffix``: "" if it is the only one, else "_" and what its target
    is called; ``prefix`` of its kernels and files; ``files``: {name: C text} of its kernels."""

    choices: tuple[VariantPlan, ...]
    schedule: Schedule
    target: Target
    suffix: str
    prefix: str
    files: Mapping[str, str] = field(hash=False, repr=False)

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(s.plan for s in self.choices)

    def row(self) -> dict[str, Any]:
        """What the templates and the manifest say about it."""
        target = self.target
        rows: list[dict[str, Any]] = []
        choices = []
        for s in self.choices:
            choices.append(self._choice_row(s, len(rows)))
            rows += choices[-1]["kernels"]
        return {"suffix": self.suffix, "prefix": self.prefix, "target": target.name,
                "cflags": kernel_flags(self.plans[0], target), "cpu_flags": target.cpu_flags,
                "asks": kernel_asks(target),
                "asked": RISCV_ASKED if set(_RISCV_ASKS) & set(target.cpu_flags) else "",
                "tiles": "amx_tile" in target.cpu_flags,
                "makers": tuple(map(_MAKERS.__getitem__, target.makers)),
                "needs": ", ".join(target.cpu_flags) or target.name,
                "schedule_hash": self.schedule.hash, "kernels": rows, "choices": choices,
                "functions": list(dict.fromkeys(k["name"] for k in rows)),
                "rules": rules(self.plans),
                "kernel_files": sorted((f for f in self.files if f.endswith((".c", ".cu"))),
                                       key=kernel_order)}

    def _choice_row(self, choice: VariantPlan, first: int) -> dict[str, Any]:
        """``first``: how many kernels are counted in front of its own."""
        plan = choice.plan
        rows = [{**k, "when": choice.about} for k in kernels(plan)]
        return {"suffix": self.suffix + choice.mark, "test": choice.test, "about": choice.about,
                "why": choice.why, "when": {n: list(ends) for n, ends in choice.when.items()},
                "kernels": rows, "calls": calls(plan, rows, first),
                "slots": [c_index(s) for s in arena_slots(plan)],
                "kept": [k for k in kept_slots(plan) if k is not None],
                "slab_bytes": c_index(simplify(as_expr(slab_bytes(plan))), 12)}


def kernel_asks(target: Target) -> tuple[str, ...]:
    """C conditions that ask Linux for the CPU's features, where the compiler has no builtin."""
    if target.arch == "riscv64":  # one bit for each letter
        return tuple(_RISCV_ASKS.get(f, f"getauxval(AT_HWCAP) >> ('{f}' - 'a') & 1")
                     for f in target.cpu_flags)
    if target.arch == "aarch64":
        return tuple(f"getauxval({word}) & {bit}" for word, bit in map(
            _ARM_BITS.__getitem__, target.cpu_flags))
    return ()


def kernel_flags(plan: Plan, target: Target) -> tuple[str, ...]:
    """The C compiler's flags for the kernels of a plan."""
    return target.cflags + (KITS[kit_name(target)].small if plan.optimize == "size" else ())


def variants(name: str, plans: Plans,
             kernel_files: Mapping[str, str] | None = None) -> tuple[TargetVariant, ...]:
    """Variants of Plans, which share one weights image.

    ``name``: the bundle's prefix.  ``kernel_files``: texts of the first target's kernels instead
    of rendered ones.  A single target keeps the bundle's own prefix for its kernels.
    """
    sets = list(plans.sets())
    out: list[TargetVariant] = []
    for found in sets:
        target = get_target(found[0].plan.target)
        suffix = "" if len(sets) == 1 else f"_{target.name.rpartition('-')[2]}"
        marks = [f"s{i}" for i in range(len(found) - 1)] + [""]
        own = [replace(a.plan, name=name + suffix) for a in found]
        choices = tuple(_choice(plans, one, mark) for one, mark in zip(found, marks))
        files = kernel_files if kernel_files is not None and not out else EMITTERS[
            target.emitter](own[-1], target, own[:-1])
        out.append(TargetVariant(choices, found[-1].schedule, target, suffix, name + suffix, files))
    return tuple(out)


def _choice(plans: Plans, one: Alternative, mark: str) -> VariantPlan:
    plan, when = one.plan, one.condition.when
    if not mark and len(plans.alternatives) == len(list(plans.sets())):
        return VariantPlan(plan, "", "", "", "")
    if mark:
        return VariantPlan(plan, f"_{mark}", c_index(one.condition.test(plans.syms), 0),
                          show_when(when), one.condition.why, when)
    # a symbol in its whole range needs no word
    whole = {s.name: (s.lo, s.hi) for s in plans.syms}
    left = {n: ends for n, ends in one.condition.left.items() if ends != whole[n]}
    return VariantPlan(plan, "_base", "", ", ".join(filter(None, ("all others", show_when(left)))),
                       "")

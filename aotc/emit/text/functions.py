"""Which kernels a function serves, as their Plans say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.ir.contents import join_ranges
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan


@dataclass(frozen=True)
class PlanKernel:
    """A kernel, and the Plan that it is of."""

    plan: Plan
    kernel: Kernel


@dataclass(frozen=True)
class Shared:
    """A function: the kernel that it is written from, with the ranges of all that it serves, and
    these, of which that is the first."""

    written: PlanKernel
    kernels: tuple[PlanKernel, ...]


def shared_functions(plans: Sequence[Plan]) -> list[Shared]:
    """The functions of the kernels of Plans for one target, the base first."""
    found: dict[str, dict[str, list[PlanKernel]]] = {}  # several plans may have one kernel
    for plan in plans:
        for k in plan.kernels:
            named = found.setdefault(k.function or k.name, {})
            named.setdefault(k.name, []).append(PlanKernel(plan, k))
    out = []
    for named in found.values():
        kernels = tuple(same[0] for same in named.values())
        every = [o.kernel for same in named.values() for o in same]
        out.append(Shared(replace(kernels[0], kernel=join_ranges(every)), kernels))
    return out


__all__ = ["PlanKernel", "Shared", "shared_functions"]

"""Which kernels a function serves, as their Plans say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.ir.contents import for_all
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan


@dataclass(frozen=True)
class Owned:
    """A kernel, and the Plan that it is of."""

    plan: Plan
    kernel: Kernel


@dataclass(frozen=True)
class Shared:
    """A function: the kernel that it is written from, with the ranges of all that it serves, and
    these, of which that is the first."""

    written: Owned
    kernels: tuple[Owned, ...]


def shared_functions(plans: Sequence[Plan]) -> list[Shared]:
    """The functions of the kernels of Plans for one target, the base first."""
    found: dict[str, dict[str, list[Owned]]] = {}  # several plans may have one kernel
    for plan in plans:
        for k in plan.kernels:
            named = found.setdefault(k.function or k.name, {})
            named.setdefault(k.name, []).append(Owned(plan, k))
    out = []
    for named in found.values():
        kernels = tuple(same[0] for same in named.values())
        every = [o.kernel for same in named.values() for o in same]
        out.append(Shared(replace(kernels[0], kernel=for_all(every)), kernels))
    return out


__all__ = ["Owned", "Shared", "shared_functions"]

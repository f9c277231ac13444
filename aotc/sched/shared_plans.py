"""What the Plans of one bundle have in common: weights lie once in one image, and the variants for
one target share the kernels that are equal."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aotc.ir.plan import Plan
from aotc.ir.plans import Plans
from aotc.sched.model.stored_sizes import ALIGN
from aotc.sched.shared_functions import name_kernels_once, share_functions


def share_plans(plans: Plans) -> Plans:
    """The Plans of one bundle, with equal weights at one place and, for each target, one name for
    kernels of one text that touch the same tensors: that of the base where it has one; the others
    begin with the number of their variant."""
    if len(plans.alternatives) == 1:
        return plans
    shared = iter(share_weights([a.plan for a in plans.alternatives]))
    out = []
    for found in plans.sets():
        own = [next(shared) for _ in found]
        if len(own) > 1:
            own = [*(_named(p, f"s{i}_") for i, p in enumerate(own[:-1])), own[-1]]
            own = list(share_functions(name_kernels_once(own)))
        out += [replace(a, plan=plan) for a, plan in zip(found, own)]
    return replace(plans, alternatives=tuple(out))


def _named(plan: Plan, mark: str) -> Plan:
    """The Plan with kernels whose names no other one for its target has."""
    return replace(plan, kernels=tuple(k.named(mark + k.name) for k in plan.kernels))


def share_weights(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """The plans with their weights moved into one image: equal constants lie at one place."""
    offsets, end, out = {}, 0, []
    for plan in plans:
        moved = {}
        for name, array in plan.weights:
            data = np.ascontiguousarray(array)
            key = (data.dtype.str, hashlib.sha256(data.reshape(-1).view("u1").data).digest())
            if key not in offsets:
                offsets[key] = end
                end += -(-data.nbytes // ALIGN) * ALIGN
            moved[name] = offsets[key]
        places = tuple(replace(p, offset=moved[p.name]) if p.name in moved else p
                       for p in plan.places)
        out.append(replace(plan, places=places))
    return tuple(out)


__all__ = ["share_plans", "share_weights"]

"""What is wrong with the precision that a Schedule says, beside its rewrites."""

from aotc.ir.dtypes import BF16, HALF
from aotc.ir.schedule import MIXED, PRECISION, WEIGHT_BITS, Schedule
from aotc.passes.precision.group_weights import RULE as GROUP
from aotc.passes.precision.half_columns import RULE as HALVE
from aotc.passes.precision.narrow_operands import BITS
from aotc.passes.precision.narrow_operands import RULE as NARROW
from aotc.passes.precision.store_halves import RULE as STORE
from aotc.sched.rows.useful_targets import reads_halves, stores_halves
from aotc.target.base import Target


def precision_faults(schedule: Schedule) -> list[str]:
    """What speaks against a Schedule's ``precision``: rewrites that narrow operands say another."""
    if schedule.precision != PRECISION[0] or all(rule not in (NARROW, HALVE)
                                                 for rule, *_ in schedule.rewrites):
        return []
    return [f"precision {schedule.precision}: rewrites that narrow operands need another; choose "
            f"from {', '.join((*PRECISION[1:], MIXED))}"]


def grouping_faults(schedule: Schedule) -> list[str]:
    """What speaks against a Schedule's ``precision``: rewrites that group weights say another."""
    if schedule.precision == MIXED:
        return []
    bits = {p["bits"] for rule, _, p in schedule.rewrites if rule == GROUP and "bits" in p}
    if bits <= {WEIGHT_BITS.get(schedule.precision)}:
        return []
    legal = ", ".join((*(p for p in PRECISION if p in WEIGHT_BITS), MIXED))
    return [f"precision {schedule.precision}: rewrites that group weights need another; choose "
            f"from {legal}"]


def stored_faults(schedule: Schedule, target: Target) -> list[str]:
    """Tensors that a Schedule stores in a dtype of 16 bits which its target cannot: every target
    converts f16, by instructions or without, single numbers of bf16 those that have products of
    it; rounded rows are of f16 where products read it."""
    if not reads_halves(target, HALF):
        unread = [f"rewrites: {NARROW} {name}: {target.name} has no products that read f16 rows; "
                  f"take {HALVE} for the weights" for rule, name, p in schedule.rewrites
                  if rule == NARROW and p.get("dtype") == HALF]
        if unread:
            return unread
    if stores_halves(target, BF16):
        return []
    return [f"rewrites: {rule} {name}: {target.name} has no products that read bf16 as it is "
            "stored; " + ("take the rewrite out" if rule == STORE else "choose stored 'f32'")
            for rule, name, p in schedule.rewrites
            if rule == STORE and p.get("dtype") == BF16 or rule == NARROW and (
                p.get("stored") == BITS)]


__all__ = ["grouping_faults", "precision_faults", "stored_faults"]

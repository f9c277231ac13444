"""What is wrong with the precision that a Schedule says, beside its rewrites."""

from aotc.ir.schedule import MIXED, PRECISION, WEIGHT_BITS, Schedule
from aotc.passes.precision.group_weights import RULE as GROUP
from aotc.passes.precision.half_columns import RULE as HALVE
from aotc.passes.precision.narrow_operands import RULE as NARROW


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


__all__ = ["grouping_faults", "precision_faults"]

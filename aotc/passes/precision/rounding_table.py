"""What rounds for a precision: the one table of them.

A precision of products is a rule, what its rewrites say of it, and how far outputs may then be from
those of f32.  Which products it pays for is decided by ``sched/choose/precision.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aotc.ir.dtypes import BF16, HALF, TF32
from aotc.ir.schedule import MIXED, WEIGHT_BITS
from aotc.passes.precision import group_weights, half_columns, integer_rows, narrow_operands


@dataclass(frozen=True)
class RoundingRule:
    """rule: of the rewrites; said: what they say of the precision itself; error: of an output's
    range, where no budget is declared."""

    rule: str
    said: Mapping[str, Any]
    error: float


# bf16 keeps 4e-3 of an operand's magnitude; measured: below 7e-3 of the range for seven models; a
# ResNet-50 with random weights goes beyond.  Weights of f16 are rounded to 5e-4 of their magnitude,
# measured: below 7e-4; tf32 rounds both operands so.  Weights in groups are rounded to 1/254 and
# 1/15 of their group's range.
ROUNDINGS: Mapping[str, RoundingRule] = {
    TF32: RoundingRule(narrow_operands.RULE, {"dtype": TF32}, 1e-2),
    BF16: RoundingRule(narrow_operands.RULE, {"dtype": BF16}, 5e-2),
    HALF: RoundingRule(half_columns.RULE, {}, 1e-2),
    "int8w": RoundingRule(group_weights.RULE, {"bits": WEIGHT_BITS["int8w"]}, 5e-2),
    "int4w": RoundingRule(group_weights.RULE, {"bits": WEIGHT_BITS["int4w"]}, 0.3),
}
# rules that round operands of products, of what the rules before them have made
ROUNDING = (*dict.fromkeys(r.rule for r in ROUNDINGS.values()), integer_rows.RULE)


def rewrite_precision(rule: str, parameters: Mapping[str, Any]) -> str | None:
    """The precision that a rewrite rounds for; None if it is of another kind."""
    return next((name for name, r in ROUNDINGS.items() if r.rule == rule and all(
        parameters.get(k) == v for k, v in r.said.items())), None)


def rounding_error(precision: str) -> float:
    """How far outputs of a Schedule of one of ``ROUNDINGS``, or of several, may be from f32's."""
    return max(r.error for name, r in ROUNDINGS.items() if precision in (name, MIXED))


__all__ = ["ROUNDING", "ROUNDINGS", "RoundingRule", "rewrite_precision", "rounding_error"]

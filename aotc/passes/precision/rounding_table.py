"""What rounds for a precision: the one table of them.

A precision of products is the rules that round for it, and how far outputs may then be from those
of f32.  Which products they pay for is decided by ``sched/choose/precision.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aotc.ir.dtypes import BF16, HALF, TF32
from aotc.ir.schedule import MIXED, WEIGHT_BITS
from aotc.passes.precision import group_weights, half_columns, integer_rows, narrow_operands


@dataclass(frozen=True)
class RoundingRule:
    """rule: of the rewrites; said: what they say of the precision itself."""

    rule: str
    said: Mapping[str, Any]


@dataclass(frozen=True)
class OperandRounding:
    """rules: a product gets the first that pays for it; error: of an output's range, where no
    budget is declared."""

    rules: tuple[RoundingRule, ...]
    error: float


def _narrow(dtype: str) -> RoundingRule:
    return RoundingRule(narrow_operands.RULE, {"dtype": dtype})


def _group(precision: str) -> RoundingRule:
    return RoundingRule(group_weights.RULE, {"bits": WEIGHT_BITS[precision]})


# bf16 keeps 4e-3 of an operand's magnitude; measured: below 7e-3 of the range for seven models; a
# ResNet-50 with random weights goes beyond.  f16 rounds to 5e-4 of the magnitude, both operands
# where products of it have rows, else weights, measured: below 7e-4; tf32 rounds both operands so.
# Weights in groups are rounded to 1/254 and 1/15 of their group's range.
ROUNDINGS: Mapping[str, OperandRounding] = {
    TF32: OperandRounding((_narrow(TF32),), 1e-2),
    BF16: OperandRounding((_narrow(BF16),), 5e-2),
    HALF: OperandRounding((_narrow(HALF), RoundingRule(half_columns.RULE, {})), 1e-2),
    "int8w": OperandRounding((_group("int8w"),), 5e-2),
    "int4w": OperandRounding((_group("int4w"),), 0.3),
}
# rules that round operands of products, of what the rules before them have made
ROUNDING = (*dict.fromkeys(r.rule for p in ROUNDINGS.values() for r in p.rules), integer_rows.RULE)


def rewrite_precision(rule: str, parameters: Mapping[str, Any]) -> str | None:
    """The precision that a rewrite rounds for; None if it is of another kind."""
    return next((name for name, p in ROUNDINGS.items() for r in p.rules if r.rule == rule and all(
        parameters.get(k) == v for k, v in r.said.items())), None)


def rounding_error(precision: str) -> float:
    """How far outputs of a Schedule of one of ``ROUNDINGS``, or of several, may be from f32's."""
    return max(p.error for name, p in ROUNDINGS.items() if precision in (name, MIXED))


__all__ = ["ROUNDING", "ROUNDINGS", "OperandRounding", "RoundingRule", "rewrite_precision",
           "rounding_error"]

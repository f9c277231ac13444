"""What stages of a Plan for GPUs are computed on."""

from aotc.ir.dtypes import HALF
from aotc.ir.expr import Binary
from aotc.ir.kernel.plan_stages import Contract, Nest, points
from aotc.target import get_target

TARGET = get_target("cuda")
FEW = 16  # rows of a product that tensor cores are not for


def on_simt(plan, dtype=HALF):
    """Products of more than ``FEW`` rows that tensor cores do not compute, and sums of products
    that have no row of products."""
    stages = [(k.name, s) for k in plan.kernels for s in k.lowered.stages]
    return [f"{name}: {s.row}" for name, s in stages
            if isinstance(s, Contract) and (points(s.m) or FEW + 1) > FEW
            and TARGET.product_row(s.row).a != dtype] + [
        f"{name}: {s.row}" for name, s in stages if isinstance(s, Nest) and s.fold == "sum"
        and isinstance(s.body, Binary) and s.body.op == "mul"
        and (points(s.ranges) or 0) > 1 << 12 and (points(s.reduce) or 0) > 32]


__all__ = ["on_simt"]

"""Products by weights of bytes whose other factor is rounded to bytes first, by its own range, as
dynamic quantisation has it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Val
from aotc.frontend.ops.numeric.ops_quant import to_bytes
from aotc.ir.expr import Axis, Const, Expr


@dataclass(frozen=True)
class ByteWeights:
    """Weights of one direction of a layer: ``v`` [rows, columns], u8 or i8; ``scale`` f32 and
    ``zero`` of v's dtype, [directions] or [directions, rows], at ``d``."""

    v: Val
    scale: Val
    zero: Val
    d: int

    def at(self, b: Builder, of: Val, row: Expr) -> Expr:
        """The element of ``scale`` or ``zero`` that a row has."""
        return b.at(of, (Const(self.d), row)[:of.rank])


def byte_weights(b: Builder, v: Val, scale: Val, zero: Val, d: int, name: str) -> ByteWeights:
    """Direction ``d`` of weights [directions, columns, rows]."""
    if v.array is not None:
        own = b.const(np.ascontiguousarray(v.array[d].T), f"{b.node.label}_{name}{d}")
    else:
        own = b.move(v, (v.shape[2], v.shape[1]), lambda i: (Const(d), i[1], i[0]), f"{name}{d}")
    return ByteWeights(own, scale, zero, d)


def product(b: Builder, x: Val, w: ByteWeights, tag: str,
            counts: Callable[[Index], Expr] | None = None) -> Val:
    """``x`` [.., columns] rounded to bytes times the weights: f32 [.., rows].  ``counts``: which
    elements the range of ``x`` is of, where not all."""
    q, scale, middle = to_bytes(b, x, tuple(f"{tag}_{n}" for n in ("bytes", "scale", "zero")),
                                counts=counts)
    whole = b.map(q.shape, lambda i: cast("i32", b.at(q, i)) - cast("i32", b.at(middle, ())),
                  [q, middle], f"{tag}_whole")
    centred = b.map(w.v.shape, lambda i: cast("i32", b.at(w.v, i)) - cast("i32", w.at(
        b, w.zero, i[0])), [w.v, w.zero], f"{tag}_weights")
    outer, n, k = b.axes(x.shape[:-1]), Axis("n", w.v.shape[0]), Axis("k", w.v.shape[1])
    total = b.compute((*outer, n), b.load(whole, (*outer, k)) * b.load(centred, (n, k)), (k,),
                      "sum", f"{tag}_sum", acc="i32")
    return b.map(total.shape, lambda i: cast("f32", b.at(total, i)) * (
        b.at(scale, ()) * w.at(b, w.scale, i[-1])), [total, scale, w.scale], tag)

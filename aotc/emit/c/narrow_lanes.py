"""C text of integer lanes: loads and stores of 8, 16 and 32 bits, conversions from and to f32.

The functions are those of ``aotc_narrow.h``; a vector of i32 has as many lanes as one of f32.
"""

from typing import TYPE_CHECKING

from aotc.emit.c.scalars import Scalars
from aotc.ir.access import stride
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Binary, Cast, Const, Expr, Load, Var, loads
from aotc.ir.numbers.narrow import SHORT, is_lane_int
from aotc.ir.statements import Put

if TYPE_CHECKING:
    from aotc.emit.c.vectors import Vectors

HEADER = "aotc_narrow.h"
_CALLS = {"add": "aotc_iadd", "sub": "aotc_isub", "mul": "aotc_imul"}


def convert_to_float(block: "Vectors", e: Cast) -> str | None:
    """C vector of ``e``, a Cast to f32, in a Vectors block; None if its lanes have no integer
    form (it is gathered then)."""
    x = e.x
    if is_lane_int(x) or x.dtype in SHORT and is_lane_int(Cast("i32", x)):
        return f"aotc_from_i32({integers(block, x)})"
    return None


def integers(block: "Vectors", e: Expr) -> str:
    """C text of the i32 lanes of an ``is_lane_int`` expression or a Load of ``SHORT``."""
    if isinstance(e, Var) and e in block.acc:
        return block.acc[e]
    if block.fixed(e) and (block.guard is None or not loads(e)):
        inner = Scalars(block.env, block.names, (e,))
        text = inner.text(e)
        block.lines += inner.lines
        return f"aotc_isplat({text})"
    if isinstance(e, Cast) and e.x.dtype == "f32":
        name = "aotc_to_i32" if e.dtype == "i32" else f"aotc_as_{e.dtype}"
        return f"{name}({block.text(e.x)})"
    if isinstance(e, Cast):
        return integers(block, e.x)
    if isinstance(e, Binary):
        return f"{_CALLS[e.op]}({integers(block, e.a)}, {integers(block, e.b)})"
    assert isinstance(e, Load), e
    data = block.guard is not None or bool(loads(e.index[0]))
    if data or stride(e.index[0], block.lane) != Const(1):
        return f"aotc_load_i32({block.gathered(e, 'int32_t')})"
    p = block.pointer(e.buffer, e.index[0])
    if block.count:
        return f"aotc_load_{e.dtype}_n({p}, {block.count})"
    return f"aotc_load_{e.dtype}({p})"


def stored_lanes(block: "Vectors", e: Expr) -> str:
    """C text of the i32 lanes whose low bits a put of ``e`` (``is_lane_value``) keeps."""
    if isinstance(e, Cast) and e.x.dtype == "f32":
        return f"aotc_to_i32({block.text(e.x)})"
    return integers(block, e)


def store(p: Put, value: str, count: str, at: str) -> str:
    """C line that stores i32 lanes side by side in the put's dtype."""
    bits = DTYPES[p.value.dtype].size * 8
    name = "aotc_store_i32" if bits == 32 else f"aotc_store_{bits}"
    return f"{name}_n({at}, {value}, {count});" if count else f"{name}({at}, {value});"


__all__ = ["convert_to_float", "integers", "store", "stored_lanes"]

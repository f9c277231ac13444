"""Operands of products that are read where they lie: as f32 or, by threads that share what they
fetch, as the narrower float that they are stored as."""

from aotc.ir.category import Factors, zero_filled, zero_filled_load
from aotc.ir.dtypes import HALVES
from aotc.ir.expr import Expr, Load


def rows_in_place(f: Factors, shared: bool) -> tuple[Load | None, Expr | None]:
    """(Load, guard) of the row operand, zero outside its guard, if its elements may be read where
    they lie.  shared: by threads that share them, which convert each as it is fetched."""
    return (zero_filled_load if shared else zero_filled)(f.a)


def columns_in_place(f: Factors, shared: bool) -> Load | None:
    """The same of the lane operand, which has no guard then."""
    if not isinstance(f.b, Load):
        return None
    return f.b if f.b.dtype == "f32" or shared and f.b.dtype in HALVES else None


__all__ = ["columns_in_place", "rows_in_place"]

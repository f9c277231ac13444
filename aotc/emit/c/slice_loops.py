"""C text of sums that run in slices: which slice this is, and where its panel begins."""

from math import prod

from aotc.emit.text.cexpr import c_index, constant
from aotc.ir.plan import Contract


def slice_taps(c: Contract) -> int:
    """How many taps of a Contract are slices of their own."""
    return prod(constant(r.axis.extent) for r in c.slice_taps)


def slice_offset(c: Contract, nr: int) -> str:
    """What is added to where a panel of ``nr`` columns, or columns read in place, begin."""
    if not c.slices:
        return ""
    if c.b.mode == "direct":
        return f" + k_lo * {c_index(c.b.stride, 13)}"
    at = f"(tap0 * {c_index(c.k.axis.extent, 13)} + k_lo)" if c.slice_taps else "k_lo"
    return f" + {at} * {nr}"


def before(c: Contract) -> str:
    """The condition that there was a slice before this one."""
    return "tap0 + k_lo > 0" if c.slice_taps else "k_lo > 0"


def more(c: Contract) -> str:
    """The condition that another slice follows."""
    in_tap = f"k_lo + {c.slice} < {c_index(c.k.axis.extent, 11)}"
    return f"tap0 + 1 < {slice_taps(c)} || {in_tap}" if c.slice_taps else in_tap

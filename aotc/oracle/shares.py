"""How far numbers are from others, as a share of the others' range."""

import numpy as np

from aotc.ir.dtypes import Array

FLAT = 1e-2  # an output that hardly varies has no range to speak of: its magnitude counts instead


def share_of_range(got: Array, want: Array) -> float:
    """max |got - want| over the finite elements of ``want``, divided by their range; infinite where
    ``got`` has no finite number there, 0.0 where ``want`` holds none."""
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0
    a = np.asarray(got, np.float64)[finite]
    b = np.asarray(want, np.float64)[finite]
    if not np.isfinite(a).all():
        return float("inf")
    scale = max(float(np.ptp(b)), FLAT * float(np.max(np.abs(b))), 1e-30)
    return float(np.max(np.abs(a - b))) / scale


__all__ = ["FLAT", "share_of_range"]

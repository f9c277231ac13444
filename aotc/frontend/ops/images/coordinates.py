"""Where an element that Resize makes lies in its source, and which element is the nearest: in
numbers and in symbols, in f64 or, where rounding is told from outside, in f32 and in the order of
operations that ONNX Runtime has."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from aotc.frontend.building.symbolic import cast, const
from aotc.ir.dtypes import INDEX, Array
from aotc.ir.expr import Axis, Cast, Const, Expr, Unary, Where, compare, int_of, maximum
from aotc.ir.simplify import simplify
from aotc.oracle.eval_expr import EvalScope

EXACT = "f64"
ROUNDED = "f32"  # of places whose rounding decides which element is read
CROPS = "tf_crop_and_resize"
BY_DATA = "align_corners by data"  # by factors that data gives: as the standard's suite has it
SIMPLE = "simple"  # how opset 10 rounds

Box = tuple[Expr, Expr]  # start and end of a region, in shares of the axis


@dataclass(frozen=True)
class Line:
    """An axis resized from extent ``n`` to ``m`` (index expressions) by the factor ``scale``, a
    float expression; ``roi``: the region of the mode that has one."""

    n: Expr
    m: Expr
    scale: Expr
    roi: Box | None = None

    def rounded(self) -> "Line":
        """The same with f32 for ``scale`` and ``roi``."""
        roi = None if self.roi is None else (cast(ROUNDED, self.roi[0]), cast(ROUNDED, self.roi[1]))
        return replace(self, scale=cast(ROUNDED, self.scale), roi=roi)


def real(value: Expr | float, dtype: str) -> Expr:
    """A number or an expression as a float expression; integers in f32 are rounded, no exact
    arithmetic on extents is meant."""
    if not isinstance(value, Expr):
        return const(value, dtype)
    if isinstance(value, Const):
        return const(value.value, dtype)
    return value if value.dtype == dtype else Cast(dtype, value)


def _pixel(o: Expr, a: Line) -> Expr:
    return (o + 0.5) / a.scale - 0.5


def _unless_one(o: Expr, a: Line, value: Expr, single: Expr | None = None) -> Expr:
    """``value``, or ``single`` (default: 0) where the axis gets one element."""
    single = const(0, o.dtype) if single is None else single
    return simplify(Where(compare("gt", a.m, Const(1)), value, single))


def _ends(o: Expr, a: Line) -> tuple[Expr, Expr]:
    """(the last element's place in the source, steps to the last one made)."""
    return real(simplify(a.n - 1), o.dtype), real(simplify(maximum(a.m - 1, Const(1))), o.dtype)


def _corners(o: Expr, a: Line) -> Expr:
    last, steps = _ends(o, a)
    return _unless_one(o, a, o * last / steps)


def _corners_by_data(o: Expr, a: Line) -> Expr:
    """What the factor makes of the extent counts, with its fraction."""
    exact, made = a.scale * real(a.n, o.dtype), real(a.m, o.dtype)
    near = compare("lt", Unary("abs", exact - made), made * 1e-6)  # the factor itself is rounded
    return _unless_one(o, a, o * _ends(o, a)[0] / (Where(near, made, exact) - 1.0))


def _symmetric(o: Expr, a: Line) -> Expr:
    """The last steps are in f64, also where the others are rounded."""
    n, m = real(a.n, o.dtype), real(a.m, o.dtype)
    offset = n / 2.0 * (const(1, o.dtype) - m / (a.scale * n))
    place = real(offset, EXACT) + (real(o, EXACT) + 0.5) / real(a.scale, EXACT) - 0.5
    return real(place, o.dtype)


def _crop(o: Expr, a: Line) -> Expr:
    assert a.roi is not None, a  # the mode has one
    start, end = a.roi
    last, steps = _ends(o, a)
    middle = (start + end) * 0.5 * last
    return _unless_one(o, a, start * last + o * (end - start) * last / steps, middle)


def _half_for_nearest(o: Expr, a: Line) -> Expr:
    """An axis by a factor of one stays as it is."""
    return simplify(Where(compare("eq", a.scale, const(1, o.dtype)), o, (o + 0.5) / a.scale))


# source coordinate of the element ``o``, a float expression of the dtype that scale and roi have
COORDINATES: dict[str, Callable[[Expr, Line], Expr]] = {
    "half_pixel": _pixel,
    "pytorch_half_pixel": lambda o, a: _unless_one(o, a, _pixel(o, a)),
    "align_corners": _corners,
    "asymmetric": lambda o, a: o / a.scale,
    "half_pixel_symmetric": _symmetric,
    "tf_half_pixel_for_nn": _half_for_nearest,
    CROPS: _crop,
}
SAID = tuple(COORDINATES)  # coordinate_transformation_mode
COORDINATES[BY_DATA] = _corners_by_data


def place_of(o: Expr, a: Line, coord: str, dtype: str) -> Expr:
    """The source coordinate of the element at the index ``o``."""
    return COORDINATES[coord](real(o, dtype), a.rounded() if dtype == ROUNDED else a)


def _up_from(share: float) -> Callable[[Expr], Expr]:
    """Rounding up where the fraction is ``share`` or more, else down."""
    def rounded(x: Expr) -> Expr:
        low = Unary("floor", x)  # x - low is exact, which x + 0.5 is not
        return Where(compare("ge", x - low, const(share, x.dtype)), low + 1.0, low)
    return rounded


_HALF = 1e-6  # a fraction this close to a half is one: quotients that should be are often not
_NEAREST: dict[str, Callable[[Expr], Expr]] = {
    "floor": lambda x: Unary("floor", x), "ceil": lambda x: Unary("ceil", x),
    "round_prefer_floor": _up_from(0.5 + _HALF), "round_prefer_ceil": _up_from(0.5 - _HALF)}


def nearest(o: Expr, a: Line, coord: str, rounding: str) -> Expr:
    """The index of the source element that is the nearest to the element at ``o``; it may lie
    outside."""
    place = place_of(o, a, coord, ROUNDED)
    if rounding == SIMPLE:
        smaller = simplify(compare("lt", a.rounded().scale, const(1, ROUNDED)))
        found = simplify(Where(smaller, Unary("ceil", place), Unary("floor", place)))
    else:
        found = _NEAREST[rounding](place)
    return Cast(INDEX, found)


def known(fn: Callable[[Expr], Expr], m: Expr) -> Array:
    """``fn`` of the indices below ``m``, a number: [m]."""
    o, size = Axis("o", m), int_of(m)
    return np.broadcast_to(EvalScope({o: (0, size)}, None, {}).value(fn(o)), (size,))

"""Operators of com.microsoft on images, and on words as images of their letters."""

from typing import Any

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.symbolic import cast, conjunction, const
from aotc.frontend.building.values import Index, Result
from aotc.frontend.ops.contrib.ops_recurrence import rounded
from aotc.ir.expr import Const, Expr, Unary, Where, compare, maximum, minimum


@spells("CropAndResize", "X rois batch_indices crop_size", "mode extrapolation_value")
def crop_and_resize(s: Spelling) -> Result:
    """Regions [y1, x1, y2, x2] of images, as shares of their sides, in one size: [regions,
    channels, height, width].  Corners are elements; outside there is one value."""
    b, x, regions = s.b, s.cast(s.val("X"), "f32"), s.cast(s.val("rois"), "f32")
    mode = s.attr("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise b.bad(f"the mode {mode!r} is neither 'bilinear' nor 'nearest'")
    sizes = b.ints(s.val("crop_size"))
    owner = s.val("batch_indices")
    b.require("eq", owner.shape[0], regions.shape[0], "every region is of an image")
    b.require("eq", regions.shape[1], 4, "a region has four sides")
    shape = (regions.shape[0], x.shape[1], *sizes)
    for extent in x.shape[2:]:
        b.nonempty(extent, shape, "an element to read")
    outside = const(s.attr("extrapolation_value", 0.0), x.dtype)

    def place(region: Expr, at: Expr, side: int) -> Expr:
        """Where an element of the crop lies in the image, f32."""
        first, last = (b.at(regions, (region, Const(k))) for k in (side, side + 2))
        most = cast(x.dtype, x.shape[2 + side] - 1)
        count = sizes[side]
        step = (last - first) * most / cast(x.dtype, maximum(count - 1, Const(1)))
        many = first * most + cast(x.dtype, at) * step
        return Where(compare("gt", count, Const(1)), many,
                     const(0.5, x.dtype) * (first + last) * most)

    def element(i: Index) -> Expr:
        image = b.checked(b.index_at(owner, (i[0],)), x.shape[0])
        at = [place(i[0], i[2 + k], k) for k in (0, 1)]
        inside = conjunction([c for k, e in enumerate(at) for c in (
            compare("ge", e, const(0, x.dtype)),
            compare("le", e, cast(x.dtype, x.shape[2 + k] - 1)))])
        known = [Where(inside, e, const(0, x.dtype)) for e in at]

        def pixel(row: Expr, column: Expr) -> Expr:
            spots = [minimum(maximum(cast("i64", e), Const(0)), x.shape[2 + k] - 1)
                     for k, e in enumerate((row, column))]
            return b.at(x, (image, i[1], *spots))
        if mode == "nearest":
            found = pixel(*(Unary("floor", e + const(0.5, x.dtype)) for e in known))
        else:
            low, high = ([Unary(way, e) for e in known] for way in ("floor", "ceil"))
            part = [e - f for e, f in zip(known, low, strict=True)]
            top, end = (pixel(row, low[1]) + (pixel(row, high[1]) - pixel(row, low[1])) * part[1]
                        for row in (low[0], high[0]))
            found = top + (end - top) * part[0]
        return Where(inside, found, outside)
    made = b.map(shape, element, [x, regions, owner], tag="crops")
    return rounded(s, made, s.val("X").dtype, 0)


_CONV_TRANSPOSE = "auto_pad dilations group kernel_shape output_padding strides"


@spells("ConvTransposeWithDynamicPads", "X W Pads B", _CONV_TRANSPOSE)
def conv_transpose(s: Spelling) -> Result:
    """The pads must be known while compiling."""
    more: dict[str, Any] = dict(s.node.attrs)
    if s.opt("Pads") is not None:
        more["pads"] = s.b.static_ints(s.val("Pads"))
    return s("ConvTranspose", s.val("X"), s.val("W"), s.opt("B"), out=0, **more)


# ---------------------------------------------------------------- words

@spells("WordConvEmbedding", "Sequence W B C",
        "conv_window_size embedding_size char_embedding_size", kinds="i")
def embedded_words(s: Spelling) -> Result:
    """A row for every word, of numbers [words, letters] that end in zeros: the best of each filter
    over all places where it lies on letters, at least one; zeros where there is no word."""
    ids, w = s.val("Sequence"), s.val("W")
    if ids.rank != 2 or w.rank != 4:
        raise s.b.bad("words are [words, letters], weights [filters, 1, letters, size]")
    window = s.b.fixed(w.shape[2])
    s.b.require("le", w.shape[2], ids.shape[1], "filters are no longer than words")
    letters = s.spread(s("Gather", s.val("C"), ids), 1)
    found = s("Squeeze", s("Tanh", s("Conv", letters, w, s.val("B"))), s.ints(3))
    there = s.cast(s("Not", s("Equal", ids, s.number(0, ids.dtype))), "i64")
    count = s("ReduceSum", there, s.ints(1), keepdims=1)
    last = s("Max", s("Sub", count, s.number(window - 1, "i64")), s.number(1, "i64"))
    counts = s.spread(s("Less", s.places(found.shape[2]), last), 1)
    best = s("ReduceMax", s("Where", counts, found, s.number(-1, found.dtype)), s.ints(2),
             keepdims=0)
    none = s("Equal", s.cut(ids, 1, 0, 1), s.number(0, ids.dtype))
    return s("Where", none, s.number(0, best.dtype), best, out=0)

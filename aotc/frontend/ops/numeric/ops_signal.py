"""Signals: Fourier transforms as products with constant matrices, mel filters."""

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import bound_number, expect, expect_shape, reads_data
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.read.read_types import dtype_name
from aotc.ir.dtypes import DTYPES, INDEX, Array
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Unary,
    Where,
    compare,
    int_of,
    minimum,
)
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

REAL = "f64"
LONGEST = 4096  # points of a transform: its matrix has 32 bytes for each pair, 512 MB


@op("DFT", since=17)
def dft_17(node: Node, b: Builder) -> Result:
    return _dft(b, b.axis(node.attr("axis", 1), b.input(0).rank))


@op("DFT", since=20)
def dft_20(node: Node, b: Builder) -> Result:
    v = b.arg(2)
    return _dft(b, b.axis(-2 if v is None else b.static_ints(v)[0], b.input(0).rank))


def _dft(b: Builder, axis: int) -> Val:
    node, x, given = b.node, b.input(0), b.arg(1)
    b.need(x, "f")
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    parts = static_shape(x.shape[-1:])
    if parts not in ((1,), (2,)) or axis == x.rank - 1:
        raise b.bad(f"a transform of axis {axis} of {x}: the last dimension must be 1 or 2, real "
                    "or complex numbers, and another than the axis")
    half = inverse and onesided
    length = b.ints(given)[0] if given is not None else simplify(
        (x.shape[axis] - 1) * 2) if half else x.shape[axis]
    b.require("ge", length, 1, "DFT: a transform has a length")
    if not isinstance(length, Const) or not isinstance(x.shape[axis], Const):
        return _dft_by_turns(b, axis, length)
    if length.value > LONGEST:
        raise b.unsupported(f"a transform of {length} points, which is a product with a matrix",
                            f"use at most {LONGEST}")
    matrix = _half_matrix(length.value) if half else _matrix(length.value, inverse)
    if onesided and not inverse:
        matrix = matrix[:length.value // 2 + 1]
    # the signal is cut or taken as zero behind its end
    known = min(int_of(x.shape[axis]), matrix.shape[2])
    matrix = np.ascontiguousarray(matrix[:, :, :known, :int_of(x.shape[-1])])
    shape = x.shape[:axis] + (Const(len(matrix)),) + x.shape[axis + 1:-1] + (
        Const(matrix.shape[1]),)
    axes = b.axes(shape)
    k, p = Axis("k", Const(known)), Axis("p", x.shape[-1])
    weight = b.const(matrix, f"{node.label}_matrix")
    # what cancels is as small as its rounding: in f64, rounded once
    body = cast(REAL, b.load(x, axes[:axis] + (k,) + axes[axis + 1:-1] + (p,))) * b.load(
        weight, (axes[axis], axes[-1], k, p))
    return _rounded_once(b, b.compute(axes, body, (k, p), "sum", "" if x.dtype == REAL else "sum"))


def _rounded_once(b: Builder, total: Val) -> Val:
    """An f64 sum in the dtype of the node's input."""
    to = b.input(0).dtype
    return total if to == REAL else b.map(total.shape, lambda i: cast(to, b.at(total, i)), [total])


def _dft_by_turns(b: Builder, axis: int, length: Expr) -> Val:
    """The transform of an axis whose extent or length is a symbol: the cosines and sines of all
    parts of a turn are made at every call, and looked up."""
    x, node = b.input(0), b.node
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    half, complex_ = inverse and onesided, x.shape[-1] == Const(2)
    angles = b.axes((length,))
    part = cast(REAL, angles[0]) * const(2 * np.pi, REAL) / cast(REAL, length)
    cosine, sine = (b.compute(angles, Unary(f, part), tag=f"turns_{f}") for f in ("cos", "sin"))
    some = simplify(length // 2 + 1)
    made = (length, Const(1)) if half else (some if onesided else length, Const(2))
    axes = b.axes(x.shape[:axis] + made[:1] + x.shape[axis + 1:-1] + made[1:])
    # the signal is cut or taken as zero behind its end
    k = Axis("k", simplify(minimum(x.shape[axis], some if half else length)))
    turn = (axes[axis] * k) % length

    def signal(p: int) -> Expr:
        return cast(REAL, b.load(x, axes[:axis] + (k,) + axes[axis + 1:-1] + (Const(p),)))
    c, s = b.load(cosine, (turn,)), b.load(sine, (turn,)) * (-1.0 if inverse else 1.0)
    re, im = signal(0), signal(1) if complex_ else const(0, REAL)
    first = re * c + im * s if complex_ else re * c
    second = im * c - re * s if complex_ else Unary("neg", re * s)
    value: Expr = first if half else Where(compare("eq", axes[-1], Const(0)), first, second)
    if half:  # the other half of the spectrum is the conjugate
        alone = Binary("or", compare("eq", k, Const(0)), compare("eq", k * 2, length))
        value = Where(alone, value, value * 2.0)
    total = b.compute(axes, value / cast(REAL, length) if inverse else value, (k,), "sum",
                      "" if x.dtype == REAL else "sum")
    return _rounded_once(b, total)


def _turns(n: int, rows: int, columns: int) -> tuple[Array, Array]:
    """cos and sin of 2 pi row column / n, exact in the number of turns."""
    angle = np.outer(np.arange(rows), np.arange(columns)) % n * (2 * np.pi / n)
    return np.cos(angle), np.sin(angle)


def _matrix(n: int, inverse: bool) -> Array:
    """[frequency, re/im of the result, time, re/im of the signal]"""
    c, s = _turns(n, n, n)
    s = -s if inverse else s
    out = np.stack([np.stack([c, s], -1), np.stack([-s, c], -1)], 1)
    return out / n if inverse else out


def _half_matrix(n: int) -> Array:
    """[time, re, frequency, re/im]: the other half of the spectrum is the conjugate."""
    count = n // 2 + 1
    c, s = _turns(n, n, count)
    twice = np.full(count, 2.0)
    twice[0] = 1
    if n % 2 == 0:
        twice[-1] = 1
    return np.stack([c * twice, -s * twice], -1)[:, None] / n


@op("STFT", since=17)
def stft(node: Node, b: Builder) -> Result:
    """[batch, frame, frequency, re/im] of a signal [batch, time] or [batch, time, 1 or 2]."""
    x, window, size = b.input(0), b.arg(2), b.arg(3)
    b.need(x, "f")
    if x.rank == 2:  # not of the standard, but written
        given = x
        x = b.move(given, (*given.shape, Const(1)), lambda i: i[:2], "signal")
    parts = static_shape(x.shape[-1:])
    if x.rank != 3 or parts not in ((1,), (2,)):
        raise b.bad("the signal must be [batch, time, 1] of real or [batch, time, 2] of complex "
                    "numbers")
    step = b.elements(b.input(1))[0]
    if size is not None:
        length = b.elements(size)[0]
    elif window is not None:
        length = window.shape[0]
    else:
        raise b.bad("a window or a frame_length must be given")
    frames, bins, top = _frames(b, x, step, length, window)
    axes = b.axes((x.shape[0], frames, bins, Const(2)))
    k = Axis("k", top)
    at = b.checked(axes[1] * step + k, x.shape[1], "frames lie inside the signal")
    if isinstance(length, Const) and isinstance(bins, Const) and length.value <= LONGEST:
        return _by_matrix(b, x, window, axes, k, at)
    n = cast(REAL, length)
    angle = cast(REAL, (axes[2] * k) % length) * const(2 * np.pi, REAL) / n
    c, s = (cast(x.dtype, Unary(f, angle)) for f in ("cos", "sin"))
    re = b.load(x, (axes[0], at, Const(0)))
    im = b.load(x, (axes[0], at, Const(1))) if parts == (2,) else None
    first = re * c if im is None else re * c + im * s
    second = Unary("neg", re * s) if im is None else im * c - re * s
    value: Expr = Where(compare("eq", axes[3], Const(0)), first, second)
    if window is not None:
        value = value * b.load(window, (k,))
    if not isinstance(length, Const):
        value = Where(compare("lt", k, length), value, const(0, x.dtype))
    return b.compute(axes, value, (k,), "sum")


def _by_matrix(b: Builder, x: Val, window: Val | None, axes: tuple[Axis, ...], k: Axis,
               at: Expr) -> Val:
    """Frames times a constant matrix, a known window in it."""
    bins, length, parts = map(int_of, (axes[2].extent, k.extent, x.shape[-1]))
    matrix = _matrix(length, False)[:bins, :, :, :parts]
    window = None if window is None else b.known(window)
    held = None if window is None else window.array
    if held is not None:
        matrix = matrix * held.astype(np.float64)[:, None]
    table = b.const(np.ascontiguousarray(matrix.astype(DTYPES[x.dtype].numpy)),
                    f"{b.node.label}_matrix")
    p = Axis("p", Const(parts))
    value = b.load(x, (axes[0], at, p)) * b.load(table, (axes[2], axes[3], k, p))
    if window is not None and held is None:
        value = value * b.load(window, (k,))
    return b.compute(axes, value, (k, p), "sum")


def _frames(b: Builder, x: Val, step: Expr, length: Expr,
            window: Val | None) -> tuple[Expr, Expr, Expr]:
    """(frames, frequencies, points that are added up): as many as step and length say; as the model
    declares, where those are data."""
    half = b.node.attr("onesided", 1)
    if reads_data(step) or reads_data(length):
        _, frames, bins, _ = b.declared(rank=4)
        most = Const(2 * b.fixed(bins) - 1) if half else bins
        top = window.shape[0] if window is not None else most
        given = bound_number(length)
        expect(b, [((x.shape[1] - given) // bound_number(step) + 1, frames),
                   (given // 2 + 1 if half else given, bins)], "the data must give the declared "
               f"{frames} frames of {bins} frequencies, it gives")
        return frames, bins, top if not isinstance(length, Const) else length
    b.require("ge", step, 1, "STFT: frame_step is at least 1")
    b.require("ge", length, 1, "STFT: a frame has a length")
    b.require("le", length, x.shape[1], "STFT: a frame is no longer than the signal")
    if window is not None:
        b.require("eq", window.shape[0], length, "STFT: the window is as long as a frame")
    frames = simplify((x.shape[1] - length) // step + 1)
    bins = simplify(length // 2 + 1) if half else length
    return frames, bins, length


@op("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node, b: Builder) -> Result:
    mels, length, rate, low, high = (b.at(v, (Const(0),) * v.rank) for v in b.inputs())
    if b.from_data(b.input(0)) or b.from_data(b.input(1)):
        shape = b.declared(rank=2)
        expect_shape(b, [bound_number(b.elements(b.input(1))[0]) // 2 + 1,
                         bound_number(b.elements(b.input(0))[0])], shape)
    else:
        shape = (simplify(b.ints(b.input(1))[0] // 2 + 1), b.ints(b.input(0))[0])

    def mel(hertz: Expr) -> Expr:
        return const(2595 / np.log(10), REAL) * Unary(
            "log", const(1, REAL) + cast(REAL, hertz) / 700.0)
    bottom, top = mel(low), mel(high)
    step = (top - bottom) / (cast(REAL, mels) + 2.0)

    def bin_of(i: Expr) -> Expr:
        at = Unary("exp", (cast(REAL, i) * step + bottom) * (np.log(10) / 2595))
        hertz = const(700, REAL) * (at - 1.0)
        return cast(INDEX, Unary("floor", (cast(REAL, length) + 1.0) * hertz / cast(REAL, rate)))
    edges = b.compute(b.axes((shape[1] + 2,)), bin_of(b.axes((shape[1] + 2,))[0]), tag="edges")
    to = dtype_of_output(b)

    def body(i: Index) -> Expr:
        left, centre, right = (b.load(edges, (i[1] + k,)) for k in range(3))
        one, zero = const(1, REAL), const(0, REAL)

        def ratio(a: Expr, c: Expr) -> Expr:
            return cast(REAL, a) / cast(REAL, c)
        rise = Where(compare("eq", centre, left),
                     Where(compare("eq", i[0], centre), one, zero),
                     Where(_between(i[0], left, centre + 1), ratio(i[0] - left, centre - left),
                           zero))
        return cast(to, Where(_between(i[0], centre, right),
                              ratio(right - i[0], right - centre), rise))
    return b.map(shape, body, [edges])


def _between(i: Expr, low: Expr, end: Expr) -> Expr:
    return Binary("and", compare("ge", i, low), compare("lt", i, end))


def dtype_of_output(b: Builder) -> str:
    """The dtype that attribute ``output_datatype`` names; f32 if there is none."""
    name = dtype_name(b.node.attr("output_datatype", 1))
    if name is None:
        raise b.unsupported("this output_datatype", f"use one of {', '.join(DTYPES)}")
    return name

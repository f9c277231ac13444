"""Operators of com.microsoft that ONNX has too, by their own or by another name, and a few that are
one short formula."""

import math

import numpy as np

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.values import Index, Result, Val
from aotc.ir.expr import Const, Expr, Unary, Where, compare, maximum, minimum
from aotc.ir.program import static_shape

_GRIDS = 16  # the opset whose GridSample has these modes


@spells("Pad", "data pads value", "mode", kinds="fiu")
def pad(s: Spelling) -> Result:
    pads = s.val("pads")
    pads = s("Reshape", pads, s.ints(-1)) if pads.rank == 2 else pads
    return s("Pad", s.val("data"), pads, s.opt("value"), mode=s.attr("mode", "constant"), out=0)


@spells("Trilu", "X k", "upper", kinds="fiub")
def trilu(s: Spelling) -> Result:
    return s("Trilu", s.val("X"), s.opt("k"), upper=s.attr("upper", 1), out=0)


@spells("GridSample", "X Grid", "align_corners mode padding_mode")
def grid_sample(s: Spelling) -> Result:
    return s("GridSample", s.val("X"), s.val("Grid"), out=0, opset=_GRIDS, **s.node.attrs)


@spells("GatherND", "data indices", kinds="fiub")
def gather_nd(s: Spelling) -> Result:
    return s("GatherND", s.val("data"), s.val("indices"), out=0)


@spells("ExpandDims", "X axis", kinds="fiub")
def expand_dims(s: Spelling) -> Result:
    return s("Unsqueeze", s.val("X"), s("Reshape", s.val("axis"), s.ints(1)), out=0)


@spells("TorchEmbedding", "weight indices padding_idx scale_grad_by_freq", kinds="fiu")
def torch_embedding(s: Spelling) -> Result:
    """What counts in training only makes no difference."""
    return s("Gather", s.val("weight"), s.val("indices"), axis=0, out=0)


@spells("GemmFastGelu", "X W bias")
def gemm_fast_gelu(s: Spelling) -> Result:
    y, bias = s("MatMul", s.val("X"), s.val("W")), s.opt("bias")
    y = y if bias is None else s("Add", y, bias)
    return s("Gelu", y, approximate="tanh", out=0)


@spells("SwiGLU", "gate up", "activation_alpha activation_beta limit",
        only={"round_activation": 0})
def swiglu(s: Spelling) -> Result:
    gate, up = s.val("gate"), s.opt("up")
    if up is None:
        gate, up = s.several("Split", [gate], (None, None), axis=-1, num_outputs=2)
    return gated(s, gate, up, s.attr("limit", 0.0) or 0.0, s.attr("activation_alpha", 1.0),
                 s.attr("activation_beta", 0.0), 0)


def gated(s: Spelling, gate: Val, up: Val, limit: float, alpha: float, beta: float,
          out: int | None = None) -> Val:
    """gate * sigmoid(alpha * gate) * (up + beta), both cut to ``limit`` where that is above 0."""
    if 0 < limit < math.inf:
        low, high = (s.number(v, gate.dtype) for v in (-limit, limit))
        gate, up = s("Min", gate, high), s("Clip", up, low, high)
    up = s("Add", up, s.number(beta, gate.dtype)) if beta else up
    return s("Mul", s("Swish", gate, alpha=alpha), up, out=out)


@spells("CDist", "A B", "metric")
def cdist(s: Spelling) -> Result:
    """Distances between the rows of two matrices."""
    metric = s.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise s.b.unsupported(f"the metric {metric!r}", "use 'euclidean' or 'sqeuclidean'")
    rest = s("Sub", s.spread(s.val("A"), 1), s.spread(s.val("B"), 0))
    root = metric == "euclidean"
    total = s("ReduceSumSquare", rest, s.ints(2), keepdims=0, out=None if root else 0)
    return s("Sqrt", total, out=0) if root else total


@spells("UnfoldTensor", "input", "dim size step", kinds="fiub")
def unfold(s: Spelling) -> Result:
    """All slices of ``size`` elements along a dimension, so many ``step`` apart, as a last one."""
    x, size, step = s.val("input"), s.given("size"), s.attr("step", 1)
    axis = s.b.axis(s.attr("dim", -1), x.rank)
    if size < 1 or step < 1:
        raise s.b.bad("size and step must be positive")
    s.b.require("ge", x.shape[axis], size, "there must be a whole slice")
    count = (x.shape[axis] - size) // step + 1

    def source(i: Index) -> Index:
        return *i[:axis], i[axis] * step + i[-1], *i[axis + 1:-1]
    return s.b.move(x, (*x.shape[:axis], count, *x.shape[axis + 1:], Const(size)), source)


@spells("Range", "start limit delta", kinds="fi")
def numbers(s: Spelling) -> Result:
    first = s.val("start")
    step = s.number(1, first.dtype) if s.opt("delta") is None else s.val("delta")
    one = s.ints()
    return s("Range", *(s("Reshape", v, one) for v in (first, s.val("limit"), step)), out=0)


@spells("SampleOp", "X", kinds="fiu")
def sample(s: Spelling) -> Result:
    return s("Identity", s.val("X"), out=0)


@spells("Unique", "x", kinds="f")
def unique(s: Spelling) -> Result:
    """(what there is, in the order of appearance; which of them each element is; how many)."""
    made = s.several("Unique", [s.val("x")], (0, None, 1, 2), sorted=0)
    return made[0], made[2], made[3]


@spells("MatMulInteger16", "A B", kinds="i")
def matmul_16(s: Spelling) -> Result:
    return s("MatMul", *(s.cast(s.val(n), "i32") for n in "AB"), out=0)


@spells("SparseToDenseMatMul", "A B", "transA transB alpha", kinds="fiu")
def sparse_matmul(s: Spelling) -> Result:
    """A sparse constant is a dense one here."""
    return matmul_of(s, s.attr("transA", 0), s.attr("transB", 0))


def matmul_of(s: Spelling, *turned: int) -> Val:
    """alpha * A @ B, each with its last two dimensions in each other's place where ``turned``."""
    operands = [s.transpose(v, *range(v.rank - 2), v.rank - 1, v.rank - 2) if swap else v
                for v, swap in zip((s.val("A"), s.val("B")), turned, strict=True)]
    alpha = s.attr("alpha", 1.0)
    y = s("MatMul", *operands, out=0 if alpha == 1 else None)
    return y if alpha == 1 else s("Mul", y, s.number(alpha, y.dtype), out=0)


# ---------------------------------------------------------------- relative positions

@spells("RelativePositionBias", "bias_table query_length key_length", "max_distance "
        "is_bidirectional")
def relative_position_bias(s: Spelling) -> Result:
    """[1, heads, query, key]: for every distance the row of its bucket; the table is [buckets,
    heads]."""
    table, both = s.val("bias_table"), bool(s.attr("is_bidirectional", 0))
    static, most = static_shape(table.shape), s.given("max_distance")
    if static is None or most < 1:
        raise s.b.unsupported("a symbolic table, or a distance below 1", "make them constant")
    rows, columns = (s.b.ints(s.val(n))[0] for n in ("query_length", "key_length"))
    buckets = s.b.const(_buckets(static[0] // 2 if both else static[0], most))

    def element(index: Index) -> Expr:
        ahead = index[3] - index[2]
        far = Unary("abs", ahead) if both else maximum(Const(0) - ahead, Const(0))
        bucket: Expr = s.b.load(buckets, (minimum(far, Const(most)),))
        if both:
            bucket = bucket + Where(compare("gt", ahead, Const(0)), Const(static[0] // 2), Const(0))
        return s.b.at(table, (s.b.checked(bucket, static[0]), index[1]))
    return s.b.map((1, static[1], rows, columns), element, [table])


def _buckets(count: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bucket of every distance up to ``most``, behind which there is only the last: each of the
    near ones has its own, those of the far ones grow by a factor.  (C. Raffel et al., Exploring the
    Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 2020, 2.1.)"""
    distance, near = np.arange(most + 1), count // 2
    with np.errstate(divide="ignore"):
        grown = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(max(near, 1)))
    scale = np.float32(math.log(most / near)) if 0 < near < most else np.float32(1)
    far = near + (grown / scale * np.float32(count - near)).astype(np.int64)
    return np.where(distance < near, distance, np.minimum(far, count - 1)).astype(np.int64)

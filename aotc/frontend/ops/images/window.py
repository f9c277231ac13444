"""Sliding windows: what convolution and pooling share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.values import Val
from aotc.ir.expr import Const, Expr, Shape, all_hold, compare, maximum, minimum
from aotc.ir.program import static_shape
from aotc.ir.simplify import proves, simplify

SPATIAL = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}


def spatial_names(prefix: str, rank: int) -> list[str]:
    """Axis names of spatial dimensions: oh, ow; ow; od, oh, ow; else o0, o1, ..."""
    return [prefix + s for s in SPATIAL.get(rank, tuple(map(str, range(rank))))]


@dataclass(frozen=True)
class Window:
    """Geometry per spatial dimension; ``before``, ``after``, ``out`` are index expressions."""

    size: Shape
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: Shape
    after: Shape
    out: Shape

    def at(self, k: int, o: Expr, q: Expr) -> Expr:
        """Input position of window ``o``, tap ``q``, in dimension ``k``."""
        return simplify(o * self.stride[k] + q * self.dilation[k] - self.before[k])

    def first_inside(self, k: int, o: Expr) -> Expr:
        """The first tap of window ``o`` that lies in the input, in dimension ``k``."""
        room = self.before[k] - o * self.stride[k]
        return simplify(maximum((room + (self.dilation[k] - 1)) // self.dilation[k], Const(0)))

    def reach(self, k: int) -> int:
        """Extent of a window in its input."""
        return (self.kernel[k] - 1) * self.dilation[k] + 1


def _attr(b: Builder, name: str, rank: int, default: int) -> tuple[int, ...]:
    value = b.node.attr(name)
    value = tuple(value) if value is not None else (default,) * rank
    if len(value) != rank or any(v < 1 for v in value):
        raise b.bad(f"{name} {list(value)} must be {rank} positive numbers")
    return value


def kernel_of(b: Builder, weights: Val | None = None) -> tuple[int, ...]:
    """kernel_shape, from the attribute or from the weights' last dimensions."""
    rank = b.input(0).rank - 2
    if weights is not None:
        held = static_shape(weights.shape[2:])
        given = b.node.attr("kernel_shape")
        if held is None or given is not None and tuple(given) != held:
            raise b.bad(f"kernel_shape {given} does not fit the weights {weights}")
        return held
    if b.node.attr("kernel_shape") is None:
        raise b.bad("kernel_shape is missing")
    return _attr(b, "kernel_shape", rank, 1)


def window(b: Builder, size: Shape, kernel: tuple[int, ...], ceil_mode: bool = False) -> Window:
    """The Window of the current node over an input of spatial ``size``."""
    rank = len(size)
    if rank != len(kernel):
        raise b.bad(f"a window of rank {len(kernel)} over {rank} spatial dimensions")
    stride, dilation = (_attr(b, n, rank, 1) for n in ("strides", "dilations"))
    before, after = pads(b, size, kernel, stride, dilation)
    auto = b.node.attr("auto_pad", "NOTSET")
    out = []
    for k in range(rank):
        reach = (kernel[k] - 1) * dilation[k] + 1
        if auto.startswith("SAME"):
            out.append(simplify((size[k] + (stride[k] - 1)) // stride[k]))
            continue
        room = simplify(size[k] + before[k] + after[k] - reach)
        # rounded up, a window may reach less than a stride beyond the padding, and less than two
        # strides beyond leave none
        b.require("ge", room + (2 * stride[k] - 1 if ceil_mode else 0), 0,
                  f"the window must fit the padded input in dimension {k}")
        n = room // stride[k] + 1
        if ceil_mode:  # a last window must start inside the input or the leading padding
            n = minimum((room + (stride[k] - 1)) // stride[k] + 1,
                        (size[k] + before[k] - 1) // stride[k] + 1)
        out.append(simplify(n))
    return Window(tuple(size), kernel, stride, dilation, before, after, tuple(out))


def pads(b: Builder, size: Shape, kernel: Sequence[int], stride: Sequence[int],
         dilation: Sequence[int]) -> tuple[Shape, Shape]:
    """(before, after): padding per dimension as index expressions."""
    rank, auto = len(size), b.node.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        given = b.node.attr("pads") or (0,) * (2 * rank)
        if len(given) != 2 * rank or min(given) < 0:
            raise b.bad(f"pads {list(given)} must be {2 * rank} non-negative numbers")
        return tuple(map(Const, given[:rank])), tuple(map(Const, given[rank:]))
    if auto == "VALID":
        return (Const(0),) * rank, (Const(0),) * rank
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise b.bad(f"auto_pad {auto!r}")
    before, after = [], []
    for k in range(rank):
        reach = (kernel[k] - 1) * dilation[k] + 1
        n = (size[k] + (stride[k] - 1)) // stride[k]
        total = simplify(maximum((n - 1) * stride[k] + reach - size[k], Const(0)))
        small = simplify(total // 2)
        large = simplify(total - small)
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return tuple(before), tuple(after)


def counts(w: Window, o: Sequence[Expr], include_pad: bool) -> Expr:
    """Number of taps of window ``o`` that count, as an index expression."""
    total: Expr = Const(1)
    for k, i in enumerate(o):
        lo = 0 - w.before[k] if include_pad else Const(0)
        hi = w.size[k] + w.after[k] if include_pad else w.size[k]
        start = i * w.stride[k] - w.before[k]
        d = w.dilation[k]
        first = maximum((lo - start + (d - 1)) // d, Const(0))
        last = minimum((hi - start + (d - 1)) // d, Const(w.kernel[k]))
        total = total * simplify(last - first)
    return simplify(total)


def guards(index: Iterable[Expr], shape: Iterable[Expr]) -> Expr | None:
    """The conditions, not provable, under which ``index`` lies inside ``shape``; None if none."""
    conds = [c for i, d in zip(index, shape)
             for c in (compare("ge", i, Const(0)), compare("lt", i, d)) if not proves(c)]
    return all_hold(conds)

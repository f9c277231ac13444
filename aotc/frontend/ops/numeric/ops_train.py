"""What training needs of inference's operators: optimiser steps, and small classical ones."""

from collections.abc import Callable, Sequence

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.expr import Binary, Const, Expr, Unary, Where, compare

TRAINING, ML = "ai.onnx.preview.training", "ai.onnx.ml"

Group = tuple[Val, ...]  # a tensor, its gradient and its state


def _scalar(b: Builder, v: Val) -> Expr:
    return b.at(v, (Const(0),) * v.rank)


def _groups(b: Builder, parts: int) -> tuple[list[Group], int]:
    """The tensors behind the learning rate and the step count: ``parts`` lists of equal length."""
    tensors = b.inputs()[2:]
    if len(tensors) % parts:
        raise b.bad(f"{len(tensors)} tensors are no multiple of {parts}")
    n = len(tensors) // parts
    return list(zip(*(tensors[k * n:(k + 1) * n] for k in range(parts)))), n


def _stepped(b: Builder, n: int, groups: Sequence[Group],
             step: Callable[[Group], Sequence[Callable[..., Expr]]]) -> tuple[Val, ...]:
    """``step(elements..., k)`` gives the new elements of a group; outputs in the node's order."""
    results = []
    for k, group in enumerate(groups):
        fns = step(group)
        results.append([b.elementwise(fn, *group, out=j * n + k)
                        for j, fn in enumerate(fns)])
    return tuple(r[j] for j in range(len(results[0])) for r in results)


@op("Momentum", domain=TRAINING)
def momentum(node: Node, b: Builder) -> Result:
    rate, count = _scalar(b, b.input(0)), _scalar(b, b.input(1))
    groups, n = _groups(b, 3)
    nesterov = node.attr("mode") == "nesterov"

    def step(group: Group) -> Sequence[Callable[..., Expr]]:
        def c(value: float) -> Const:
            return const(value, group[0].dtype)
        alpha, norm = c(node.attr("alpha")), c(node.attr("norm_coefficient"))
        beta = Where(compare("gt", count, Const(0)), c(node.attr("beta")), c(1))

        def velocity(x: Expr, g: Expr, v: Expr) -> Expr:
            return alpha * v + beta * (g + norm * x)

        def moved(x: Expr, g: Expr, v: Expr) -> Expr:
            push = velocity(x, g, v)
            if nesterov:
                push = g + norm * x + alpha * push
            return x - cast(x.dtype, rate) * push
        return moved, velocity
    return _stepped(b, n, groups, step)


@op("Adagrad", domain=TRAINING)
def adagrad(node: Node, b: Builder) -> Result:
    rate, count = _scalar(b, b.input(0)), _scalar(b, b.input(1))
    groups, n = _groups(b, 3)

    def step(group: Group) -> Sequence[Callable[..., Expr]]:
        dtype = group[0].dtype

        def c(value: float) -> Const:
            return const(value, dtype)
        slow = cast(dtype, rate) / (c(1) + cast(dtype, count) * c(node.attr("decay_factor", 0.0)))

        def pushed(x: Expr, g: Expr) -> Expr:
            return g + c(node.attr("norm_coefficient", 0.0)) * x

        def squares(x: Expr, g: Expr, h: Expr) -> Expr:
            return h + pushed(x, g) * pushed(x, g)

        def moved(x: Expr, g: Expr, h: Expr) -> Expr:
            return x - slow * pushed(x, g) / (
                Unary("sqrt", squares(x, g, h)) + c(node.attr("epsilon", 1e-6)))
        return moved, squares
    return _stepped(b, n, groups, step)


@op("Adam", domain=TRAINING)
def adam(node: Node, b: Builder) -> Result:
    rate, count = _scalar(b, b.input(0)), _scalar(b, b.input(1))
    groups, n = _groups(b, 4)

    def step(group: Group) -> Sequence[Callable[..., Expr]]:
        dtype = group[0].dtype

        def c(value: float) -> Const:
            return const(value, dtype)
        alpha, beta = c(node.attr("alpha", 0.9)), c(node.attr("beta", 0.999))
        t = cast(dtype, count)
        grown = cast(dtype, rate) * Unary("sqrt", c(1) - Binary("pow", beta, t)) / (
            c(1) - Binary("pow", alpha, t))
        later = Where(compare("gt", count, Const(0)), grown, cast(dtype, rate))

        def pushed(x: Expr, g: Expr) -> Expr:
            return g + c(node.attr("norm_coefficient", 0.0)) * x

        def first(x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
            return alpha * v + (c(1) - alpha) * pushed(x, g)

        def second(x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
            return beta * h + (c(1) - beta) * pushed(x, g) * pushed(x, g)

        def moved(x: Expr, g: Expr, v: Expr, h: Expr) -> Expr:
            new = x - later * first(x, g, v, h) / (
                Unary("sqrt", second(x, g, v, h)) + c(node.attr("epsilon", 1e-6)))
            return new * c(1 - node.attr("norm_coefficient_post", 0.0))
        return moved, first, second
    return _stepped(b, n, groups, step)


# ---------------------------------------------------------------- small classical ones

@op("TensorScatter", since=24)
def tensor_scatter(node: Node, b: Builder) -> Result:
    """A cache with an update written at a position of its own for every batch entry."""
    cache, update, write = b.input(0), b.input(1), b.arg(2)
    b.same_dtype(cache, update)
    axis = b.axis(node.attr("axis", -2), cache.rank)
    n, size = cache.shape[axis], update.shape[axis]
    for k, (d, e) in enumerate(zip(cache.shape, update.shape, strict=True)):
        b.require("ge" if k == axis else "eq", d, e, "an update must fit its cache")
    if write is not None:
        b.require("eq", write.shape[0], cache.shape[0], "every batch entry has one place")
    circular = node.attr("mode", "linear") == "circular"

    def body(index: Index) -> Expr:
        first = Const(0) if write is None else b.index_at(write, index[:1])
        if not circular and write is not None:
            first = b.checked(first, n - size + 1, "a write stays inside the cache")
        at = index[axis] - first
        at = at % n if circular else at
        inside = Binary("and", compare("ge", at, Const(0)), compare("lt", at, size))
        return Where(inside, b.at(update, index[:axis] + (at,) + index[axis + 1:]),
                     b.at(cache, index))
    return b.map(cache.shape, body, [v for v in (cache, update, write) if v is not None])

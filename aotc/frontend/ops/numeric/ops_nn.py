"""Activations, as compositions of elementary functions."""

import math
from collections.abc import Callable, Collection
from inspect import signature

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import Build, op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Result
from aotc.frontend.graph import Node
from aotc.ir.expr import Const, Expr, Unary, Where, compare, maximum, minimum


class Of:
    """Constants and functions of one element's dtype."""

    def __init__(self, e: Expr) -> None:
        self.dtype = e.dtype

    def __call__(self, value: float) -> Const:
        return const(value, self.dtype)


def _exp(e: Expr) -> Expr:
    return Unary("exp", e)


def relu(e: Expr) -> Expr:
    return maximum(e, const(0, e.dtype))


def sigmoid(e: Expr) -> Expr:
    """1 / (1 + exp(-x)): exp overflows to inf for very negative x, and 1/inf is the right 0."""
    c = Of(e)
    return c(1) / (c(1) + _exp(Unary("neg", e)))


def softplus(e: Expr) -> Expr:
    """log(1 + exp(x)) without overflow."""
    c = Of(e)
    return maximum(e, c(0)) + Unary("log", c(1) + _exp(Unary("neg", Unary("abs", e))))


def gelu(e: Expr, approximate: str = "none") -> Expr:
    c = Of(e)
    if approximate == "tanh":
        inner = (e + c(0.044715) * (e * e * e)) * c(math.sqrt(2 / math.pi))
        return c(0.5) * e * (c(1) + Unary("tanh", inner))
    return c(0.5) * e * (c(1) + Unary("erf", e * c(math.sqrt(0.5))))


def _negative(e: Expr, value: Expr) -> Expr:
    """e where e > 0, else ``value``."""
    return Where(compare("gt", e, const(0, e.dtype)), e, value)


def elu(e: Expr, alpha: float = 1.0) -> Expr:
    return _negative(e, Of(e)(alpha) * (_exp(e) - Of(e)(1)))


def selu(e: Expr, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Expr:
    c = Of(e)
    return c(gamma) * _negative(e, c(alpha) * _exp(e) - c(alpha))


def celu(e: Expr, alpha: float = 1.0) -> Expr:
    c = Of(e)
    return maximum(e, c(0)) + minimum(c(alpha) * (_exp(e / c(alpha)) - c(1)), c(0))


def leaky_relu(e: Expr, alpha: float = 0.01) -> Expr:
    return Where(compare("lt", e, const(0, e.dtype)), e * Of(e)(alpha), e)


def hard_sigmoid(e: Expr, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    c = Of(e)
    return maximum(minimum(e * c(alpha) + c(beta), c(1)), c(0))


SIXTH = 0.1666666716337204  # 1/6 as the f32 attribute that the standard's definition passes


def hard_swish(e: Expr) -> Expr:
    return e * hard_sigmoid(e, SIXTH, 0.5)


def swish(e: Expr, alpha: float = 1.0) -> Expr:
    return e * sigmoid(e if alpha == 1 else e * Of(e)(alpha))


def mish(e: Expr) -> Expr:
    return e * Unary("tanh", softplus(e))


def softsign(e: Expr) -> Expr:
    return e / (Unary("abs", e) + Of(e)(1))


def thresholded_relu(e: Expr, alpha: float = 1.0) -> Expr:
    return Where(compare("gt", e, Of(e)(alpha)), e, Of(e)(0))


def shrink(e: Expr, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    c = Of(e)
    return Where(compare("lt", e, c(-lambd)), e + c(bias),
                 Where(compare("gt", e, c(lambd)), e - c(bias), c(0)))


# name, function, attributes it takes
_ROWS = (("Sigmoid", sigmoid, ()), ("Softplus", softplus, ()), ("Softsign", softsign, ()),
         ("Mish", mish, ()), ("HardSwish", hard_swish, ()), ("Gelu", gelu, ("approximate",)),
         ("Elu", elu, ("alpha",)), ("Selu", selu, ("alpha", "gamma")), ("Celu", celu, ("alpha",)),
         ("LeakyRelu", leaky_relu, ("alpha",)), ("HardSigmoid", hard_sigmoid, ("alpha", "beta")),
         ("Swish", swish, ("alpha",)), ("ThresholdedRelu", thresholded_relu, ("alpha",)),
         ("Shrink", shrink, ("bias", "lambd")))


def _activation(fn: Callable[..., Expr], names: Collection[str]) -> Build:
    defaults = {n: p.default for n, p in signature(fn).parameters.items() if n in names}

    def build(node: Node, b: Builder) -> Result:
        x = b.input(0)
        b.need(x, "f")
        attrs = {n: node.attr(n, default) for n, default in defaults.items()}
        return b.elementwise(lambda e: fn(e, **attrs), x)
    return build


for _name, _fn, _names in _ROWS:
    op(_name)(_activation(_fn, _names))


@op("Relu")
def relu_op(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "fi")
    return b.elementwise(relu, x)


@op("PRelu")
def prelu(node: Node, b: Builder) -> Result:
    x, slope = b.input(0), b.input(1)
    b.same_dtype(x, slope)
    return b.elementwise(lambda e, s: Where(compare("lt", e, const(0, e.dtype)), e * s, e), x,
                         slope)

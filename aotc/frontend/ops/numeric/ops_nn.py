"""Activations, as compositions of elementary functions."""

import math
from inspect import signature

from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.ir.expr import Unary, Where, compare, maximum, minimum


class Of:
    """Constants and functions of one element's dtype."""

    def __init__(self, e):
        self.dtype = e.dtype

    def __call__(self, value):
        return const(value, self.dtype)


def _exp(e):
    return Unary("exp", e)


def relu(e):
    return maximum(e, const(0, e.dtype))


def sigmoid(e):
    """1 / (1 + exp(-x)): exp overflows to inf for very negative x, and 1/inf is the right 0."""
    c = Of(e)
    return c(1) / (c(1) + _exp(Unary("neg", e)))


def softplus(e):
    """log(1 + exp(x)) without overflow."""
    c = Of(e)
    return maximum(e, c(0)) + Unary("log", c(1) + _exp(Unary("neg", Unary("abs", e))))


def gelu(e, approximate="none"):
    c = Of(e)
    if approximate == "tanh":
        inner = (e + c(0.044715) * (e * e * e)) * c(math.sqrt(2 / math.pi))
        return c(0.5) * e * (c(1) + Unary("tanh", inner))
    return c(0.5) * e * (c(1) + Unary("erf", e * c(math.sqrt(0.5))))


def _negative(e, value):
    """e where e > 0, else ``value``."""
    return Where(compare("gt", e, const(0, e.dtype)), e, value)


def elu(e, alpha=1.0):
    return _negative(e, Of(e)(alpha) * (_exp(e) - Of(e)(1)))


def selu(e, alpha=1.6732632423543772, gamma=1.0507009873554805):
    c = Of(e)
    return c(gamma) * _negative(e, c(alpha) * _exp(e) - c(alpha))


def celu(e, alpha=1.0):
    c = Of(e)
    return maximum(e, c(0)) + minimum(c(alpha) * (_exp(e / c(alpha)) - c(1)), c(0))


def leaky_relu(e, alpha=0.01):
    return Where(compare("lt", e, const(0, e.dtype)), e * Of(e)(alpha), e)


def hard_sigmoid(e, alpha=0.2, beta=0.5):
    c = Of(e)
    return maximum(minimum(e * c(alpha) + c(beta), c(1)), c(0))


SIXTH = 0.1666666716337204  # 1/6 as the f32 attribute that the standard's definition passes


def hard_swish(e):
    return e * hard_sigmoid(e, SIXTH, 0.5)


def swish(e, alpha=1.0):
    return e * sigmoid(e if alpha == 1 else e * Of(e)(alpha))


def mish(e):
    return e * Unary("tanh", softplus(e))


def softsign(e):
    return e / (Unary("abs", e) + Of(e)(1))


def thresholded_relu(e, alpha=1.0):
    return Where(compare("gt", e, Of(e)(alpha)), e, Of(e)(0))


def shrink(e, bias=0.0, lambd=0.5):
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


def _activation(fn, names):
    defaults = {n: p.default for n, p in signature(fn).parameters.items() if n in names}

    def build(node, b):
        x = b.arg(0)
        b.need(x, "f")
        attrs = {n: node.attr(n, default) for n, default in defaults.items()}
        return b.elementwise(lambda e: fn(e, **attrs), x)
    return build


for _name, _fn, _names in _ROWS:
    op(_name)(_activation(_fn, _names))


@op("Relu")
def relu_op(node, b):
    x = b.arg(0)
    b.need(x, "fi")
    return b.elementwise(relu, x)


@op("PRelu")
def prelu(node, b):
    x, slope = b.arg(0), b.arg(1)
    b.same_dtype(x, slope)
    return b.elementwise(lambda e, s: Where(compare("lt", e, const(0, e.dtype)), e * s, e), x,
                         slope)

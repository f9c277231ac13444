"""Activations of recurrent layers: their names, in any case, and what alpha and beta they take."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import At
from aotc.frontend.ops.numeric.ops_nn import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    softsign,
    thresholded_relu,
)
from aotc.ir.expr import Expr, Unary


@dataclass(frozen=True)
class _Activation:
    """``fn`` of an element and as many numbers as ``defaults`` has: alpha, and beta if two."""

    name: str
    fn: Callable[..., Expr]
    defaults: tuple[float, ...] = ()


def _tanh(e: Expr) -> Expr:
    return Unary("tanh", e)


def _affine(e: Expr, alpha: float, beta: float) -> Expr:
    return e * const(alpha, e.dtype) + const(beta, e.dtype)


def _scaled_tanh(e: Expr, alpha: float, beta: float) -> Expr:
    return const(alpha, e.dtype) * _tanh(e * const(beta, e.dtype))


# The defaults are ONNX Runtime's: the standard's operator ThresholdedRelu has 1
_ALL = (_Activation("Sigmoid", sigmoid), _Activation("Tanh", _tanh), _Activation("Relu", relu),
        _Activation("HardSigmoid", hard_sigmoid, (0.2, 0.5)),
        _Activation("LeakyRelu", leaky_relu, (0.01,)), _Activation("Elu", elu, (1.0,)),
        _Activation("ThresholdedRelu", thresholded_relu, (0.0,)),
        _Activation("Affine", _affine, (0.0, 0.0)),
        _Activation("ScaledTanh", _scaled_tanh, (0.0, 0.0)),
        _Activation("Softsign", softsign), _Activation("Softplus", softplus))
_BY_NAME = {a.name.lower(): a for a in _ALL}


def activations(b: Builder, default: tuple[str, ...], ways: int) -> list[tuple[At, ...]]:
    """The functions of a recurrent node for each of its ``ways`` directions, as many as
    ``default`` names.  Those that take an alpha (a beta) take the next of the attribute
    activation_alpha (activation_beta), one direction after the other, and their own default where
    there is none left.  ModelError for other names, or another number of them."""
    names = list(b.node.attr("activations") or default * ways)
    if len(names) == 2 and len(default) == ways == 1:
        names = names[:1]  # an RNN of one direction: the standard's default has two
    unknown = [n for n in names if n.lower() not in _BY_NAME]
    if unknown or len(names) != len(default) * ways:
        raise b.bad(f"activations {names}: {len(default) * ways} of "
                    f"{', '.join(a.name for a in _ALL)} expected")
    given = [iter(b.node.attr(f"activation_{part}") or ()) for part in ("alpha", "beta")]
    functions = [_with_numbers(_BY_NAME[n.lower()], given) for n in names]
    return [tuple(functions[len(default) * d:][:len(default)]) for d in range(ways)]


def _with_numbers(a: _Activation, given: list[Iterator[float]]) -> At:
    numbers = [next(left, usual) for usual, left in zip(a.defaults, given)]
    return lambda e: a.fn(e, *numbers)

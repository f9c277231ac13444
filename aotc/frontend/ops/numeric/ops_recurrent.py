"""Recurrent layers, unrolled over a fixed number of steps.  The input's part of the gates is one
matrix product over all steps; only the state's part is left inside the recurrence."""

from dataclasses import dataclass

from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Val
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
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.ir.expr import Axis, Const, Unary, Where, compare, maximum, minimum

MAX_STEPS = 256  # unrolled code grows with every step

_ACTIVATIONS = {"Sigmoid": sigmoid, "Tanh": lambda e: Unary("tanh", e), "Relu": relu,
                "HardSigmoid": hard_sigmoid, "LeakyRelu": leaky_relu, "Elu": elu,
                "Softsign": softsign, "Softplus": softplus, "ThresholdedRelu": thresholded_relu}


@dataclass(frozen=True)
class Layer:
    """One direction ``d`` of a recurrent node; x is [steps, batch, input], r the state's weights
    of the gates, without those of a GRU's new state where the reset gate comes first: ``again``."""

    d: int
    x: Val
    w: Val
    r: Val
    bias: Val
    functions: tuple
    again: object = None
    peephole: object = None  # [directions, 3 * hidden], for the gates i, o, f
    lengths: object = None  # steps of every batch entry, None if they all have all

    @property
    def hidden(self):
        return self.r.shape[2]

    @property
    def state_shape(self):
        return self.x.shape[1], self.r.shape[2]


def _input_part(b, layer):
    """x @ W + bias of all steps: [steps, batch, gates * hidden]."""
    x, w = layer.x, layer.w
    t, m = Axis("b0", x.shape[0]), Axis("m", x.shape[1])
    n, k = Axis("n", w.shape[1]), Axis("k", x.shape[2])
    raw = b.compute((t, m, n), b.load(x, (t, m, k)) * b.load(w, (layer.d, n, k)), (k,), "sum",
                    f"input{layer.d}")
    if layer.bias is None:
        return raw
    return b.map(raw.shape, lambda i: b.at(raw, i) + b.load(layer.bias, (layer.d, i[2])), [raw],
                 f"biased{layer.d}")


def _state_part(b, layer, h, tag, r, first=0):
    """h @ r + recurrent bias from gate ``first`` on: [batch, rows of r]."""
    m, n, k = Axis("m", layer.x.shape[1]), Axis("n", r.shape[1]), Axis("k", layer.hidden)
    raw = b.compute((m, n), b.load(h, (m, k)) * b.load(r, (layer.d, n, k)), (k,), "sum",
                    f"product{tag}")
    if layer.bias is None:
        return raw
    return b.map(raw.shape, lambda i: b.at(raw, i) + b.load(
        layer.bias, (layer.d, i[1] + layer.w.shape[1] + layer.hidden * first)), [raw],
        f"state{tag}")


def _rnn_step(b, layer, part, gates, h, c, tag):
    f, = layer.functions
    return b.map(layer.state_shape, lambda i: f(part(0, i) + b.at(gates, i)), [gates],
                 f"h{tag}"), None


def _gru_step(b, layer, part, gates, h, c, tag):
    f, g = layer.functions
    size, shape = layer.hidden, layer.state_shape

    def gate(k, i):
        return f(part(k, i) + b.at(gates, (i[0], i[1] + size * k)))
    reset = b.map(shape, lambda i: gate(1, i), [gates], f"r{tag}")
    if b.node.attr("linear_before_reset", 0):
        new = b.map(shape, lambda i: g(part(2, i) + b.at(reset, i) * b.at(
            gates, (i[0], i[1] + size * 2))), [gates], f"n{tag}")
    else:
        kept = b.map(shape, lambda i: b.at(reset, i) * b.at(h, i), [h], f"kept{tag}")
        again = _state_part(b, layer, kept, f"again{tag}", layer.again, 2)
        new = b.map(shape, lambda i: g(part(2, i) + b.at(again, i)), [again], f"n{tag}")
    update = b.map(shape, lambda i: gate(0, i), [gates], f"z{tag}")
    one = const(1, layer.x.dtype)
    return b.map(shape, lambda i: (one - b.at(update, i)) * b.at(new, i)
                 + b.at(update, i) * b.at(h, i), [h], f"h{tag}"), None


def _lstm_step(b, layer, part, gates, h, c, tag):
    f, g, out = layer.functions
    size, shape = layer.hidden, layer.state_shape
    coupled = b.node.attr("input_forget", 0)

    def gate(fn, k, i, cell=None):
        e = part(k, i) + b.at(gates, (i[0], i[1] + size * k))
        if layer.peephole is not None and cell is not None:
            e = e + b.at(layer.peephole, (Const(layer.d), i[1] + size * k)) * b.at(cell, i)
        return fn(e)

    def cell(i, before=c):
        new = gate(f, 0, i, before)
        kept = const(1, layer.x.dtype) - new if coupled else gate(f, 2, i, before)
        return kept * b.at(before, i) + new * gate(g, 3, i)
    c = b.map(shape, cell, [gates], f"c{tag}")
    return b.map(shape, lambda i: gate(f, 1, i, c) * out(b.at(c, i)), [c], f"h{tag}"), c


# operator: (step, default activations, inputs that are states)
_CELLS = {"RNN": (_rnn_step, ("Tanh",), (5,)),
          "GRU": (_gru_step, ("Sigmoid", "Tanh"), (5,)),
          "LSTM": (_lstm_step, ("Sigmoid", "Tanh", "Tanh"), (5, 6))}

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _recurrent(node, b):
    step, default, states = _CELLS[node.op]
    x = _input(b)
    _check_weights(b, x)
    way = node.attr("direction", "forward")
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[way]
    names = node.attr("activations") or default * len(ways)
    limit, lengths = node.attr("clip"), _lengths(b, x)
    results, (r, again) = [], _state_weights(b)
    for d, backward in enumerate(ways):
        functions = tuple(_ACTIVATIONS.get(n) for n in names[d * len(default):][:len(default)])
        if None in functions or len(functions) != len(default) or node.attr("activation_alpha"):
            raise b.unsupported(f"activations {list(names)} or their parameters",
                                f"use {', '.join(_ACTIVATIONS)} as they are")
        if limit:  # the gates' arguments; a cell's state enters its activation as it is
            functions = tuple(_clipped(f, limit) if k < 2 else f for k, f in enumerate(functions))
        layer = Layer(d, x, b.arg(1), r, b.arg(3), functions, again, b.arg(7), lengths)
        start = [_initial(b, layer, k) for k in states]
        results.append(_unroll(b, layer, step, backward, start))
    return _joined(b, results, len(states))


def _check_weights(b, x):
    """Demand the extents that weights and biases of the standard have."""
    w, r, bias, rows = b.arg(1), b.arg(2), b.arg(3), _GATES[b.node.op] * b.arg(2).shape[2]
    for extent, wanted in ((w.shape[1], rows), (r.shape[1], rows), (w.shape[2], x.shape[2]), *(
            [(bias.shape[1], rows * 2)] if bias is not None else [])):
        b.require("eq", extent, wanted, "weights and biases must fit the input and hidden_size")


def _state_weights(b):
    """(r, again) of a Layer."""
    r = b.arg(2)
    if b.node.op != "GRU" or b.node.attr("linear_before_reset", 0):
        return r, None
    directions, _, size = r.shape
    return (b.move(r, (directions, size * 2, size), lambda i: i, "r_gates"),
            b.move(r, (directions, size, size), lambda i: (i[0], i[1] + size * 2, i[2]), "r_new"))


def _clipped(f, limit):
    """An activation whose argument is cut to -limit .. limit."""
    return lambda e: f(minimum(maximum(e, const(-limit, e.dtype)), const(limit, e.dtype)))


def _input(b):
    """x as [steps, batch, input], once the node is known to be in reach."""
    x = b.arg(0)
    if b.node.attr("layout", 0):
        x = _swapped(b, x, "steps_first")
    if not isinstance(x.shape[0], Const) or x.shape[0].value > MAX_STEPS:
        raise b.unsupported(f"{x.shape[0]} steps", f"pin the sequence to at most {MAX_STEPS}")
    return x


def _swapped(b, v, tag, out=0):
    """The first two dimensions in each other's place."""
    return b.move(v, (v.shape[1], v.shape[0]) + v.shape[2:], lambda i: (i[1], i[0]) + i[2:], tag,
                  out)


def _lengths(b, x):
    """Steps of every batch entry as a Val, None where all have all."""
    v = b.arg(4)
    whole = v is None or v.array is not None and (v.array == x.shape[0].value).all()
    return None if whole else v


def _initial(b, layer, k):
    """Initial state of a direction, zeros if it is not given."""
    v = b.arg(k)
    if v is None:
        return b.compute(b.axes(layer.state_shape), const(0, layer.x.dtype),
                         tag=f"zero{k}_{layer.d}")
    batched = b.node.attr("layout", 0)  # then the direction comes second
    return b.move(v, layer.state_shape, lambda i: (i[0], Const(layer.d), i[1]) if batched else
                  (Const(layer.d),) + i, f"start{k}_{layer.d}")


def _unroll(b, layer, step, backward, start):
    """(hidden states in the order of time, last hidden state, last cell state)."""
    before, size = _input_part(b, layer), layer.hidden
    h, c, seen = start[0], start[-1], []
    count = layer.x.shape[0].value
    for t in reversed(range(count)) if backward else range(count):
        tag = f"{layer.d}_{t}"

        def part(gate, i, t=t):
            return b.at(before, (Const(t), i[0], i[1] + size * gate))
        gates = _state_part(b, layer, h, tag, layer.r)
        before_h, before_c = h, c
        h, c = step(b, layer, part, gates, h, c, tag)
        shown = h
        if layer.lengths is not None:  # behind its end an entry keeps its state and shows zeros
            shown = _while(b, layer, t, h, None, f"shown{tag}")
            h = _while(b, layer, t, h, before_h, f"kept_h{tag}")
            c = c if c is None else _while(b, layer, t, c, before_c, f"kept_c{tag}")
        seen.append(shown)
    return seen[::-1] if backward else seen, h, c


def _while(b, layer, t, new, old, tag):
    """``new`` in the batch entries that have a step ``t``, else ``old`` (None: zero)."""
    zero = const(0, new.dtype)

    def body(i):
        runs = compare("gt", b.index_at(layer.lengths, (i[0],)), Const(t))
        return Where(runs, b.at(new, i), zero if old is None else b.at(old, i))
    return b.map(new.shape, body, [new], tag)


def _joined(b, results, states):
    """Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]."""
    wide = [[_with_ones(b, h, 2, f"y{d}_{t}") for t, h in enumerate(seen)]
            for d, (seen, _, _) in enumerate(results)]
    batched = b.node.attr("layout", 0)
    tag = "steps_first" if batched else ""
    rows = [concat(b, steps, 0, tag if len(wide) == 1 else f"y{d}") for d, steps in enumerate(wide)]
    out = [rows[0] if len(rows) == 1 else concat(b, rows, 1, tag)]
    if batched:  # [batch, steps, directions, hidden]
        y, = out
        out = [b.move(y, (y.shape[2], y.shape[0], y.shape[1], y.shape[3]),
                      lambda i: (i[1], i[2], i[0], i[3]))]
    for k in range(states):
        last = [_with_ones(b, r[1 + k], 1, f"last{k}_{d}") for d, r in enumerate(results)]
        joined = concat(b, last, 0, "first" if batched else "", out=k + 1)
        out.append(_swapped(b, joined, "", k + 1) if batched else joined)
    return tuple(out[:max(len(b.node.outputs), 1)])


def _with_ones(b, v, count, tag):
    return b.move(v, (Const(1),) * count + v.shape, lambda i: i[count:], tag)


for _name in _CELLS:
    op(_name)(_recurrent)

"""Recurrent layers: loops over their steps, unrolled where these are few.  The input's part of the
gates is one matrix product over all steps; only the state's part is left inside the recurrence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.spelling import MICROSOFT
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import At, Element, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.numeric.activations import activations
from aotc.frontend.ops.numeric.byte_weights import ByteWeights, byte_weights, product
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.ir.expr import Axis, Const, Expr, Shape, Unary, Where, compare, maximum, minimum
from aotc.ir.program import static_shape

OF_BYTES = "DynamicQuantizeLSTM"
MAX_UNROLLED = 8  # steps: each is as much code again
LEAST = 2.0 ** -100  # of a state that is not 0

Part = Callable[[int, Index], Expr]  # the input's part of a gate
# hidden states of all steps, [steps, 1, batch, hidden]; the last one, and cell state if it has one
Run = tuple[Val, list[Val]]

# (builder, layer, part, the state's part, h, c, tag) -> (h, c)
Advance = Callable[[Builder, "Layer", Part, Val, Val, Val | None, str], tuple[Val, Val | None]]


@dataclass(frozen=True)
class Layer:
    """One direction ``d`` of a recurrent node; x is [steps, batch, input], r the state's weights
    of the gates, without those of a GRU's new state where the reset gate comes first: ``again``."""

    d: int
    x: Val
    w: Val
    r: Val
    bias: Val | None
    functions: tuple[At, ...]
    again: Val | None = None
    peephole: Val | None = None  # [directions, 3 * hidden], for the gates i, o, f
    lengths: Val | None = None  # steps of every batch entry, None if they all have all
    of_bytes: tuple[ByteWeights, ByteWeights] | None = None  # what w and r then stand for

    @property
    def hidden(self) -> Expr:
        return self.r.shape[2] if self.of_bytes is None else self.r.shape[1]

    @property
    def rows(self) -> Expr:
        """gates * hidden."""
        return self.w.shape[1] if self.of_bytes is None else self.w.shape[2]

    @property
    def state_shape(self) -> Shape:
        return self.x.shape[1], self.hidden


def _input_part(b: Builder, layer: Layer) -> Val:
    """x @ W + bias of all steps: [steps, batch, gates * hidden]."""
    x, w, bias, tag = layer.x, layer.w, layer.bias, f"input{layer.d}"
    if layer.of_bytes is not None:
        raw = product(b, x, layer.of_bytes[0], tag, _running(b, layer))
    else:
        t, m = Axis("b0", x.shape[0]), Axis("m", x.shape[1])
        n, k = Axis("n", w.shape[1]), Axis("k", x.shape[2])
        raw = b.compute((t, m, n), b.load(x, (t, m, k)) * b.load(w, (layer.d, n, k)), (k,), "sum",
                        tag)
    if bias is None:
        return raw
    return b.map(raw.shape, lambda i: b.at(raw, i) + b.load(bias, (layer.d, i[2])), [raw],
                 f"biased{layer.d}")


def _running(b: Builder, layer: Layer) -> Callable[[Index], Expr] | None:
    """Which elements of x belong to a step that some batch entry has; None: all."""
    if layer.lengths is None:
        return None
    longest = fold_axes(b, layer.lengths, [0], "max", None, f"longest{layer.d}", keep=False)
    return lambda i: compare("lt", i[0], b.index_at(longest, ()))


def _state_part(b: Builder, layer: Layer, h: Val, tag: str, r: Val, first: int = 0) -> Val:
    """h @ r + recurrent bias from gate ``first`` on: [batch, rows of r]."""
    bias, name = layer.bias, f"product{tag}"
    if layer.of_bytes is not None:
        raw = product(b, h, layer.of_bytes[1], name)
    else:
        m, n, k = Axis("m", layer.x.shape[1]), Axis("n", r.shape[1]), Axis("k", layer.hidden)
        raw = b.compute((m, n), b.load(h, (m, k)) * b.load(r, (layer.d, n, k)), (k,), "sum", name)
    if bias is None:
        return raw
    return b.map(raw.shape, lambda i: b.at(raw, i) + b.load(
        bias, (layer.d, i[1] + layer.rows + layer.hidden * first)), [raw], f"state{tag}")


def _rnn_step(b: Builder, layer: Layer, part: Part, gates: Val, h: Val, c: Val | None,
              tag: str) -> tuple[Val, Val | None]:
    f, = layer.functions
    return b.map(layer.state_shape, lambda i: f(part(0, i) + b.at(gates, i)), [gates],
                 f"h{tag}"), None


def _gru_step(b: Builder, layer: Layer, part: Part, gates: Val, h: Val, c: Val | None,
              tag: str) -> tuple[Val, Val | None]:
    f, g = layer.functions
    size, shape = layer.hidden, layer.state_shape

    def gate(k: int, i: Index) -> Expr:
        return f(part(k, i) + b.at(gates, (i[0], i[1] + size * k)))
    reset = b.map(shape, lambda i: gate(1, i), [gates], f"r{tag}")
    if layer.again is None:  # linear_before_reset
        new = b.map(shape, lambda i: g(part(2, i) + b.at(reset, i) * b.at(
            gates, (i[0], i[1] + size * 2))), [gates], f"n{tag}")
    else:
        kept = _normal(b, b.map(shape, lambda i: b.at(reset, i) * b.at(h, i), [h],
                                f"kept{tag}"), f"kept{tag}")
        again = _state_part(b, layer, kept, f"again{tag}", layer.again, 2)
        new = b.map(shape, lambda i: g(part(2, i) + b.at(again, i)), [again], f"n{tag}")
    update = b.map(shape, lambda i: gate(0, i), [gates], f"z{tag}")
    one = const(1, layer.x.dtype)
    return b.map(shape, lambda i: (one - b.at(update, i)) * b.at(new, i)
                 + b.at(update, i) * b.at(h, i), [h], f"h{tag}"), None


def _lstm_step(b: Builder, layer: Layer, part: Part, gates: Val, h: Val, c: Val | None,
               tag: str) -> tuple[Val, Val | None]:
    assert c is not None, tag  # an LSTM's state has two parts
    f, g, out = layer.functions
    before, size, shape = c, layer.hidden, layer.state_shape
    coupled = b.node.attr("input_forget", 0)

    def gate(fn: At, k: int, i: Index, cell: Val | None = None) -> Expr:
        e = part(k, i) + b.at(gates, (i[0], i[1] + size * k))
        if layer.peephole is not None and cell is not None:
            e = e + b.at(layer.peephole, (Const(layer.d), i[1] + size * k)) * b.at(cell, i)
        return fn(e)

    def cell(i: Index) -> Expr:
        new = gate(f, 0, i, before)
        kept = const(1, layer.x.dtype) - new if coupled else gate(f, 2, i, before)
        return kept * b.at(before, i) + new * gate(g, 3, i)
    after = _normal(b, b.map(shape, cell, [gates], f"c{tag}"), f"c{tag}")
    return b.map(shape, lambda i: gate(f, 1, i, after) * out(b.at(after, i)), [after],
                 f"h{tag}"), after


# operator: (step, default activations, inputs that are states)
_CELLS = {"RNN": (_rnn_step, ("Tanh",), (5,)),
          "GRU": (_gru_step, ("Sigmoid", "Tanh"), (5,)),
          "LSTM": (_lstm_step, ("Sigmoid", "Tanh", "Tanh"), (5, 6))}
_CELLS[OF_BYTES] = _CELLS["LSTM"]

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4, OF_BYTES: 4}


def _recurrent(node: Node, b: Builder) -> Result:
    step, default, states = _CELLS[node.op]
    x = _input(b)
    _check_weights(b, x)
    way = node.attr("direction", "forward")
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[way]
    every = activations(b, default, len(ways))
    limit, lengths = node.attr("clip"), _lengths(b, x)
    results, (r, again) = [], _state_weights(b)
    for d, backward in enumerate(ways):
        functions = every[d]
        if limit:  # the gates' arguments; a cell's state enters its activation as it is
            functions = tuple(_clipped(f, limit) if k < 2 else f for k, f in enumerate(functions))
        layer = Layer(d, x, b.input(1), r, b.arg(3), functions, again, b.arg(7), lengths,
                      _bytes(b, d) if node.op == OF_BYTES else None)
        start = [_initial(b, layer, k) for k in states]
        plain = len(ways) == 1 and not node.attr("layout", 0)
        results.append(_run(b, layer, step, backward, start, 0 if plain else None))
    return _joined(b, results, len(states))


def _check_weights(b: Builder, x: Val) -> None:
    """Demand the extents that weights and biases of the standard have; bytes are transposed."""
    w, r, bias = b.input(1), b.input(2), b.arg(3)
    if (x.rank, w.rank, r.rank) != (3, 3, 3):
        raise b.bad("the input and the weights must have three dimensions each")
    row, column = (2, 1) if b.node.op == OF_BYTES else (1, 2)
    rows = _GATES[b.node.op] * r.shape[column]
    for extent, wanted in ((w.shape[row], rows), (r.shape[row], rows),
                           (w.shape[column], x.shape[2]), *(
            [(bias.shape[1], rows * 2)] if bias is not None else [])):
        b.require("eq", extent, wanted, "weights and biases must fit the input and hidden_size")


def _bytes(b: Builder, d: int) -> tuple[ByteWeights, ByteWeights]:
    """What stands for the weights of a direction and of its state.  ModelError for other scales
    and zero points than one per direction, or per direction and row."""
    made = []
    for name, k, at in (("w", 1, 8), ("r", 2, 10)):
        v, scale, zero = b.input(k), b.input(at), b.input(at + 1)
        if v.dtype not in ("u8", "i8") or zero.dtype != v.dtype or scale.dtype != "f32":
            raise b.bad(f"weights {v}, their scale {scale} and zero point {zero}: u8 or i8, f32, "
                        "and the weights' type expected")
        for given in (scale, zero):
            if given.rank not in (1, 2):
                raise b.bad(f"{given} is no scale or zero point per direction, or per row of one")
            wanted = (v.shape[0], v.shape[2])
            for extent, own in zip(given.shape, wanted):
                b.require("eq", extent, own, "a scale or zero point per direction, or per row")
        made.append(byte_weights(b, v, scale, zero, d, name))
    return made[0], made[1]


def _state_weights(b: Builder) -> tuple[Val, Val | None]:
    """(r, again) of a Layer."""
    r = b.input(2)
    if b.node.op != "GRU" or b.node.attr("linear_before_reset", 0):
        return r, None
    directions, _, size = r.shape
    return (b.move(r, (directions, size * 2, size), lambda i: i, "r_gates"),
            b.move(r, (directions, size, size), lambda i: (i[0], i[1] + size * 2, i[2]), "r_new"))


def _clipped(f: At, limit: float) -> At:
    """An activation whose argument is cut to -limit .. limit."""
    return lambda e: f(minimum(maximum(e, const(-limit, e.dtype)), const(limit, e.dtype)))


def _input(b: Builder) -> Val:
    """x as [steps, batch, input]."""
    x = b.input(0)
    if b.node.attr("layout", 0):
        x = _swapped(b, x, "steps_first")
    return x


def _swapped(b: Builder, v: Val, tag: str, out: int = 0) -> Val:
    """The first two dimensions in each other's place."""
    return b.move(v, (v.shape[1], v.shape[0]) + v.shape[2:], lambda i: (i[1], i[0]) + i[2:], tag,
                  out)


def _lengths(b: Builder, x: Val) -> Val | None:
    """Steps of every batch entry as a Val, None where all have all."""
    v = b.arg(4)
    if v is None or v.array is None:
        return v
    steps = static_shape(x.shape[:1])
    return None if steps is not None and (v.array == steps[0]).all() else v


def _initial(b: Builder, layer: Layer, k: int) -> Val:
    """Initial state of a direction, zeros if it is not given."""
    v = b.arg(k)
    if v is None:
        return b.compute(b.axes(layer.state_shape), const(0, layer.x.dtype),
                         tag=f"zero{k}_{layer.d}")
    batched = b.node.attr("layout", 0)  # then the direction comes second
    if v.rank != 3:
        raise b.bad(f"an initial state {v}: it must have three dimensions")
    for d, wanted in zip((v.shape[0 if batched else 1], v.shape[2]), layer.state_shape):
        b.require("eq", d, wanted, "an initial state must fit the batch and hidden_size")
    return b.move(v, layer.state_shape, lambda i: (i[0], Const(layer.d), i[1]) if batched else
                  (Const(layer.d),) + i, f"start{k}_{layer.d}")


def _run(b: Builder, layer: Layer, step: Advance, backward: bool, start: Sequence[Val],
         out: int | None) -> Run:
    """The layer over all steps.  ``out``: the node's output that the hidden states are, if they
    are as they come."""
    before, steps = _input_part(b, layer), static_shape(layer.x.shape[:1])
    if steps is None or steps[0] > MAX_UNROLLED:
        return _in_rounds(b, layer, step, backward, start, before, out)
    seen, state = [], list(start)
    for t in reversed(range(steps[0])) if backward else range(steps[0]):
        def inputs(i: Index, t: int = t) -> Expr:
            return b.at(before, (Const(t), *i))
        shown, state = _step(b, layer, step, state, Const(t), f"{layer.d}_{t}", inputs)
        seen.append(_with_ones(b, shown, 2, f"y{layer.d}_{t}"))
    return concat(b, seen[::-1] if backward else seen, 0, "" if out == 0 else f"y{layer.d}"), state


def _in_rounds(b: Builder, layer: Layer, step: Advance, backward: bool, start: Sequence[Val],
               before: Val, out: int | None) -> Run:
    """The layer as a loop: one round makes one step."""
    trip = layer.x.shape[0]

    def one(turn: Expr, states: Sequence[Val],
            parts: Sequence[Val]) -> Made:
        part, = parts
        shown, after = _step(b, layer, step, states, trip - 1 - turn if backward else turn,
                             f"{layer.d}", lambda i: b.at(part, i))
        return after, [_with_ones(b, shown, 1, f"y{layer.d}")], None
    lasts, (seen,), _ = loop(b, f"layer{layer.d}", trip, start, [(before, backward)], [backward],
                             one, outs=[*[None] * len(start), out])
    return seen, list(lasts)


def _step(b: Builder, layer: Layer, step: Advance, state: Sequence[Val], t: Expr, tag: str,
          inputs: Element) -> tuple[Val, list[Val]]:
    """(what step ``t`` shows, the state after it); ``inputs``: the input's part of the gates,
    [batch, gates * hidden]."""
    def part(gate: int, i: Index) -> Expr:
        return inputs((i[0], i[1] + layer.hidden * gate))
    before, cell = state[0], state[1] if len(state) > 1 else None
    gates = _state_part(b, layer, before, tag, layer.r)
    h, c = step(b, layer, part, gates, before, cell, tag)
    h = _normal(b, h, f"h{tag}")
    shown, after = h, [h] if c is None else [h, c]
    if layer.lengths is not None:  # behind its end an entry keeps its state and shows zeros
        shown = _while(b, layer.lengths, t, h, None, f"shown{tag}")
        after = [_while(b, layer.lengths, t, new, old, f"kept{k}_{tag}")
                 for k, (new, old) in enumerate(zip(after, state))]
    return shown, after


def _normal(b: Builder, v: Val, tag: str) -> Val:
    """A state of f32 that is 0 where it is almost: gates that are all but closed leave subnormal
    numbers, or such that a weight makes one of, and each takes a product of the next round a
    hundred cycles for every vector of columns."""
    if v.dtype != "f32":
        return v
    zero, least = const(0, "f32"), const(LEAST, "f32")

    def body(i: Index) -> Expr:
        x = b.at(v, i)
        return Where(compare("lt", Unary("abs", x), least), zero, x)
    return b.map(v.shape, body, [v], f"normal_{tag}")


def _while(b: Builder, lengths: Val, t: Expr, new: Val, old: Val | None, tag: str) -> Val:
    """``new`` in the batch entries that have a step ``t``, else ``old`` (None: zero)."""
    zero = const(0, new.dtype)

    def body(i: Index) -> Expr:
        runs = compare("gt", b.index_at(lengths, (i[0],)), t)
        return Where(runs, b.at(new, i), zero if old is None else b.at(old, i))
    return b.map(new.shape, body, [new], tag)


def _joined(b: Builder, results: Sequence[Run], states: int) -> tuple[Val, ...]:
    """Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]."""
    rows = [seen for seen, _ in results]
    batched = b.node.attr("layout", 0)
    out = [rows[0] if len(rows) == 1 else concat(b, rows, 1, "steps_first" if batched else "")]
    if batched:  # [batch, steps, directions, hidden]
        y, = out
        out = [b.move(y, (y.shape[2], y.shape[0], y.shape[1], y.shape[3]),
                      lambda i: (i[1], i[2], i[0], i[3]))]
    for k in range(states):
        last = [_with_ones(b, ends[k], 1, f"last{k}_{d}") for d, (_, ends) in enumerate(results)]
        joined = concat(b, last, 0, "first" if batched else "", out=k + 1)
        out.append(_swapped(b, joined, "", k + 1) if batched else joined)
    return tuple(out[:max(len(b.node.outputs), 1)])


def _with_ones(b: Builder, v: Val, count: int, tag: str) -> Val:
    return b.move(v, (Const(1),) * count + v.shape, lambda i: i[count:], tag)


for _name in _CELLS:
    op(_name, domain=MICROSOFT if _name == OF_BYTES else "")(_recurrent)

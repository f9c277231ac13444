"""Scan: a region over the entries of its inputs, or unrolled where these are few."""

from collections.abc import Sequence, Sized

from aotc.errors import AotcError
from aotc.frontend.building.bodies import MOST_UNROLLED, Made, attempt, loop
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.values import Result, Val, Value
from aotc.frontend.graph import Body, Node
from aotc.frontend.ops.tensors.ops_control import FEW, results, stack
from aotc.ir.expr import Const, Expr
from aotc.ir.program import static_shape


@op("Scan")
def scan_8(node: Node, b: Builder) -> Result:
    """Before opset 9: every tensor has a batch, and each of its entries is scanned by itself."""
    if b.arg(0) is not None:
        raise b.unsupported("sequence_lens", "export the model in opset 9 or newer")
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    args = [b.tensor(i) for i in node.inputs[1:]]
    states = len(args) - _counted(b, args, count)
    batch = static_shape(args[0].shape[:1])
    if batch is None or not batch[0]:
        raise b.unsupported("a symbolic or empty batch", "pin the dimension to 1 or more")
    down = node.attr("directions", (0,) * count)
    rows = []
    for n in range(batch[0]):
        own = [_row(b, v, 0, Const(n), f"batch{n}_{k}") for k, v in enumerate(args)]
        rows.append(_scan(b, body, own[:states], own[states:], [0] * count, down, [], [],
                          f"batch{n}_"))
    return results([stack(b, [r[k] for r in rows], 0, k) for k in range(len(rows[0]))])


@op("Scan", since=9)
def scan(node: Node, b: Builder) -> Result:
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    args = [b.tensor(i) for i in node.inputs]
    states = len(args) - _counted(b, args, count)
    inputs = args[states:]
    axes = [b.axis(a, v.rank) for a, v in zip(node.attr("scan_input_axes", (0,) * count), inputs)]
    return results(_scan(b, body, args[:states], inputs, axes,
                          node.attr("scan_input_directions", (0,) * count),
                          node.attr("scan_output_axes", ()),
                          node.attr("scan_output_directions", ())))


def _counted(b: Builder, args: Sized, count: int) -> int:
    """The number of scan inputs, known to fit the node and its body."""
    if not 1 <= count <= len(args) or len(b.node.attr("body").inputs) != len(args):
        raise b.bad(f"{count} scan inputs of {len(args)} do not fit the body")
    return count


def _scan(b: Builder, body: Body, state: Sequence[Value], inputs: Sequence[Val],
          axes: Sequence[int], down: Sequence[int], out_axes: Sequence[int],
          out_down: Sequence[int], tag: str = "") -> list[Value]:
    """The final states, then the gathered outputs."""
    lengths = static_shape(v.shape[a] for v, a in zip(inputs, axes))
    steps = None if lengths is None or len({*lengths}) != 1 else lengths[0]
    args = b, body, state, inputs, axes, down, out_axes, out_down
    if steps is None or steps * len(body.nodes) > FEW or not steps:
        made = attempt(b, lambda: _in_rounds(*args, tag))
        if not isinstance(made, AotcError):
            return made
        if steps is None or not 0 < steps <= MOST_UNROLLED:
            raise made
    return _unrolled(*args, steps, tag)


def _in_rounds(b: Builder, body: Body, state: Sequence[Value], inputs: Sequence[Val],
               axes: Sequence[int], down: Sequence[int], out_axes: Sequence[int],
               out_down: Sequence[int], tag: str) -> list[Value]:
    """The Scan's results as those of a region."""
    states, trip = [b.as_tensor(v) for v in state], inputs[0].shape[axes[0]]
    for v, a in zip(inputs, axes):
        b.require("eq", v.shape[a], trip, "scan inputs have as many entries")
    slices = [(_first(b, v, a, f"{tag}first{k}"), bool(back))
              for k, (v, a, back) in enumerate(zip(inputs, axes, down))]
    count = len(body.outputs) - len(states)
    back = [bool(out_down[k]) if k < len(out_down) else False for k in range(count)]
    ends = [out_axes[k] if k < len(out_axes) else 0 for k in range(count)]

    def one(turn: Expr, before: Sequence[Val], parts: Sequence[Val]) -> Made:
        vals = [b.as_tensor(v) for v in b.inline(body, (*before, *parts))]
        return vals[:len(states)], vals[len(states):], None
    # of one entry of a batch, the results are joined with others
    outs = [k if o and not tag and (k < len(states) or ends[k - len(states)] == 0) else None
            for k, o in enumerate(b.node.outputs)]
    lasts, wholes, _ = loop(b, f"{tag}scan", trip, states, slices, back, one, outs=outs)
    return [*lasts, *(v if a == 0 else _to_axis(b, v, b.axis(a, v.rank), len(states) + k)
                      for k, (v, a) in enumerate(zip(wholes, ends)))]


def _first(b: Builder, v: Val, axis: int, tag: str) -> Val:
    """``v`` with one of its axes in front of all others."""
    if axis == 0:
        return v
    return b.move(v, (v.shape[axis], *v.shape[:axis], *v.shape[axis + 1:]),
                  lambda i: (*i[1:axis + 1], i[0], *i[axis + 1:]), tag)


def _to_axis(b: Builder, v: Val, axis: int, out: int) -> Val:
    """``v`` with its first axis as axis ``axis`` of the node's output ``out``."""
    shape = (*v.shape[1:axis + 1], v.shape[0], *v.shape[axis + 1:])
    return b.move(v, shape, lambda i: (i[axis], *i[:axis], *i[axis + 1:]), out=out)


def _unrolled(b: Builder, body: Body, state: Sequence[Value], inputs: Sequence[Val],
              axes: Sequence[int], down: Sequence[int], out_axes: Sequence[int],
              out_down: Sequence[int], steps: int, tag: str) -> list[Value]:
    gathered: list[list[Value]] = [[] for _ in body.outputs[len(state):]]
    for t in range(steps):
        rows = [_row(b, v, a, Const(steps - 1 - t if back else t), f"{tag}in{k}_{t}")
                for k, (v, a, back) in enumerate(zip(inputs, axes, down))]
        outs = b.inline(body, (*state, *rows), f"{tag}step{t}")
        state = list(outs[:len(state)])
        for values, value in zip(gathered, outs[len(state):]):
            values.append(value)
    made: list[Value] = []
    for k, values in enumerate(gathered):
        back = out_down[k] if k < len(out_down) else 0
        axis = b.axis(out_axes[k] if k < len(out_axes) else 0, values[0].rank + 1)
        made.append(stack(b, values[::-1] if back else values, axis, len(state) + k))
    return [*state, *made]


def _row(b: Builder, v: Val, axis: int, at: Expr, tag: str) -> Val:
    """``v`` at one index of an axis, which disappears."""
    return b.move(v, v.shape[:axis] + v.shape[axis + 1:],
                  lambda i: i[:axis] + (at,) + i[axis:], tag)

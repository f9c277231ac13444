"""Control flow whose course is known while compiling: branches are chosen, loops are unrolled.

A sub-graph is built in place with its inputs bound to Vals.  Where a condition is data, both
branches of an If are computed and one is picked; a Loop whose number of rounds is data runs as many
rounds as its declared results have, and picks what each round leaves."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import expect, some
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Result, Val, Value
from aotc.frontend.graph import Body, Node, shorten
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.frontend.refusals import check_supported
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Binary, Const, Expr, Load, Unary, Where, compare, int_of, walk
from aotc.ir.program import static_shape
from aotc.ir.simplify import same, simplify

MAX_STEPS = 256  # unrolled code grows with every step


@dataclass(frozen=True)
class Rounds:
    """How a loop goes: ``steps`` rounds; ``known``: all of them run, else ``count`` and the
    conditions say at run time which do."""

    steps: int
    known: bool
    count: Val | None = None


@op("If")
def if_op(node: Node, b: Builder) -> Result:
    cond = _condition(b, b.input(0))
    branches = [node.attr(k) for k in ("then_branch", "else_branch")]
    known = b.scalar(cond)
    if known is not None:
        body = branches[0 if known else 1]
        check_supported(b.graph, body.nodes)
        return _results(b.inline(body, ()))
    check_supported(b.graph, [n for body in branches for n in body.nodes])
    one, two = (b.inline(body, ()) for body in branches)
    if len(one) != len(two):
        raise b.bad(f"branches with {len(one)} and {len(two)} outputs")
    picked = []
    for k, pair in enumerate(zip(one, two)):
        x, y = map(b.as_tensor, pair)
        if x.dtype != y.dtype or x.rank != y.rank or any(
                isinstance(simplify(d - e), Const) and not same(d, e)
                for d, e in zip(x.shape, y.shape)):
            kind = "is data" if b.known.is_data(cond) else "depends on extents"
            raise b.unsupported(f"branches that give {x} and {y} for a condition that {kind}",
                                _settled(b, cond))
        for d, e in zip(x.shape, y.shape):
            b.require("eq", d, e, "both branches of an If give the same shape")
        picked.append(_pick(b, cond, x, y, out=k))
    return _results(picked)


def _condition(b: Builder, v: Value) -> Val:
    """A condition, which is one bool."""
    v = b.as_tensor(v)
    if v.dtype != "bool" or v.size != 1:
        raise b.bad(f"the condition must be one bool, it is {v}")
    return v


def _settled(b: Builder, cond: Val) -> str:
    """What to do about a condition that is data: which inputs would settle it as constants."""
    if not b.known.is_data(cond):
        return "pin the dimensions that decide it"
    inputs = _sources(b, cond)
    if not inputs:
        return "make the condition constant"
    fixes = " ".join(f"--fix {shorten(i)}=VALUE" for i in inputs)
    keys = ", ".join(f"{i!r}: VALUE" for i in map(shorten, inputs))
    return (f"it depends on input {' and '.join(map(shorten, inputs))}: if that is a setting, make "
            f"it a constant with {fixes} (fix={{{keys}}})")


def _sources(b: Builder, v: Val) -> list[str]:
    """ONNX names of the model's inputs whose elements a Val depends on, in their order."""
    todo, seen = [n.buffer for n in walk(_element(b, v)) if isinstance(n, Load)], set()
    made = {o: s for s in b.steps for o in s.outs}
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += made[name].inputs if name in made else ()
    return [t.name for t in b.graph.inputs if b.preset[t.name] in seen]


def _results(vals: Sequence[Value]) -> Result:
    return tuple(vals) if len(vals) != 1 else vals[0]


def _pick(b: Builder, cond: Val, x: Val, y: Val, tag: str = "", out: int = 0) -> Val:
    """``x`` where the bool ``cond`` of one element is true, else ``y`` (of the same shape)."""
    zero = (Const(0),) * cond.rank
    return b.map(x.shape, lambda i: Where(b.at(cond, zero), b.at(x, i), b.at(y, i)),
                 [cond, x, y], tag, out)


# ---------------------------------------------------------------- Loop

@op("Loop")
def loop(node: Node, b: Builder) -> Result:
    body = node.attr("body")
    count, alive = b.arg(0), b.arg(1)
    state = [b.env[i] for i in node.inputs[2:]]
    if len(body.outputs) < 1 + len(state) or len(body.inputs) != 2 + len(state):
        raise b.bad("the body's inputs and outputs do not fit the loop's")
    alive = _condition(b, alive or b.const(np.array(True)))
    rounds = _rounds(b, count, alive, len(state))
    gathered: list[list[Value]] = [[] for _ in body.outputs[1 + len(state):]]
    runs, step = None, 0
    while step < rounds.steps:
        if b.scalar(alive) is not None and not b.scalar(alive):
            break
        runs = None if rounds.known and b.scalar(alive) else _runs(b, alive, rounds, step, runs)
        outs = b.inline(body, (b.const(np.array(step)), alive, *state), f"round{step}")
        state = [new if runs is None else _kept(b, runs, new, old, f"state{k}")
                 for k, (new, old) in enumerate(zip(outs[1:], state))]
        alive = _condition(b, outs[0])
        for values, value in zip(gathered, outs[1 + len(state):]):
            values.append(value)
        step += 1
    if rounds.steps == MAX_STEPS + 1 and step > MAX_STEPS:
        raise b.unsupported(f"a loop of more than {MAX_STEPS} rounds", "shorten it")
    if gathered and not (rounds.known and runs is None):
        fits = _fits(b, alive, rounds, step, runs)
        expect(b, [(some([b.at(fits, ())]), Const(1))],
               f"the data must give the declared {step} rounds; of this the data gives")
    return _results(state + [_stacked(b, values, k + len(state), body, k)
                             for k, values in enumerate(gathered)])


def _rounds(b: Builder, count: Val | None, alive: Val, states: int) -> Rounds:
    """The Rounds of a Loop; UnsupportedError where nothing bounds them."""
    known = None if count is None else b.scalar(count)
    if known is not None:
        if known > MAX_STEPS and b.scalar(alive) is not False:
            raise b.unsupported(f"a loop of {known} rounds", f"at most {MAX_STEPS} are unrolled")
        return Rounds(max(int(known), 0), True)
    if count is None:
        return Rounds(MAX_STEPS + 1, True)
    if len(b.node.outputs) <= states:
        whose = "is data" if b.known.is_data(count) else "depends on extents"
        raise b.unsupported(f"a loop whose number of rounds {whose} and that gathers nothing",
                            "make the number constant" + (
                                "" if whose == "is data" else ": pin the dimensions"))
    first = next(k for k, o in enumerate(b.node.outputs) if k >= states and o)
    steps = int_of(b.declared(first)[0])
    if steps > MAX_STEPS:
        raise b.unsupported(f"a loop of {steps} rounds", f"at most {MAX_STEPS} are unrolled")
    return Rounds(steps, False, count)


def _element(b: Builder, v: Val) -> Expr:
    return b.at(v, (Const(0),) * v.rank)


def _runs(b: Builder, alive: Val, rounds: Rounds, step: int, before: Val | None) -> Val:
    """A bool Val: round ``step`` runs."""
    sources = [v for v in (alive, rounds.count, before) if v is not None]

    def body(_: Index) -> Expr:
        e = _element(b, alive)
        if rounds.count is not None:
            e = Binary("and", e, compare("gt", cast(INDEX, _element(b, rounds.count)),
                                         Const(step)))
        return e if before is None else Binary("and", b.at(before, ()), e)
    return b.map((), body, sources, f"runs{step}")


def _kept(b: Builder, runs: Val, new: Value, old: Value, tag: str) -> Val:
    new, old = b.as_tensor(new), b.as_tensor(old)
    if new.dtype != old.dtype or static_shape(new.shape) != static_shape(old.shape):
        raise b.unsupported(f"a loop that changes {old} into {new} in a round that may not run",
                            "make the number of rounds constant")
    return _pick(b, runs, new, old, tag)


def _fits(b: Builder, alive: Val, rounds: Rounds, step: int, runs: Val | None) -> Val:
    """A bool Val: exactly ``step`` rounds ran."""
    more = _runs(b, alive, rounds, step, runs)
    if runs is None:
        return b.map((), lambda _: Unary("not", b.at(more, ())), [more], "fits")
    return b.map((), lambda _: Binary("and", b.at(runs, ()), Unary("not", b.at(more, ()))),
                 [runs, more], "fits")


def _stacked(b: Builder, values: Sequence[Value], out: int, body: Body, k: int) -> Val:
    """The rounds' values one after the other along a new first axis."""
    if not values:
        dtype, shape = body.types[out + 1]
        if dtype is None or shape is None:
            raise b.unsupported("a loop without rounds", "remove it")
        return b.const(np.zeros((0, *shape), dtype))
    return stack(b, values, 0, out)


def stack(b: Builder, values: Sequence[Value], axis: int, out: int = 0) -> Val:
    """Tensors of one shape along a new axis."""
    def row(v: Val) -> Val:
        return Val(v.shape[:axis] + (Const(1),) + v.shape[axis:], v.dtype,
                   fn=lambda i: b.at(v, i[:axis] + i[axis + 1:]))
    return concat(b, [row(b.as_tensor(v)) for v in values], axis, "stacked", out)


# ---------------------------------------------------------------- Scan

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
    return _results([stack(b, [r[k] for r in rows], 0, k) for k in range(len(rows[0]))])


@op("Scan", since=9)
def scan(node: Node, b: Builder) -> Result:
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    args = [b.tensor(i) for i in node.inputs]
    states = len(args) - _counted(b, args, count)
    inputs = args[states:]
    axes = [b.axis(a, v.rank) for a, v in zip(node.attr("scan_input_axes", (0,) * count), inputs)]
    return _results(_scan(b, body, args[:states], inputs, axes,
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
    if lengths is None or len({*lengths}) != 1 or not 0 < lengths[0] <= MAX_STEPS:
        raise b.unsupported("a scan over a symbolic, empty or very long axis",
                            f"pin it; at most {MAX_STEPS} steps are unrolled")
    steps = lengths[0]
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

"""Rows of the random graph generator: loops whose rounds read tensors around them at places that
the round says, so many rounds as an extent, a constant, an input or a condition says."""

import numpy as np
from onnx import TensorProto, helper
from onnx_graphs import info
from onnx_nodes import row

HUGE = np.iinfo(np.int64).max
# the place that a round reads, of nodes on the round "i", the last place "l" and constants
PLACES = (
    lambda: [("Identity", ["i"], "at")],
    lambda: [("Sub", ["l", "i"], "at")],
    lambda: [("Neg", ["i"], "ni"), ("Sub", ["ni", "one"], "at")],
    lambda: [("Sub", ["i", "one"], "at")],
    lambda: [("Div", ["i", "two"], "at")],
    lambda: [("Identity", ["c"], "at")])


def _scalar(name, dtype):
    return helper.make_tensor_value_info(name, dtype, ())


@row(2)
def loop_by_round(g):
    """The largest of the rows of a tensor, each of which is gathered, too."""
    x = g.pick(lambda v: v.array.dtype == np.float32 and v.array.ndim and 0 < v.array.size < 400)
    if x is None:
        return
    zero, one, two = (g.const(np.array(k)) for k in range(3))
    shape = g.add("Shape", [x], exact=True)
    count = g.add("Gather", [*shape, zero], exact=True) if shape else ()
    last = g.add("Sub", [*count, one], exact=True) if count else ()
    first = g.add("Gather", [x, zero], exact=True)
    flat = g.const(np.array([-1]))
    if not last or not first:
        return
    kind = g.rng.choice(("all", "less", "some", "while"))
    trip = {"all": count[0], "less": last[0], "while": g.const(np.array(HUGE)),
            "some": g.const(np.array(g.rng.randint(0, x.array.shape[0])))}[kind]
    names = {"l": last[0].name, "one": one.name, "two": two.name}
    for k in ("i", "more", "c", "c2", "s", "s2", "row", "go", "at", "ni", "xi", "e"):
        names[k] = g.name("s")

    def node(op, ins, out, **attrs):
        return helper.make_node(op, [names.get(i, i) for i in ins], [names[out]], **attrs)
    nodes = [node(*n) for n in g.rng.choice(PLACES)()]
    nodes += [node("Gather", [x.name, "at"], "xi"), node("Max", ["s", "xi"], "s2"),
              node("Reshape", ["xi", flat.name], "row"), node("Add", ["c", "one"], "c2")]
    nodes += [node("Less", ["c2", count[0].name], "go")] if kind == "while" else [
        node("Identity", ["more"], "go")]
    r = first[0].array
    body = helper.make_graph(
        nodes, "body", [_scalar(names["i"], TensorProto.INT64),
                        _scalar(names["more"], TensorProto.BOOL),
                        _scalar(names["c"], TensorProto.INT64), info(names["s"], r)],
        [_scalar(names["go"], TensorProto.BOOL), _scalar(names["c2"], TensorProto.INT64),
         info(names["s2"], r), info(names["row"], r.reshape(-1))])
    made = g.add("Loop", [trip, g.const(np.array(True)), zero, *first], 3, exact=True, body=body,
                 outer=[x, one, two, last[0], count[0], flat])
    if trip.name in g.parameters:
        g.declared.update(v.name for v in made)

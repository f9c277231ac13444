"""Attention over a cache that grows: keys and values of a call behind those of calls before."""

import numpy as np
from attention_forms import ELEMENTS
from onnx import TensorProto, helper

node, value = helper.make_node, helper.make_tensor_value_info
PAIRS = {"past.*": "present.*"}


def cached_attention(heads, groups, size=64, dtype="f16"):
    """y of q, new keys and values, past.k and past.v, with a mask of every score that is added."""
    element = ELEMENTS[dtype]
    shapes = {"q": [1, heads, "seq", size], "mask": [1, 1, "seq", "total"],
              **{f"new.{x}": [1, groups, "seq", size] for x in "kv"},
              **{f"past.{x}": [1, groups, "past", size] for x in "kv"}}
    whole = {f"present.{x}": [1, groups, "past + seq", size] for x in "kv"}
    nodes = [node("Concat", [f"past.{x}", f"new.{x}"], [f"present.{x}"], axis=2) for x in "kv"]
    for x in "kv":
        nodes += [node("Unsqueeze", [f"present.{x}", "two"], [f"{x}1"]),
                  node("Expand", [f"{x}1", "each"], [f"{x}2"]),
                  node("Reshape", [f"{x}2", "flat"], [f"{x}3"])]
    nodes += [node("Transpose", ["k3"], ["kt"], perm=[0, 1, 3, 2]),
              node("MatMul", ["q", "kt"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"]),
              node("Add", ["s1", "mask"], ["s2"]), node("Softmax", ["s2"], ["p"], axis=-1),
              node("MatMul", ["p", "v3"], ["y"])]
    ints = {"two": [2], "each": [1, 1, heads // groups, 1, 1], "flat": [1, heads, -1, size]}
    consts = [helper.make_tensor(n, TensorProto.INT64, [len(x)], x) for n, x in ints.items()]
    consts.append(helper.make_tensor("scale", element, [], [size**-0.5]))
    graph = helper.make_graph(
        nodes, "g", [value(n, element, s) for n, s in shapes.items()],
        [value("y", element, shapes["q"]), *(value(n, element, s) for n, s in whole.items())],
        consts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Cache:
    """A cache of ``capacity`` entries, NaN where there are none yet, and what calls should give."""

    def __init__(self, heads, groups, capacity, size=64, number=np.float16):
        self.heads, self.size, self.number = heads, size, number
        self.r = np.random.default_rng(7)
        self.past = {f"past.{x}": np.full((1, groups, capacity, size), np.nan, number)
                     for x in "kv"}
        self.known = {x: np.zeros((1, groups, 0, size), number) for x in "kv"}

    def _floats(self, *shape):
        return self.r.standard_normal(shape).astype(self.number)

    def fill(self, entries):
        """As many entries as if calls had brought them."""
        self.known = {x: self._floats(*self.known[x].shape[:2], entries, self.size) for x in "kv"}
        for x in "kv":
            self.past[f"past.{x}"][:, :, :entries] = self.known[x]

    def call(self, rows):
        """(inputs of a call of so many rows, its ``dims``, y in f64)."""
        at = self.known["k"].shape[2]
        new = {x: self._floats(*self.known[x].shape[:2], rows, self.size) for x in "kv"}
        self.known = {x: np.concatenate([self.known[x], new[x]], axis=2) for x in "kv"}
        q = self._floats(1, self.heads, rows, self.size)
        mask = np.where(np.tril(np.ones((rows, at + rows), bool), at), 0, -np.inf).astype(
            self.number)[None, None]
        k, v = (np.repeat(x.astype("f8"), self.heads // x.shape[1], axis=1)
                for x in self.known.values())
        s = q.astype("f8") @ k.swapaxes(2, 3) * self.size**-0.5 + mask.astype("f8")
        e = np.exp(s - s.max(axis=3, keepdims=True))
        feeds = {"q": q, "mask": mask, **{f"new.{x}": new[x] for x in "kv"}, **self.past}
        return feeds, {"past": at}, e / e.sum(axis=3, keepdims=True) @ v

    def is_right(self):
        """True if the caches hold what calls have brought, and nothing else."""
        return all((own[:, :, :there.shape[2]] == there).all()
                   and np.isnan(own[:, :, there.shape[2]:]).all()
                   for own, there in zip(self.past.values(), self.known.values()))


__all__ = ["PAIRS", "Cache", "cached_attention"]

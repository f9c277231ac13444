"""Attention as models spell it: masks, causal bounds, grouped heads, softcap, any sizes."""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper
from small_models import make_model

node = helper.make_node
ELEMENTS = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "f32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Form:
    """rows, keys: numbers of both, or names of free ones; size, columns: of a key and of a value
    (0: the same); heads, groups: of queries, and of keys; mask: "" for none, "added" of every key,
    "bias" of every score, "causal" or "kept", which takes the lowest number elsewhere; cap: of
    scores (0: none); turned: outputs have heads side by side."""

    rows: int | str = 64
    keys: int | str = 64
    size: int = 64
    columns: int = 0
    heads: int = 2
    groups: int = 0
    batch: int = 1
    mask: str = ""
    cap: float = 0.0
    turned: bool = False


def attention_form(form, dtype="f16"):
    """y of q, k, v and perhaps a mask, in a dtype."""
    f, element = form, ELEMENTS[dtype]
    groups, columns = f.groups or f.heads, f.columns or f.size
    inputs = {"q": (element, [f.batch, f.heads, f.rows, f.size]),
              "k": (element, [f.batch, groups, f.keys, f.size]),
              "v": (element, [f.batch, groups, f.keys, columns])}
    consts = {"scale": helper.make_tensor("scale", element, [], [f.size**-0.5])}
    tensors, nodes, k, v = {}, [], "k", "v"
    if groups != f.heads:
        tensors["wider"] = np.array([f.batch, f.heads, f.keys, f.size])
        tensors["split"] = np.array([f.batch, groups, 1, f.keys, f.size])
        tensors["each"] = np.array([f.batch, groups, f.heads // groups, f.keys, f.size])
        for x in "kv":
            nodes += [node("Reshape", [x, "split"], [f"{x}1"]),
                      node("Expand", [f"{x}1", "each"], [f"{x}2"]),
                      node("Reshape", [f"{x}2", "wider"], [f"{x}3"])]
        k, v = "k3", "v3"
    nodes += [node("Transpose", [k], ["kt"], perm=[0, 1, 3, 2]),
              node("MatMul", ["q", "kt"], ["s0"]), node("Mul", ["s0", "scale"], ["s1"])]
    last = "s1"
    if f.cap:
        consts["cap"] = helper.make_tensor("cap", element, [], [f.cap])
        nodes += [node("Div", [last, "cap"], ["c0"]), node("Tanh", ["c0"], ["c1"]),
                  node("Mul", ["c1", "cap"], ["c2"])]
        last = "c2"
    if f.mask in ("added", "bias"):
        inputs["mask"] = (element, [f.batch, 1, 1, f.keys] if f.mask == "added" else [
            1, f.heads, f.rows, f.keys])
        nodes.append(node("Add", [last, "mask"], ["s2"]))
        last = "s2"
    if f.mask in ("causal", "kept"):
        consts["low"] = helper.make_tensor("low", element, [], [
            -65504.0 if f.mask == "kept" else -np.inf])
        if f.mask == "kept":
            inputs["mask"] = (TensorProto.BOOL, [f.batch, 1, f.rows, f.keys])
        else:
            tensors["mask"] = np.tril(np.ones((f.rows, f.keys), bool), f.keys - f.rows)
        nodes.append(node("Where", ["mask", last, "low"], ["s2"]))
        last = "s2"
    nodes += [node("Softmax", [last], ["p"], axis=-1), node("MatMul", ["p", v], ["y0"])]
    shape = [f.batch, f.heads, f.rows, columns]
    if f.turned:
        nodes.append(node("Transpose", ["y0"], ["y"], perm=[0, 2, 1, 3]))
        shape = [f.batch, f.rows, f.heads, columns]
    else:
        nodes[-1].output[0] = "y"
    model = make_model(nodes, inputs, {"y": (element, shape)}, tensors)
    model.graph.initializer.extend(consts.values())
    return model


def attention_feeds(form, dtype="f16", seed=0, **extents):
    """Random inputs of ``attention_form``; extents: of free dimensions."""
    import ml_dtypes
    kinds = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
    r, f = np.random.default_rng(seed), form
    rows, keys = (extents.get(n, n) for n in (f.rows, f.keys))
    groups, columns = f.groups or f.heads, f.columns or f.size

    def floats(*shape):
        return r.standard_normal(shape).astype(kinds[dtype])
    feeds = {"q": floats(f.batch, f.heads, rows, f.size), "k": floats(
        f.batch, groups, keys, f.size), "v": floats(f.batch, groups, keys, columns)}
    if f.mask == "added":
        feeds["mask"] = np.where(r.random((f.batch, 1, 1, keys)) < 0.3, -1e4, 0).astype(
            kinds[dtype])
    if f.mask == "bias":
        feeds["mask"] = floats(1, f.heads, rows, keys)
    if f.mask == "kept":
        feeds["mask"] = r.random((f.batch, 1, rows, keys)) < 0.7
    return feeds


def exact_attention(form, feeds):
    """y in f64, by the formula."""
    q, k, v = (feeds[n].astype("f8") for n in "qkv")
    reps = form.heads // (form.groups or form.heads)
    k, v = (np.repeat(x, reps, axis=1) for x in (k, v))
    s = q @ k.swapaxes(2, 3) * form.size**-0.5
    rows, keys = s.shape[2:]
    if form.cap:
        s = np.tanh(s / form.cap) * form.cap
    if form.mask in ("added", "bias"):
        s = s + feeds["mask"].astype("f8")
    if form.mask == "kept":
        s = np.where(feeds["mask"], s, -65504.0)
    if form.mask == "causal":
        s = np.where(np.tril(np.ones((rows, keys), bool), keys - rows), s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(axis=3, keepdims=True))
        y = e / e.sum(axis=3, keepdims=True) @ v
    return y.swapaxes(1, 2) if form.turned else y


__all__ = ["Form", "attention_feeds", "attention_form", "exact_attention"]

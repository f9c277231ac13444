"""Data that gives another shape than the model declares: a fault that names the node, in the C code
too, whatever the values are, and before anything is read that is not there."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import aotc
from aotc.runtime.status import IndexFault, ShapeError

F32, I64 = np.float32, np.int64
END = np.iinfo(I64)
X = np.arange(24, dtype=F32).reshape(2, 3, 4)


def ints(*values):
    return np.array(values, I64)


# node: (operator, inputs, shapes of the results, attributes, values of inputs that are faults);
# the inputs are the model's, so all is data
ROWS = {
    "reshape": ("Reshape", [X, ints(4, -1)], [(4, 6)], {}, [
        {1: ints(-1, 4)}, {1: ints(4, 7)}, {1: ints(-1, -1)}, {1: ints(0, 12)},
        {1: ints(END.min, -1)}, {1: ints(1 << 62, -1)}]),
    "expand": ("Expand", [X[:, :1, :], ints(2, 3, 1)], [(2, 3, 4)], {}, [
        {1: ints(2, 2, 1)}, {1: ints(2, 3, 5)}, {1: ints(1, 1, 1)}, {1: ints(2, -3, 1)}]),
    "tile": ("Tile", [X, ints(2, 1, 3)], [(4, 3, 12)], {}, [
        {1: ints(1, 1, 3)}, {1: ints(2, 1, END.min)}, {1: ints((1 << 62) + 2, 1, 3)},
        {1: ints(-2, -1, 3)}]),
    "split": ("Split", [X, ints(1, 2)], [(2, 1, 4), (2, 2, 4)], dict(axis=1), [
        {1: ints(2, 1)}, {1: ints(-1, 4)}, {1: ints(END.max, END.min)}]),
    "pad": ("Pad", [X[0], ints(1, 0, 0, 2)], [(4, 6)], {}, [
        {1: ints(1, 0, 0, 1)}, {1: ints(END.min, 0, END.min, 2)}, {1: ints(0, 1, 0, 2)}]),
    "pad_reflect": ("Pad", [X[0], ints(1, 0, 0, 2)], [(4, 6)], dict(mode="reflect"), [
        {1: ints(1, 0, 0, 1)}, {1: ints(END.max, 0, 0, END.max)}]),
    "constant": ("ConstantOfShape", [ints(2, 3)], [(2, 3)], {}, [
        {0: ints(3, 2)}, {0: ints(2, END.max)}, {0: ints(-2, -3)}]),
    "one_hot": ("OneHot", [ints(0, 2), np.array(3), np.array([0, 1], F32)], [(2, 3)], {}, [
        {1: np.array(4)}, {1: np.array(-3)}]),
    "top_k": ("TopK", [X, ints(2)], [(2, 3, 2)] * 2, {}, [
        {1: ints(3)}, {1: ints(5)}, {1: ints(-1)}]),
    "slice": ("Slice", [X[0], ints(1), ints(3), ints(1), ints(1)], [(3, 2)], {}, [
        {1: ints(0)}, {2: ints(END.max)}, {3: ints(0)}, {3: ints(2)}, {4: ints(0)},
        {4: ints(END.min)}]),
    "range": ("Range", [np.array(1, I64), np.array(7, I64), np.array(2, I64)], [(3,)], {}, [
        {1: np.array(8, I64)}, {2: np.array(0, I64)}, {2: np.array(-2, I64)},
        {0: np.array(END.min), 1: np.array(END.max), 2: np.array(1, I64)}]),
    "range_f": ("Range", [F32(0), F32(1), F32(0.5)], [(2,)], {}, [
        {1: F32(9)}, {1: F32(np.nan)}, {2: F32(0)}, {2: F32(np.inf)}]),
    "unsqueeze": ("Unsqueeze", [X, ints(1)], [(2, 1, 3, 4)], {}, [{1: ints(0)}, {1: ints(9)}]),
    "squeeze": ("Squeeze", [X[:, None], ints(1)], [(2, 3, 4)], {}, [{1: ints(0)}, {1: ints(-9)}]),
    "reduce": ("ReduceSum", [X, ints(1)], [(2, 1, 4)], {}, [{1: ints(0)}, {1: ints(END.min)}]),
    "reduce_max": ("ReduceMax", [X, ints(0, 2)], [(3,)], dict(keepdims=0), [
        {1: ints(0, 1)}, {1: ints(2, 2)}]),
    "cumsum": ("CumSum", [X, np.array(1, I64)], [X.shape], {}, [{1: np.array(5, I64)}]),
    "centre": ("CenterCropPad", [X[0], ints(5, 2)], [(5, 2)], {}, [
        {1: ints(5, 3)}, {1: ints(END.min, 2)}]),
    "col2im": ("Col2Im", [np.ones((1, 4, 4), F32), ints(3, 3), ints(2, 2)], [(1, 1, 3, 3)], {}, [
        {1: ints(3, 4)}, {2: ints(1, 4)}, {2: ints(0, 2)}, {2: ints(END.min, 2)}]),
    "sizes": ("Resize", [X[None], None, None, ints(1, 2, 6, 2)], [(1, 2, 6, 2)], {}, [
        {3: ints(1, 2, 6, 3)}, {3: ints(1, 2, -6, 2)}, {3: ints(1, 2, 0, 2)}]),
    "scales": ("Resize", [X[None], None, np.array([1, 1, 2, 0.5], F32)], [(1, 2, 6, 2)],
               dict(mode="linear"), [{2: np.array([1, 1, 2, bad], F32)} for bad in (
                   1, 0, -1, np.nan, np.inf)]),
    "grid": ("AffineGrid", [np.ones((1, 2, 3), F32), ints(1, 1, 2, 3)], [(1, 2, 3, 2)], {}, [
        {1: ints(1, 1, 3, 2)}, {1: ints(2, 1, 2, 3)}]),
    "unpool": ("MaxUnpool", [np.ones((1, 1, 1, 2), F32), ints(0, 3).reshape(1, 1, 1, 2),
                             ints(1, 1, 2, 4)], [(1, 1, 2, 4)],
               dict(kernel_shape=[2, 2], strides=[2, 2]), [{2: ints(1, 1, 4, 2)}]),
    "nonzero": ("NonZero", [np.array([0, 1, 1], F32)], [(1, 2)], {}, [
        {0: np.zeros(3, F32)}, {0: np.ones(3, F32)}]),
    "compress": ("Compress", [X[0], np.array([True, False, True])], [(2, 4)], dict(axis=0), [
        {1: np.zeros(3, bool)}, {1: np.ones(3, bool)}]),
    "unique": ("Unique", [np.array([2, 1, 2], F32)], [(2,)], {}, [{0: np.ones(3, F32)}]),
    "nothing": ("Reshape", [X[:0], ints(0, 3)], [(0, 3)], {}, [{1: ints(3, 0)}]),
    "empty": ("ConstantOfShape", [ints(0, 3)], [(0, 3)], {}, [{0: ints(1, 3)}]),
}


IN_NUMBERS = ("sizes", "scales")  # extents of images that data resizes are declared in numbers
OF_NAMED = ("Unsqueeze", "Squeeze", "ReduceSum", "CumSum")  # of inputs whose extents have names too


def model_of_rows(named):
    """(model, feeds): all rows in one graph, every input its own.  named: extents of 2 are declared
    as ``n``, the extent of an input of its own."""
    nodes, infos, outs, feeds = [], [], [], {}
    for name, (op, arrays, shapes, attributes, _) in ROWS.items():
        if named and name not in IN_NUMBERS:
            shapes = [["n" if d == 2 else d for d in s] for s in shapes]
        ins = ["" if a is None else f"{name}_{k}" for k, a in enumerate(arrays)]
        made = [f"{name}_out{k}" for k in range(len(shapes))]
        nodes.append(helper.make_node(op, ins, made, name=f"node_{name}", **attributes))
        feeds |= {n: np.asarray(a) for n, a in zip(ins, arrays) if n}
        kinds = {"TopK": (F32, I64), "NonZero": (I64,), "Range": (np.asarray(arrays[0]).dtype,),
                 "ConstantOfShape": (F32,), "OneHot": (F32,)}.get(op, (F32,) * len(shapes))
        outs += [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(d)), s)
                 for n, d, s in zip(made, kinds, shapes)]
    if named:
        feeds["some"] = np.zeros(2, F32)
    whole = {n.input[0] for n in nodes if named and n.op_type in OF_NAMED} | {"some"}
    infos = [helper.make_tensor_value_info(
        n, helper.np_dtype_to_tensor_dtype(a.dtype),
        ["n" if d == 2 and n in whole else d for d in a.shape]) for n, a in feeds.items()]
    graph = helper.make_graph(nodes, "rows", infos, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                             ir_version=9), feeds


@pytest.fixture(scope="module", params=[False, True], ids=["numbers", "names"])
def compiled(tmp_path_factory, request):
    model, feeds = model_of_rows(request.param)
    bundle = aotc.compile(model, tmp_path_factory.mktemp("declared") / "b", name="rows",
                          target="c")
    return model, feeds, bundle.load()


def test_what_is_declared_is_computed(compiled):
    model, feeds, loaded = compiled
    got = loaded.run(feeds)
    for info, want in zip(model.graph.output, ReferenceEvaluator(model).run(None, feeds)):
        np.testing.assert_allclose(got[info.name], want, rtol=1e-5, atol=1e-5,
                                   err_msg=info.name)


@pytest.mark.parametrize("row", ROWS)
def test_what_is_not_declared_is_a_fault(compiled, row):
    _, feeds, loaded = compiled
    for bad in ROWS[row][4]:
        with pytest.raises(ShapeError, match=rf"shape mismatch: node_{row} \(.*, not ") as found:
            loaded.run(feeds | {f"{row}_{k}": np.asarray(a) for k, a in bad.items()})
        assert found.value.status == "AOTC_SHAPE_MISMATCH", bad
    loaded.run(feeds)  # and the model goes on


def test_an_index_fault_names_its_own_node(tmp_path):
    """Not all nodes of the kernel that they are computed in."""
    ids, nodes = ("a", "b"), []
    for k, i in enumerate(ids):
        nodes.append(helper.make_node("Gather", ["x", i], [f"g{k}"], name=f"look_{i}"))
        nodes.append(helper.make_node("Exp", [f"g{k}"], [f"e{k}"], name=f"exp_{i}"))
    nodes.append(helper.make_node("Add", ["e0", "e1"], ["y"], name="sum"))
    value, kind = helper.make_tensor_value_info, {F32: 1, I64: 7}
    graph = helper.make_graph(nodes, "g", [value("x", kind[F32], [5, 4]), *(
        value(i, kind[I64], [3]) for i in ids)], [value("y", kind[F32], [3, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    loaded = aotc.compile(model, tmp_path / "b", name="g", target="c").load()
    feeds = {"x": np.ones((5, 4), F32), "a": ints(0, 1, -5), "b": ints(4, 1, 0)}
    loaded.run(feeds)
    for i in ids:
        for bad in (5, -6, END.min, END.max):
            with pytest.raises(IndexFault, match=rf"look_{i} \(Gather\).* is not in 0..4") as told:
                loaded.run(feeds | {i: ints(0, bad, 1)})
            assert "exp" not in str(told.value)

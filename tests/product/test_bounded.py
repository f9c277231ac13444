"""What takes bounded time whatever a model or a file says: each case in a process of its own that
has 20 s of CPU time, a bundle or one error at its end."""

import os
import resource
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import AotcError, ModelError

SECONDS = 20  # of CPU time
COMPILE = ("import sys, aotc\n"
           "try: aotc.compile(sys.argv[1], out=sys.argv[2], target='c')\n"
           "except aotc.AotcError as err: print('refused:', err)\n"
           "else: print('compiled')\n")


def model(nodes, shape, dtype=TensorProto.FLOAT, consts=None, made=TensorProto.FLOAT):
    """Of one input x and one output y."""
    graph = helper.make_graph(
        [helper.make_node(op, ins.split(), outs.split(), **attrs)
         for op, ins, outs, attrs in nodes],
        "g", [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", made, None)],
        [v if isinstance(v, TensorProto) else numpy_helper.from_array(np.array(v), k)
         for k, v in (consts or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(length, *ops):
    """So many nodes behind each other, of ``ops`` in turns; x is a second operand of Add."""
    names = ["x", *(f"t{k}" for k in range(1, length)), "y"]
    return model([(ops[k % len(ops)], names[k] + (" x" if ops[k % len(ops)] == "Add" else ""),
                   names[k + 1], {}) for k in range(length)], [4, 8])


def pooled(op, size, **attrs):
    return model([(op, "x", "y", dict(kernel_shape=[size, size], **attrs))], ["n", 1, "h", "w"])


def grams(pool, gaps):
    """Pairs of neighbours of a pool of tokens, up to so many places apart."""
    flat = [*range(pool), *(t for k in range(pool) for t in (k, k + 1))]
    return model([("TfIdfVectorizer", "x", "y", dict(
        mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=gaps,
        ngram_counts=[0, pool], ngram_indexes=list(range(2 * pool)), pool_int64s=flat))],
        ["n"], TensorProto.INT64)


def text_of(length):
    text = helper.make_tensor("w", TensorProto.STRING, [1], [b"a" * length])
    return model([("Equal", "x w", "y", {})], ["n"], TensorProto.STRING, {"w": text},
                 TensorProto.BOOL)


def grown(*ops):
    """Extents of n * 2^60, and what is made of them."""
    return model([("Shape", "x", "s", {}), ("Mul", "s c", "m", {}), *ops], ["n"],
                 consts={"c": [1 << 60]})


CASES = {
    "cumulative sums": lambda: model([("CumSum", "x a", "y", {})], ["b", 64000], consts={"a": 1}),
    "a chain of maps": lambda: chain(4096, "Relu"),
    "a chain of sums with its input": lambda: chain(4096, "Add"),
    "a chain of moves and folds": lambda: chain(1024, "Transpose", "Softmax"),
    "a long text": lambda: text_of(1_000_000),
    "a large window": lambda: pooled("MaxPool", 100_000),
    "a large padded window": lambda: pooled("AveragePool", 100_000, pads=[50_000] * 4),
    "a large pool of n-grams": lambda: grams(50_000, 0),
    "wide gaps in n-grams": lambda: grams(5, 50_000),
    "a tensor beyond memory": lambda: grown(("Expand", "x m", "y", {})),
    "a fold beyond memory": lambda: grown(("Expand", "x m", "t", {}), ("ReduceSum", "t", "y", {})),
    "extents beyond 64 bits": lambda: grown(("Mul", "m c", "k", {}), (
        "Cast", "k", "y", dict(to=TensorProto.FLOAT))),
    "extents that shrink again": lambda: grown(("Div", "m c", "k", {}), (
        "Reshape", "x k", "y", {})),
}
REFUSED = {"a tensor beyond memory": "more than 1 TB", "a fold beyond memory": "more than 1 TB",
           "extents beyond 64 bits": "shape arithmetic beyond 64 bits"}


def _limited():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


@pytest.mark.product
@pytest.mark.parametrize("case", CASES)
def test_compiling_takes_bounded_time(case, tmp_path):
    onnx.save(CASES[case](), tmp_path / "m.onnx")
    run = subprocess.run([sys.executable, "-c", COMPILE, tmp_path / "m.onnx", tmp_path / "b"],
                         capture_output=True, text=True, preexec_fn=_limited)
    assert run.returncode == 0, f"{case}: {run.stderr[-500:]}"
    assert run.stdout.startswith("refused" if case in REFUSED else "compiled"), run.stdout
    assert REFUSED.get(case, "") in run.stdout


def test_cumulative_sums_are_as_many_steps_as_elements(tmp_path):
    """No compute of the plan goes over all pairs of elements."""
    from aotc.ir.program import flops
    from aotc.ir.simplify import upper
    from aotc.options import Options
    from aotc.pipeline import run_pipeline
    for n in (64000, 640000):
        m = model([("CumSum", "x a", "y", {})], [n], consts={"a": 0})
        program = run_pipeline(Options(m, target="c", stop_after="inline")).program
        assert sum(upper(flops(s)) for s in program.steps) < 100 * n


@pytest.mark.parametrize("mapped", (False, True))
def test_a_pipe_is_no_model(mapped, tmp_path):
    from aotc.frontend import load_model
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="is a pipe or a device: write the model to a file"):
        load_model(tmp_path / "m.onnx", mapped)
    with pytest.raises(ModelError, match="is a pipe or a device"):
        load_model("/dev/null", mapped)


def test_a_pipe_holds_no_external_data(tmp_path):
    m = model([("Add", "x w", "y", {})], [4], consts={"w": np.zeros(4, np.float32)})
    onnx.save(m, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)
    (tmp_path / "w.bin").unlink()
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="'w.bin', which is missing"):
        aotc.compile(tmp_path / "m.onnx", out=tmp_path / "b", target="c")


def test_a_pipe_holds_no_weights(tmp_path):
    """The call returns: of a pipe it does not wait for who writes."""
    m = model([("MatMul", "x w", "y", {})], [4, 4], consts={"w": np.ones((4, 4), np.float32)})
    bundle = aotc.compile(m, out=tmp_path / "b", target="c", name="net")
    bundle.load()
    weights = tmp_path / "b" / "net_weights.bin"
    weights.unlink()
    os.mkfifo(weights)
    found = []

    def opened():
        try:
            bundle.load()
        except AotcError as err:
            found.append(str(err))
    thread = threading.Thread(target=opened, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and found and "weights missing" in found[0], found


LEAST = -(1 << 63)


@pytest.mark.parametrize("extent", ("n", 3))
@pytest.mark.parametrize("nodes,consts,want", [
    ([("Mul", "s c", "y", {})], {"c": [LEAST]}, LEAST),
    ([("Add", "s c", "y", {})], {"c": [LEAST]}, LEAST + 3),
    ([("Add", "s c", "y", {})], {"c": [LEAST + 1]}, LEAST + 4),
    ([("Mul", "s z", "a", {}), ("Add", "a c", "b", {}), ("Neg", "b", "y", {})],
     {"c": [LEAST], "z": [0]}, LEAST),
    ([("Mul", "s z", "a", {}), ("Add", "a c", "b", {}), ("Abs", "b", "y", {})],
     {"c": [LEAST], "z": [0]}, LEAST),
    ([("Mod", "s c", "y", {})], {"c": [LEAST]}, LEAST + 3),
])
def test_shape_arithmetic_has_64_bits(nodes, consts, want, extent, tmp_path):
    m = model([("Shape", "x", "s", {}), *nodes], [extent], consts=consts, made=TensorProto.INT64)
    got = aotc.compile(m, out=tmp_path / "b", target="c").load().run({"x": np.zeros(3, np.float32)})
    assert got["y"].tolist() == [want]


@pytest.mark.product
def test_the_size_of_an_arena_does_not_wrap(tmp_path):
    """More extents or workers never need less; what no machine has is 0."""
    m = model([("MatMul", "x w", "m", {}), ("Softmax", "m", "s", {}), ("MatMul", "s v", "y", {})],
              ["n", 17], consts={"w": np.ones((17, 37), np.float32),
                                 "v": np.ones((37, 19), np.float32)})
    loaded = aotc.compile(m, out=tmp_path / "b").load()
    size, ffi = loaded._library.function("arena_size_of"), loaded._ffi
    for workers in (1, 16, 1024, (1 << 31) - 1):
        sizes = [size(ffi.new("int64_t[]", [int(2 ** (e / 8))]), workers)
                 for e in range(8 * 10, 8 * 62)]
        some = [n for n in sizes if n]
        assert some == sorted(some) and sizes[:len(some)] == some and not any(sizes[len(some):])

"""Connecting by cost from ONNX on: what is written in other operators becomes the same groups, and
the command line shows what was decided."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from small_models import make_model

import aotc
from aotc.cli import main
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.report.summary import pattern

F32 = TensorProto.FLOAT
SEQ, WIDTH = 96, 64


def block(softmax="one", norm="one", dense="Gemm", mask="", keys="after"):
    """x + attention(layernorm(x)) with one head, written in the operators asked for.  mask: none,
    ``Where``, ``Add`` or both (a bias made of a mask); keys: transposed ``after`` or ``before``
    their projection."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    tensors = {n: (rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32) for n in "qkv"}
    tensors |= {f"b{n}": rng.standard_normal(WIDTH).astype(np.float32) for n in "qkv"}
    tensors |= {"scale": np.ones(WIDTH, np.float32), "shift": np.zeros(WIDTH, np.float32),
                "eps": np.float32(1e-5), "two": np.float32(2.0), "last": np.array([-1])}
    nodes = []
    if norm == "one":
        nodes.append(node("LayerNormalization", ["x", "scale", "shift"], ["n"], axis=-1,
                          epsilon=1e-5))
    else:
        nodes += [node("ReduceMean", ["x"], ["mean"], axes=[-1]),
                  node("Sub", ["x", "mean"], ["c"]), node("Pow", ["c", "two"], ["c2"]),
                  node("ReduceMean", ["c2"], ["var"], axes=[-1]),
                  node("Add", ["var", "eps"], ["ve"]), node("Sqrt", ["ve"], ["std"]),
                  node("Div", ["c", "std"], ["d"]), node("Mul", ["d", "scale"], ["e"]),
                  node("Add", ["e", "shift"], ["n"])]
    for n in "qkv":
        nodes += [node("Gemm", ["n", n, f"b{n}"], [f"p{n}"])] if dense == "Gemm" else [
            node("MatMul", ["n", n], [f"m{n}"]), node("Add", [f"m{n}", f"b{n}"], [f"p{n}"])]
    if keys == "after":
        nodes.append(node("Transpose", ["pk"], ["kt"], perm=[1, 0]))
    else:
        tensors |= {"k_t": np.ascontiguousarray(tensors["k"].T), "bk_t": tensors["bk"][:, None]}
        nodes = [n for n in nodes if not {"pk", "mk"} & set(n.output)] + [
            node("Transpose", ["n"], ["nt"], perm=[1, 0]),
            node("MatMul", ["k_t", "nt"], ["kt0"]), node("Add", ["kt0", "bk_t"], ["kt"])]
    nodes.append(node("MatMul", ["pq", "kt"], ["s0" if mask else "s"]))
    tensors |= {"low": np.float32(-1e9), "zero": np.float32(0)}
    nodes += {"": [], "Where": [node("Where", ["mask", "s0", "low"], ["s"])],
              "Add": [node("Add", ["s0", "bias"], ["s"])],
              "both": [node("Where", ["mask", "zero", "low"], ["bias0"]),
                       node("Add", ["s0", "bias0"], ["s"])]}[mask]
    if softmax == "one":
        nodes.append(node("Softmax", ["s"], ["a"], axis=-1))
    else:
        nodes += [node("ReduceMax", ["s"], ["top"], axes=[-1]), node("Sub", ["s", "top"], ["l"]),
                  node("Exp", ["l"], ["w"]), node("ReduceSum", ["w", "last"], ["sum"]),
                  node("Div", ["w", "sum"], ["a"])]
    nodes += [node("MatMul", ["a", "pv"], ["o"]), node("Add", ["o", "x"], ["y"])]
    used = {i for n in nodes for i in n.input}
    inputs = {"x": (F32, [SEQ, WIDTH])} | {
        n: (t, [SEQ, SEQ]) for n, t in (("mask", TensorProto.BOOL), ("bias", F32)) if n in used}
    return make_model(nodes, inputs, {"y": (F32, [SEQ, WIDTH])},
                      {k: t for k, t in tensors.items() if k in used})


def decided(model):
    work = run_pipeline(Options(model, target="x86-64-v3", stop_after="schedule", connect="all"))
    return work.program, work.schedule


def shapes(model):
    """Sorted folds of every group: what is independent of how maps are spelled."""
    program, schedule = decided(model)
    return sorted(tuple(sorted(c.fold for c in (program.producer[n] for n in g.computes)
                               if c.fold != "none")) for g in schedule.groups)


def test_attention_is_found_however_it_is_written():
    want = shapes(block())
    assert shapes(block(softmax="written", dense="MatMul")) == want
    program, schedule = decided(block(norm="written"))
    assert len(schedule.groups) == len(decided(block())[1].groups)


def test_masks_and_moved_transposes_change_no_group():
    assert shapes(block(keys="before")) == shapes(block())
    want = shapes(block(mask="Where"))
    for mask in ("Add", "both"):
        assert shapes(block(mask=mask)) == want, mask


@pytest.mark.parametrize("spelling", [{}, {"softmax": "written", "norm": "written"},
                                      {"mask": "Where"}, {"mask": "Add", "keys": "before"}])
def test_no_scores_are_stored(spelling):
    program, schedule = decided(block(**spelling))
    kept = {o for g in schedule.groups for o in g.outputs}
    square = {b for b in kept if [str(d) for d in program.shape(b)].count(str(SEQ)) == 2}
    assert not square
    assert any(pattern(program, g)[1] >= 4 for g in schedule.groups)


def test_show_and_compile_take_connect(tmp_path, capsys):
    path = tmp_path / "block.onnx"
    onnx.save(block(), path)
    found = {}
    for how in ("none", "register", "all"):
        assert main(["show", str(path), "schedule", "--json", "--connect", how,
                     "--target", "c"]) == 0
        found[how] = json.loads(capsys.readouterr().out)["summary"]
        assert set(found[how]) >= {"kernels", "stored_bytes", "memory_bytes", "patterns"}
    for key in ("kernels", "stored_bytes"):
        assert found["none"][key] >= found["register"][key] > found["all"][key]
    s = tmp_path / "s.json"
    assert main(["compile", str(path), "-o", str(tmp_path / "b"), "--target", "c",
                 "--connect", "all", "--schedule-out", str(s)]) == 0
    assert f"{found['all']['kernels']} kernels" in capsys.readouterr().out
    assert main(["compile", str(path), "-o", str(tmp_path / "again"), "--target", "c",
                 "--schedule", str(s)]) == 0
    for file in ("block.c", "block_kernels_1.c"):
        assert (tmp_path / "b" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_a_shown_schedule_replays_with_its_summary(tmp_path, capsys):
    path = tmp_path / "block.onnx"
    onnx.save(block(), path)
    assert main(["show", str(path), "schedule", "--json", "--target", "c"]) == 0
    s = tmp_path / "s.json"
    s.write_text(capsys.readouterr().out)
    assert main(["compile", str(path), "-o", str(tmp_path / "b"), "--target", "c", "--schedule",
                 str(s)]) == 0


def test_a_stage_of_two_outputs_inside_a_group(tmp_path):
    """The positions of maxima stay in scratch; their window lies in one row after the moves."""
    model = make_model(
        [helper.make_node("DepthToSpace", ["x"], ["d"], blocksize=2, mode="CRD"),
         helper.make_node("MaxPool", ["d"], ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]),
         helper.make_node("MaxUnpool", ["p", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        {"x": (F32, [1, 4, 4, 6])}, {"y": (F32, [1, 1, 8, 12])})
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 6)).astype(np.float32)
    wanted, = ReferenceEvaluator(model).run(None, {"x": x})
    for how in ("none", "all"):
        bundle = aotc.compile(model, tmp_path / how, target="c", connect=how)
        np.testing.assert_array_equal(bundle.load().run({"x": x})["y"], wanted)

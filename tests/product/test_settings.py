"""Inputs that are settings: fixed ones, and initializers that a caller may replace."""

import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import aotc
from aotc.cli import main
from aotc.tools.verify import verify

# the branches differ in rank, and the one for 8 kHz has an operator that nobody knows
BY_RATE = """<ir_version: 8, opset_import: ["" : 17, "of.mine" : 1]>
g (float[1, n] x, int64 sr, float[k] gain) => (float[?] y) {
  rate = Constant <value = int64 {16000}> ()
  fast = Equal (sr, rate)
  z = If (fast) <
    then_branch = t () => (float[1, n] a) { a = Mul (x, x) },
    else_branch = e () => (float[n] b) {
      ax = Constant <value = int64[1] {0}> ()
      bb = Squeeze (x, ax)
      b = UNKNOWN (bb) }>
  total = ReduceSum <keepdims = 0> (gain)
  y = Mul (z, total)
}"""


def by_rate(unknown="of.mine.Odd"):
    return parser.parse_model(BY_RATE.replace("UNKNOWN", unknown))


def overridable(listed, ir_version=8, **tensors):
    """y = x + sum of the initializers, of which the ``listed`` ones are inputs, too."""
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
             for n, a in tensors.items()}
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Sum", ["x", *tensors], ["y"])], "g",
                              [x, *(infos[n] for n in listed)], [y],
                              [numpy_helper.from_array(a, n) for n, a in tensors.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=ir_version)


def row(*values):
    return np.array(values, np.float32)


def test_a_fixed_input_decides_which_branch_there_is(tmp_path):
    x, gain = row(1, 2, 3)[None], row(1, 2)
    bundle = aotc.compile(by_rate(), tmp_path / "b", target="c",
                          fix={"sr": 16000, "gain": gain})
    model = bundle.load()
    np.testing.assert_array_equal(model.run([x])["y"], 3 * x * x)
    assert bundle.manifest["fixed"]["sr"]["value"] == 16000
    assert [i.name for i in model.inputs] == ["x"] and len(bundle.manifest["symbols"]) == 1
    with pytest.raises(ValueError, match="sr was fixed when compiling.*--fix sr"):
        model.run({"x": x, "sr": np.int64(16000)})
    with pytest.raises(aotc.UnsupportedError, match="of.mine.Odd"):
        aotc.compile(by_rate(), tmp_path / "c", target="c", fix={"sr": 8000})


def test_branches_that_do_not_fit_propose_the_input_to_fix(tmp_path):
    with pytest.raises(aotc.UnsupportedError, match=r"input sr.*--fix sr=VALUE \(fix={'sr'"):
        aotc.compile(by_rate("Neg"), tmp_path / "b", target="c")
    other = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x, bool[1] c) => (float[?] y) {
          d = Not (c)
          y = If (d) <then_branch = t () => (float[4] a) { a = Neg (x) },
                      else_branch = e () => (float[8] b) { b = Concat <axis = 0> (x, x) }>
        }""")
    free = aotc.compile(other, tmp_path / "b", target="c").load()  # the larger has room
    for value, wanted in ((True, row(1, 2, 3, 4, 1, 2, 3, 4)), (False, row(-1, -2, -3, -4))):
        np.testing.assert_array_equal(free.run([row(1, 2, 3, 4), np.array([value])])["y"], wanted)
    for value, size in ((True, 8), ([False], 4), (np.array([0]), 4)):
        model = aotc.compile(other, tmp_path / "b", target="c", fix={"c": value}).load()
        assert model.run([row(1, 2, 3, 4)])["y"].shape == (size,)


def test_what_is_fixed_fits_its_input(tmp_path):
    np.save(tmp_path / "gain.npy", np.arange(5))
    model = aotc.compile(by_rate("Neg"), tmp_path / "b", target="c",
                         fix={"sr": 8000, "gain": str(tmp_path / "gain.npy")}).load()
    np.testing.assert_array_equal(model.run([row(1, 2)[None]])["y"], row(-10, -20))
    for fix, text in (({"sr": 0.5}, "i64, 0.5 is no such value"), ({"sr": [1, 2]}, "the shape"),
                      ({"rate": 1}, "no input 'rate'; it has: x, sr, gain"),
                      ({"sr": None}, "no value of its own"), ({"sr": "fast"}, "neither a number")):
        with pytest.raises(aotc.ModelError, match=text):
            aotc.compile(by_rate("Neg"), tmp_path / "c", target="c", fix=fix)
    with pytest.raises(aotc.ModelError, match="makes dimension 'n' 3, but it is given"):
        aotc.compile(shared_extent(), tmp_path / "c", target="c", dims={"n": 2},
                     fix={"b": [1, 2, 3]})


def shared_extent():
    return parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] a, float[n] b) => (float[n] y) { y = Add (a, b) }""")


def test_the_command_line_fixes_too(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(shared_extent(), path)
    assert main(["compile", str(path), "-o", str(tmp_path / "b"), "--target", "c",
                 "--fix", "b=1,2,3"]) == 0
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["fixed"]["b"][
        "value"] == [1, 2, 3]
    assert main(["show", str(path), "integers", "--target", "c", "--fix", "b=[1,2]"]) == 0
    assert "sym" not in capsys.readouterr().out  # n is 2
    assert main(["compile", str(path), "--stop-after", "integers", "--target", "c"]) == 0
    with pytest.raises(SystemExit):
        main(["compile", str(path), "--fix", "b=high"])
    results = verify(path, "c", fix={"b": [1, 2, 3]}, report=lambda line: None)
    assert results and all(m.ok for _, m in results)


def test_an_initializer_that_is_an_input_may_be_fed(tmp_path):
    model = overridable(["w"], w=row(1, 2, 3), v=row(10, 10, 10))
    bundle = aotc.compile(model, tmp_path / "b", target="c")
    loaded, x = bundle.load(), row(0, 0, 1)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], row(11, 12, 14))
    np.testing.assert_array_equal(loaded.run([x])["y"], row(11, 12, 14))
    np.testing.assert_array_equal(loaded.run({"x": x, "w": row(5, 5, 5)})["y"], row(15, 15, 16))
    np.testing.assert_array_equal(loaded.run([x, row(5, 5, 5)])["y"], row(15, 15, 16))
    fixed = aotc.compile(model, tmp_path / "c", target="c", fix={"w": None}).load()
    assert [i.name for i in fixed.inputs] == ["x"]
    old = aotc.compile(overridable(["w"], 3, w=row(1, 2, 3)), tmp_path / "d", target="c").load()
    with pytest.raises(ValueError, match="w is an initializer.*--input-default w"):
        old.run({"x": x, "w": x})


def test_of_many_initializers_listed_as_inputs_none_is_one_unless_asked(tmp_path):
    tensors = {f"w{k}": row(k, k, k) for k in range(6)}
    model = overridable(tensors, **tensors)
    held = aotc.compile(model, tmp_path / "b", target="c")
    assert [i.name for i in held.load().inputs] == ["x"]
    assert held.manifest["held"] == list(tensors)
    asked = aotc.compile(model, tmp_path / "b", target="c", input_default=["w5"]).load()
    np.testing.assert_array_equal(asked.run({"x": row(0, 0, 0)})["y"], row(15, 15, 15))
    np.testing.assert_array_equal(asked.run({"x": row(0, 0, 0), "w5": row(0, 0, 0)})["y"],
                                  row(10, 10, 10))
    with pytest.raises(aotc.ModelError, match="no initializer of that name.*w0"):
        aotc.compile(model, tmp_path / "c", target="c", input_default=["x"])


def test_an_initializer_that_must_be_known_stays_a_constant(tmp_path):
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[6] x, int64[2] to) => (float[?, ?] y) <int64[2] to = {2, 3}> {
          y = Reshape (x, to) }""")
    loaded = aotc.compile(model, tmp_path / "b", target="c").load()
    assert loaded.run([np.zeros(6, np.float32)])["y"].shape == (2, 3)


PROGRAM = r"""
#include "app.hpp"
#include <cstdio>
#include <cstdlib>
#include <vector>
static int refusals = 0;
void *operator new(std::size_t n, std::align_val_t a)
{
    if (refusals > 0) { refusals--; throw std::bad_alloc(); }
    return std::aligned_alloc(static_cast<std::size_t>(a), (n + 63) / 64 * 64);
}
void operator delete(void *p, std::align_val_t) noexcept { std::free(p); }
int main()
{
    app::model weights;
    if (weights.open() != AOTC_OK) return 1;
    app::session s(weights);
    std::vector<float> x = {0, 0, 1}, w = {5, 5, 5}, y(3);
    const std::vector<float> none;
    refusals = 1;
    try { (void)s.run(x, w, y); return 2; } catch (const std::bad_alloc &) {}
    if (s.run(x, w, y) != AOTC_OK || y[2] != 16) return 3;
    if (s.run(x, none, y) != AOTC_OK || y[2] != 14) return 4;
    return s.run(x, std::vector<float>(2), y) == AOTC_BAD_SHAPE ? 0 : 5;
}
"""


def test_c_takes_null_for_a_default_and_cpp_goes_on_after_bad_alloc(tmp_path):
    bundle = aotc.compile(overridable(["w"], w=row(1, 2, 3), v=row(10, 10, 10)), tmp_path / "b",
                          target="c", name="app", weights="embed")
    assert "null: its default" in (bundle.path / "app.h").read_text()
    (tmp_path / "main.cpp").write_text(PROGRAM)
    for command in (["gcc", "-std=c11", "-O1", "-c", *sorted(
            str(p) for p in bundle.path.glob("*.c") if not p.name.startswith("test_"))],
                    ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{bundle.path}",
                     "main.cpp", *(p.with_suffix(".o").name for p in bundle.path.glob("*.c")
                                   if not p.name.startswith("test_")), "-lm", "-pthread", "-o",
                     "main"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "main"]).returncode == 0

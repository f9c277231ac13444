"""Names, paths and texts that try to mean something to C, Make, CMake, JSON, a shell or a path."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hostile_names import HOSTILE, hostile_feeds, hostile_model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, save

import aotc
from aotc.errors import FaultError, ModelError
from aotc.frontend.graph import shorten

F32 = TensorProto.FLOAT


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """(bundle folder, its parent): both the model's path and the bundle's are hostile too."""
    root = tmp_path_factory.mktemp("host ile 'x' $(touch pwned) \"q\"")
    path = root / "mo del*;'\"$(touch pwned)`x` #{{y}}.onnx"
    save(hostile_model(), path)
    out = root / "out 'dir' \"q\" $HOME;&"
    return aotc.compile(path, out, target="c", dims=dict.fromkeys(HOSTILE[:6], (1, 4))), root


def test_runs_and_keeps_the_original_names(hostile):
    bundle, root = hostile
    model = bundle.load()
    assert [t.name for t in model.inputs] == HOSTILE
    assert [t.name for t in model.outputs] == [f"out {t}" for t in HOSTILE]
    feeds = hostile_feeds(3)
    for k, (name, got) in enumerate(model.run(feeds).items()):
        assert np.array_equal(got, np.maximum(feeds[HOSTILE[k]] * (k + 1), 0)), name
    assert not list(root.rglob("pwned"))


def test_the_c_interface_and_the_manifest_tell_them(hostile):
    bundle, _ = hostile
    model = bundle.load()
    info = model._library.function("info")()
    string = model._ffi.string
    assert [string(info.inputs[k].name).decode() for k in range(info.input_count)] == HOSTILE
    assert [string(info.symbols[k].name).decode() for k in range(info.symbol_count)] == [
        s["name"] for s in bundle.manifest["symbols"]]
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    assert [t["onnx"] for t in manifest["inputs"]] == HOSTILE
    names = [t["c"] for t in manifest["inputs"] + manifest["outputs"] + manifest["symbols"]]
    assert len({n.lower() for n in names}) == len(names)
    assert [string(info.inputs[k].c_name).decode() for k in range(info.input_count)] == [
        t["c"] for t in manifest["inputs"]]


def test_texts_are_plain(hostile):
    """Text files other than JSON are ASCII; no line of C is longer than the names it shows."""
    bundle, root = hostile
    for path in bundle.path.iterdir():
        if path.is_file() and path.suffix != ".bin":
            text = path.read_bytes()
            assert text.isascii(), path.name
            assert str(root).encode() not in text, path.name


@pytest.mark.product
def test_make_and_cmake_build_it(hostile, tmp_path):
    """Both build systems, in a folder with spaces, quotes and shell characters in its path (make
    cannot name such a path in a rule, so its rules are relative)."""
    bundle, _ = hostile
    folder = shutil.copytree(bundle.path, tmp_path / "a 'b' $(touch pwned) \"c\"")
    done = subprocess.run(["make", "-s", "test"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stderr[-2000:]
    assert not list(tmp_path.rglob("pwned"))
    if shutil.which("cmake") is None:
        pytest.skip("not installed: cmake")
    plain = shutil.copytree(bundle.path, tmp_path / "with space")
    subprocess.run(["cmake", "-S", str(plain), "-B", str(tmp_path / "work")], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(tmp_path / "work")], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["ctest"], cwd=tmp_path / "work", check=True, stdout=subprocess.DEVNULL)


def test_cpp_header_with_such_names(hostile, tmp_path):
    bundle, _ = hostile
    name = bundle.manifest["name"]
    (tmp_path / "x.cpp").write_text(f'#include "{name}.hpp"\n')
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror",
                    "-I", str(bundle.path), "-fsyntax-only", str(tmp_path / "x.cpp")], check=True)


def _lookups():
    """Three tables looked up by nodes with hostile names, one of 5000 characters."""
    names = ["*/ \n\" ??/ {{ x }}", "n" * 5000, "张量"]
    value, i64 = helper.make_tensor_value_info, TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node("Gather", [f"t{k}", f"i{k}"], [f"y{k}"], name=n)
         for k, n in enumerate(names)], "g",
        [value(f"i{k}", i64, [4]) for k in range(3)],
        [value(f"y{k}", F32, [4, 5]) for k in range(3)],
        [numpy_helper.from_array(np.ones((3, 5), np.float32) * k, f"t{k}") for k in range(3)])
    return names, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                    ir_version=8)


def test_a_fault_names_the_node_whatever_its_name(tmp_path):
    """As errors of the compiler name it: on one line, a long name by its beginning and end."""
    names, model = _lookups()
    bundle = aotc.compile(model, tmp_path / "b", target="c", name="lookups")
    for k, name in enumerate(names):
        feeds = {f"i{j}": np.zeros(4, np.int64) for j in range(3)}
        feeds[f"i{k}"][2] = 99
        with pytest.raises(FaultError) as found:
            bundle.load().run(feeds)
        assert f"{shorten(name)} (Gather): " in str(found.value)
        assert "99 is not in 0..2" in str(found.value)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.text(
    "*/\\\"'`$(){}%#?<>&|;:=@!~^ \n\t_aZ9", min_size=1, max_size=20)


@pytest.mark.product
@settings(max_examples=40, deadline=None)
@given(st.lists(NAMES, min_size=6, max_size=6, unique=True), NAMES, NAMES)
def test_random_names(names, path, label):
    """x, w, m, y, the dimension and the node are called anything; the folder too."""
    x, w, m, y, dim, node = names
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", [x, w], [m], name=node), helper.make_node("Relu", [m], [y])],
        label, [value(x, F32, [dim, 3])], [value(y, F32, [dim, 3])],
        [numpy_helper.from_array(np.full(3, 2, np.float32), w)], doc_string=label)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as root:
        out = Path(root) / (path.replace("/", "_").replace("\0", "_").strip(".") or "x")[:40]
        # no range: what stands for no name ("?") is none that one can be given
        bundle = aotc.compile(model, out, target="c")
        for file in bundle.manifest["build"]["others"] + [
                f for part in bundle.manifest["build"]["kernels"] for f in part["files"]]:
            subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Wtrigraphs", "-pedantic",
                            "-Werror", "-fsyntax-only", file], cwd=out, check=True)
        done = subprocess.run(["make", "-s", "test"], cwd=out, capture_output=True, text=True,
                              env=dict(os.environ, CFLAGS="-O0"))
        assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stderr[-1000:]
        assert bundle.manifest["inputs"][0]["onnx"] == x


@pytest.mark.parametrize("location", ["/etc/hostname", "../secret.bin", "sub/../../secret.bin"])
def test_external_data_outside_the_folder_is_refused(location, tmp_path):
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    tensor = TensorProto(name="w", data_type=F32, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g",
                              [value("x", F32, [3])], [value("y", F32, [3])], [tensor])
    (folder / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(ModelError, match="outside the folder"):
        aotc.compile(folder / "m.onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()

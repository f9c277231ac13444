"""Ways into a user's program: make, CMake in place and installed, pkg-config, linked-in weights."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from small_models import dense

import aotc
from aotc.runtime.loading import load

# One line per output: how many elements and their sum, from inputs 0, 1/8, 2/8, ...
MAIN = r"""
#include <NAME.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv)
{
    NAME::model m;
    NAME::pool threads(2);
    const aotc_status status = argc > 1 ? m.open(argv[1]) : m.open();
    if (status != AOTC_OK || threads.status() != AOTC_OK) {
        std::fprintf(stderr, "%s\n", NAME_strerror(status));
        return 1;
    }
    NAME::session s(m, threads.get());
    std::vector<float> x(7 * 8), y(7 * 4);
    for (std::size_t i = 0; i < x.size(); i++) x[i] = float(i) / 8;
    if (s.run(7, x, {y.data(), 27}) != AOTC_BAD_SHAPE) return 2;
    if (std::string(s.detail()) != "y") return 3;
    if (s.run(41, x, y) != AOTC_BAD_DIMENSION) return 4;
    if (s.run(7, x, y) != AOTC_OK) return 5;
    for (const float v : y) std::printf("%a ", double(v));
    std::printf("\n%s %d\n", NAME::model::info().name, NAME::model::info().symbol_count);
    return 0;
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(user LANGUAGES C CXX)
FIND
add_executable(user main.cpp)
target_compile_features(user PRIVATE cxx_std_17)
target_compile_options(user PRIVATE -Wall -Wextra -Wconversion -Wshadow -pedantic -Werror)
target_link_libraries(user PRIVATE dense::dense)
file(WRITE "${CMAKE_BINARY_DIR}/weights.txt" "${dense_WEIGHTS_FILE}")
"""


@pytest.fixture
def user(bundle, tmp_path):
    """(folder with main.cpp, the bytes it should print)."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "main.cpp").write_text(
        "#include <string>\n" + MAIN.replace("NAME", "dense"))
    model = load(bundle("dense"))
    y = model.run([np.arange(56, dtype=np.float32).reshape(7, 8) / 8])["y"]
    return tmp_path / "user", y


def _check(command, want, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, (done.returncode, done.stderr)
    numbers, about = done.stdout.splitlines()
    got = np.array([float.fromhex(w) for w in numbers.split()], np.float32)
    assert got.tobytes() == want.tobytes() and about == "dense 1"


def _quiet(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _needs(*tools):
    missing = [t for t in tools if shutil.which(t) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.parametrize("weights", [
    "file", pytest.param("embed", marks=pytest.mark.product)])
def test_add_subdirectory(bundle, user, weights, tmp_path):
    _needs("cmake")
    folder, want = user
    bundle_folder = bundle("dense", "native", weights)
    (folder / "CMakeLists.txt").write_text(
        CMAKE.replace("FIND", f'add_subdirectory("{bundle_folder}" dense)'))
    _quiet("cmake", "-S", str(folder), "-B", str(tmp_path / "build"))
    _quiet("cmake", "--build", str(tmp_path / "build"))
    path = (tmp_path / "build" / "weights.txt").read_text()
    assert bool(path) == (weights == "file")
    _check([str(tmp_path / "build" / "user"), *([path] if path else [])], want)


@pytest.mark.product
@pytest.mark.parametrize("shared, target", [
    ("ON", "native"), ("ON", "x86-64"), ("OFF", "native")])
def test_installed_moved_and_found(bundle, user, shared, target, tmp_path):
    """find_package works where the installation was moved to, without the bundle."""
    _needs("cmake")
    folder, want = user
    copy = shutil.copytree(bundle("dense", target), tmp_path / "bundle")
    _quiet("cmake", "-S", str(copy), "-B", str(tmp_path / "b"), f"-DBUILD_SHARED_LIBS={shared}")
    _quiet("cmake", "--build", str(tmp_path / "b"))
    _quiet("ctest", cwd=tmp_path / "b")
    _quiet("cmake", "--install", str(tmp_path / "b"), "--prefix", str(tmp_path / "first"))
    shutil.rmtree(copy)
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "first").rename(tmp_path / "moved here")
    (folder / "CMakeLists.txt").write_text(
        CMAKE.replace("FIND", "find_package(dense 1.0 CONFIG REQUIRED)"))
    _quiet("cmake", "-S", str(folder), "-B", str(tmp_path / "build"),
           f"-DCMAKE_PREFIX_PATH={tmp_path / 'moved here'}")
    _quiet("cmake", "--build", str(tmp_path / "build"))
    path = (tmp_path / "build" / "weights.txt").read_text()
    assert path.startswith(str(tmp_path / "moved here"))
    _check([str(tmp_path / "build" / "user"), path], want)


def test_make_install_and_pkg_config(bundle, user, tmp_path):
    _needs("pkg-config")
    folder, want = user
    copy = shutil.copytree(bundle("dense"), tmp_path / "bundle")
    _quiet("make", "-s", "install", f"DESTDIR={tmp_path}/stage", "PREFIX=/pre/fix", cwd=copy)
    (tmp_path / "stage" / "pre" / "fix").rename(tmp_path / "root")
    env = dict(os.environ, PKG_CONFIG_PATH=str(tmp_path / "root" / "lib" / "pkgconfig"))
    flags = _quiet("pkg-config", "--cflags", "--libs", "--static", "dense", env=env).split()
    path = _quiet("pkg-config", "--variable=weights", "dense", env=env).strip()
    shared = ["-Wl,-rpath," + str(tmp_path / "root" / "lib")]
    _quiet("g++", "-std=c++17", str(folder / "main.cpp"), *flags, *shared, "-o",
           str(tmp_path / "user-program"))
    _check([str(tmp_path / "user-program"), path], want)
    found = {p.name for p in (tmp_path / "root").rglob("*") if p.is_file()}
    assert found == {"dense.h", "dense.hpp", "aotc_rt.h", "libdense.a", "libdense.so", "dense.pc",
                     "libdense.so.1", "libdense.so.1.0.0", "dense_weights.bin", "manifest.json",
                     "LICENSE-NOTE"}


@pytest.mark.parametrize("name, written_out", [
    ("dense", True), pytest.param("wide", False, marks=pytest.mark.product)])
def test_linked_in_weights(bundle_copy, name, written_out, tmp_path):
    """Small images are C text, larger ones a file that the assembler includes; both are checked
    like a file, and the library needs no file."""
    folder = bundle_copy(name, "native", "embed")
    assert (folder / f"{name}_weights.bin").exists() != written_out
    out = _quiet("make", "-s", "test", cwd=folder)
    assert out.endswith("passed\n")
    model = load(folder)
    if shutil.which("cmake") and not written_out:
        _quiet("cmake", "-S", str(folder), "-B", str(tmp_path / "b"))
        _quiet("cmake", "--build", str(tmp_path / "b"))
        _quiet("ctest", cwd=tmp_path / "b")
    if not written_out:
        (folder / f"{name}_weights.bin").unlink()
        before = load_bits(model, folder)
        assert before and np.isfinite(before[0]).all()


def load_bits(model, folder):
    """Outputs for zeros; the weights are in the library, so the folder may have lost its file."""
    feeds = [np.zeros([d if isinstance(d, int) else d.lo for d in t.shape], t.dtype)
             for t in model.inputs]
    return list(model.run(feeds).values())


def test_a_damaged_linked_in_image_is_noticed(bundle_copy):
    folder = bundle_copy("dense", "c", "embed")
    path = folder / "dense_image.c"
    rows = path.read_text().split("\n")
    at = next(k for k, row in enumerate(rows) if row.startswith("    0x")) + 4
    rows[at] = re.sub(r"0x.", "0x1" if rows[at][6] != "1" else "0x2", rows[at], count=1)
    path.write_text("\n".join(rows))
    done = subprocess.run(["make", "-s", "test"], cwd=folder, capture_output=True, text=True)
    assert done.returncode and "damaged" in done.stderr


def test_manifest_and_c_interface_agree(bundle):
    """The manifest and the functions of the C interface tell the same."""
    folder = bundle("attention", "x86-64")
    model = load(folder)
    info, text = model._library.function("info")(), model._ffi.string
    manifest = json.loads((folder / "manifest.json").read_text())
    assert text(info.name).decode() == manifest["name"]
    for fact in ("model_hash", "weights_hash"):
        assert text(getattr(info, fact)).decode() == manifest[fact]
    for fact in ("weights_bytes", "arena_bytes_max", "slab_bytes_per_worker"):
        assert getattr(info, fact) == manifest[fact]
    rows = [(v["target"], v["schedule_hash"]) for v in manifest["variants"]]
    assert rows == [(text(info.variants[k].target).decode(),
                     text(info.variants[k].schedule_hash).decode())
                    for k in range(info.variant_count)]
    assert [(s["name"], s["c"], s["lo"], s["hi"]) for s in manifest["symbols"]] == [
        (text(s.name).decode(), text(s.c_name).decode(), s.lo, s.hi)
        for s in (info.symbols[k] for k in range(info.symbol_count))]
    assert info.format_version == manifest["aotc_bundle"]


def test_shared_libraries_export_the_interface_alone(bundle_copy):
    """What the header declares, no kernel; programs look for it by its first number."""
    folder = bundle_copy("wide", "x86-64", "embed")
    _quiet("make", "-s", cwd=folder)
    symbols = _quiet("nm", "-D", "--defined-only", "libwide.so", cwd=folder)
    exported = {line.split()[-1] for line in symbols.splitlines()}
    listed = set((folder / "wide.def").read_text().replace(" DATA", "").split()[1:])
    assert exported == listed and {"wide_run", "wide_weights_open", "wide_untouched"} <= exported
    assert "libwide.so.1]" in _quiet("readelf", "-d", "libwide.so", cwd=folder)


def test_the_version_of_a_bundle(tmp_path):
    folder = aotc.compile(dense(), tmp_path / "b", name="dense", target="c",
                          bundle_version="3.2").path
    _quiet("make", "-s", "install", f"PREFIX={tmp_path}/root", cwd=folder)
    assert os.readlink(tmp_path / "root/lib/libdense.so.3") == "libdense.so.3.2"
    assert '#define DENSE_VERSION "3.2"' in (folder / "dense.h").read_text()
    assert json.loads((folder / "manifest.json").read_text())["version"] == "3.2"
    with pytest.raises(aotc.AotcError, match="numbers, as in 2.1.0"):
        aotc.compile(dense(), tmp_path / "c", bundle_version="v3")
    assert not (tmp_path / "c").exists()

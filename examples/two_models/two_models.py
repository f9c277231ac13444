"""Two versions of a model in one C++ program, linked through CMake, served from two threads.

    python examples/two_models/two_models.py --out demo-two

Exit code 0 only if both networks classify every test image as scikit-learn does, linked in place
(add_subdirectory) and installed (find_package).
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import save
from sklearn.neural_network import MLPClassifier

import aotc

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "digits"))
from train import data, to_onnx  # noqa: E402  (the first example's model)

NETWORKS = {"wide": (64, 32), "narrow": (16,)}


def write_bundles(folder):
    """Train both networks and compile them into ``folder``; returns (classifiers, images)."""
    images, test, labels, _ = data()
    nets = {}
    for name, hidden in NETWORKS.items():
        nets[name] = MLPClassifier(hidden_layer_sizes=hidden, max_iter=600, random_state=0)
        nets[name].fit(images / 16, labels)
        save(to_onnx(nets[name]), folder / f"{name}.onnx")
        aotc.compile(folder / f"{name}.onnx", folder / name, dims={"batch": (1, 64)})
    return nets, test


def cmake(folder, work, *options):
    """Configure and build the CMake project ``folder`` in ``work``."""
    subprocess.run(["cmake", "-S", str(folder), "-B", str(work), "-DCMAKE_BUILD_TYPE=Release",
                    *options], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(work)], check=True, stdout=subprocess.DEVNULL)


def serve(work, images):
    """The two rows of digits that the program in ``work`` prints."""
    images.astype("<f4").tofile(work / "images.f32")
    done = subprocess.run([str(work / "serve"), str(work / "images.f32")], check=True,
                          capture_output=True, text=True)
    return [np.array(list(line), np.int64) for line in done.stdout.split()]


def main():
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo-two", type=Path, help="folder for all that is made")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    nets, images = write_bundles(out)
    expected = [net.predict(images / 16) for net in nets.values()]

    cmake(HERE, out / "in_place", f"-DBUNDLES={out}")
    for name in NETWORKS:
        cmake(out / name, out / f"build_{name}", "-DBUILD_SHARED_LIBS=ON")
        subprocess.run(["cmake", "--install", str(out / f"build_{name}"), "--prefix",
                        str(out / "installed")], check=True, stdout=subprocess.DEVNULL)
    cmake(HERE, out / "from_packages", "-DINSTALLED=ON", f"-DCMAKE_PREFIX_PATH={out}/installed")

    same = True
    for work in ("in_place", "from_packages"):
        for name, want, got in zip(nets, expected, serve(out / work, images)):
            equal = np.array_equal(want, got)
            print(f"{work}: {name}, {len(got)} images, same as scikit-learn: {equal}")
            same = same and equal
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

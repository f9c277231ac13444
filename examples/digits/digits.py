"""The whole way on real data: train, write ONNX, compile, build, classify from Python and C++.

    python examples/digits/digits.py --out demo

Exit code 0 only if both programs classify every test image as scikit-learn does.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from train import write_model

import aotc

HERE = Path(__file__).resolve().parent


def classify_in_python(bundle, images):
    """(digits, seconds per image) from the bundle loaded into this process."""
    model = bundle.load(threads=1)
    call = model.bind({"images": images})
    digits = call()["digit"].copy()
    start = time.perf_counter()
    for _ in range(100):
        call()
    return digits, (time.perf_counter() - start) / 100 / len(images)


def classify_in_cpp(bundle, images, folder):
    """Digits printed by classify.cpp, built against the bundle's header and static library."""
    images.astype("<f4").tofile(folder / "images.f32")
    program = folder / "classify"
    subprocess.run(["make", "-s", "-C", str(bundle.path), "libdigits.a"], check=True)
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-Wall", "-Wextra",
                    "-Werror", "-I", str(bundle.path), str(HERE / "classify.cpp"),
                    str(bundle.path / "libdigits.a"), "-pthread", "-lm", "-o", str(program)],
                   check=True)
    done = subprocess.run([str(program), str(bundle.path / "digits_weights.bin"),
                           str(folder / "images.f32")], check=True, capture_output=True,
                          text=True)
    return np.array(done.stdout.split(), np.int64)


def main():
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo", type=Path, help="folder for all that is made")
    parser.add_argument("--target", default="native")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    net, images, labels = write_model(args.out / "digits.onnx")
    expected = net.predict(images / 16)
    print(f"trained: scikit-learn accuracy {np.mean(expected == labels):.4f} on "
          f"{len(images)} test images")

    start = time.perf_counter()
    bundle = aotc.compile(args.out / "digits.onnx", out=args.out / "bundle",
                          target=args.target, dims={"batch": (1, 1024)})
    print(f"compiled to {bundle.path} in {time.perf_counter() - start:.2f} s")

    digits, seconds = classify_in_python(bundle, images)
    print(f"Python: accuracy {np.mean(digits == labels):.4f}, {seconds * 1e6:.2f} us per image, "
          f"same as scikit-learn: {np.array_equal(digits, expected)}")
    from_cpp = classify_in_cpp(bundle, images, args.out)
    print(f"C++:    accuracy {np.mean(from_cpp == labels):.4f}, "
          f"same as scikit-learn: {np.array_equal(from_cpp, expected)}")
    return 0 if np.array_equal(digits, expected) and np.array_equal(from_cpp, expected) else 1


if __name__ == "__main__":
    sys.exit(main())

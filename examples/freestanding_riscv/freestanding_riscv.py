"""The digits classifier on a 64-bit RISC-V core with vectors and no operating system, under
qemu-system-riscv64.

    python examples/freestanding_riscv/freestanding_riscv.py --out demo-riscv

Exit code 0 only if the program links without a single library and classifies every test image as
scikit-learn does, at every vector length; 77 if a tool is missing.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import aotc

HERE = Path(__file__).resolve().parent
BOARD = HERE.parent / "freestanding"  # main.c and board.h are those of the microcontroller
sys.path[:0] = [str(HERE.parent / "digits"), str(BOARD)]

from freestanding import MISSING_TOOL, write_images  # noqa: E402  (examples beside this one)
from train import write_model  # noqa: E402

CC, AR, QEMU = "clang-19", "riscv64-linux-gnu-ar", "qemu-system-riscv64"
PACKAGES = ("clang-19", "lld-19", "gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross",
            "qemu-system-misc")
# of the C library its headers alone; code and data lie where 32 bits reach from where they are used
CPU = ("--target=riscv64-linux-gnu", "-march=rv64gcv", "-mcmodel=medany")
STRICT = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-ffreestanding")
VLENS = (128, 256, 1024)


def missing_tools():
    """What has to be installed first: commands, and the header string.h for the cross compiler."""
    missing = [tool for tool in (CC, AR, "ld.lld-19", QEMU) if shutil.which(tool) is None]
    if not missing and subprocess.run([CC, *CPU, "-fsyntax-only", "-xc", "-"], capture_output=True,
                                      input=b"#include <string.h>\n").returncode:
        missing.append(f"string.h for {CC}")
    return missing


def link(bundle, folder, main=BOARD / "main.c"):
    """The program as an ELF file: the bundle's static library, main and board.c, no more."""
    subprocess.run(["make", "-s", "-C", str(bundle), "static", "FREESTANDING=1",
                    "CC=" + " ".join((CC, *CPU)), f"AR={AR}",
                    "CFLAGS=-O2 -Wall -Wextra -Werror"], check=True)
    program = folder / "classify.elf"
    subprocess.run([CC, *STRICT, *CPU, "-fno-builtin", "-nostdlib", "-static", "-fuse-ld=lld-19",
                    f"-I{bundle}", f"-I{folder}", f"-I{BOARD}", "-T", str(HERE / "board.ld"),
                    str(main), str(HERE / "board.c"), *map(str, bundle.glob("lib*.a")), "-o",
                    str(program)], check=True)
    return program


def emulate(program, vlen, word=int):
    """Words that the program prints on an emulated machine with vectors of so many bits."""
    done = subprocess.run([QEMU, "-M", "virt", "-cpu", f"rv64,v=true,vext_spec=v1.0,vlen={vlen},"
                           "elen=64", "-bios", "none", "-nographic", "-kernel", str(program)],
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{program} failed (exit status {done.returncode}):\n{done.stdout[-2000:]}"
                 f"{done.stderr[-2000:]}")
    return [word(w) for w in done.stdout.split()]


def run_example():
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo-riscv", type=Path, help="folder for all it makes")
    args = parser.parse_args()
    if missing_tools():
        print(f"not found: {', '.join(missing_tools())} (Debian: {', '.join(PACKAGES)})")
        return MISSING_TOOL
    args.out.mkdir(parents=True, exist_ok=True)
    net, images, labels = write_model(args.out / "digits.onnx")
    expected = net.predict(images / 16)
    bundle = aotc.compile(args.out / "digits.onnx", out=args.out / "bundle", target="riscv64",
                          dims={"batch": (1, 16)}, weights="embed")
    write_images(images, args.out / "images.h")
    program = link(bundle.path, args.out)
    wrong = 0
    for vlen in VLENS:
        digits = emulate(program, vlen)
        same = np.array_equal(digits, expected)
        wrong += not same
        right = np.mean(np.equal(digits, labels))
        print(f"VLEN {vlen}: accuracy {right:.4f} on {len(images)} images, same as scikit-learn: "
              f"{same}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run_example())

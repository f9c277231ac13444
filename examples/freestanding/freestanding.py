"""The digits classifier on a Cortex-M7 without an operating system, under qemu-system-arm.

    python examples/freestanding/freestanding.py --out demo-m7

Exit code 0 only if the program links without a single library and classifies every test image as
scikit-learn does; 77 if a tool is missing.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import aotc

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "digits"))

from train import write_model  # noqa: E402  (the example beside this one)

CC, AR, QEMU = "arm-none-eabi-gcc", "arm-none-eabi-ar", "qemu-system-arm"
CPU = ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16")
STRICT = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-ffreestanding")
MISSING_TOOL = 77  # the exit code by which test programs say "skipped"


def missing_tools():
    """What has to be installed first: commands, and the header string.h for the cross compiler."""
    missing = [tool for tool in (CC, AR, QEMU) if shutil.which(tool) is None]
    if not missing and subprocess.run([CC, *CPU, "-fsyntax-only", "-xc", "-"], capture_output=True,
                                      input=b"#include <string.h>\n").returncode:
        missing.append(f"string.h for {CC}")
    return missing


def write_images(images, path):
    """C array of the images f32[n, 64], whose values are the whole numbers 0..16."""
    whole = images.astype(np.uint8)
    assert np.array_equal(whole, images)
    rows = ",\n".join("    {" + ", ".join(map(str, row)) + "}" for row in whole)
    path.write_text("#include <stdint.h>\n\n"
                    f"enum {{ IMAGES = {len(whole)} }};\n"
                    f"static const uint8_t images[IMAGES][64] = {{\n{rows}\n}};\n")


def link(bundle, folder):
    """The program as an ELF file: the bundle's static library, main.c and board.c; of libraries
    only the compiler's own (64-bit division), no C library and no libm."""
    subprocess.run(["make", "-s", "-C", str(bundle), "static", "FREESTANDING=1", f"CC={CC}",
                    f"AR={AR}", "CFLAGS=" + " ".join(("-O2", "-Wall", "-Wextra", "-Werror", *CPU))],
                   check=True)
    program = folder / "classify.elf"
    subprocess.run([CC, *STRICT, *CPU, "-fno-tree-loop-distribute-patterns", "-nostdlib",
                    f"-I{bundle}", f"-I{folder}", "-T", str(HERE / "board.ld"),
                    str(HERE / "main.c"), str(HERE / "board.c"), str(bundle / "libdigits.a"),
                    "-lgcc", "-o", str(program)], check=True)
    return program


def emulate(program):
    """Digits printed by the program on an emulated board."""
    done = subprocess.run([QEMU, "-M", "mps2-an500", "-nographic", "-semihosting-config",
                           "enable=on,target=native", "-kernel", str(program)],
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{program} failed (exit status {done.returncode}):\n{done.stdout[-2000:]}"
                 f"{done.stderr[-2000:]}")
    # some versions of the emulator show semihosting output on stderr
    return np.array((done.stdout + done.stderr).split(), np.int64)


def main():
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo-m7", type=Path, help="folder for all that is made")
    args = parser.parse_args()
    if missing_tools():
        print(f"not found: {', '.join(missing_tools())} (Debian: gcc-arm-none-eabi, "
              "libnewlib-arm-none-eabi, qemu-system-arm)")
        return MISSING_TOOL
    args.out.mkdir(parents=True, exist_ok=True)
    net, images, labels = write_model(args.out / "digits.onnx")
    expected = net.predict(images / 16)
    bundle = aotc.compile(args.out / "digits.onnx", out=args.out / "bundle", target="c",
                          dims={"batch": (1, 16)}, weights="embed")
    write_images(images, args.out / "images.h")
    program = link(bundle.path, args.out)
    sizes = subprocess.run(["arm-none-eabi-size", str(program)], capture_output=True, text=True,
                           check=True).stdout.splitlines()[1].split()
    print(f"{program}: {sizes[0]} bytes of code and constants, {sizes[2]} bytes of memory")
    digits = emulate(program)
    same = np.array_equal(digits, expected)
    print(f"Cortex-M7: accuracy {np.mean(digits == labels):.4f} on {len(images)} images, "
          f"same as scikit-learn: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

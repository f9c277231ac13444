"""What models take of microcontrollers: instructions of a call, flash, RAM and stack.

    python -m benchmarks.mcu [FILE.onnx ...] [--targets cortex-m4,...] [--optimize size]
                             [--io quantised] [--json mcu.json] [--models FOLDER]

Without files those of ``../shared/mcu``.  Every model is compiled for every core, built at -O2 and
called once, on the inputs that its bundle records, on a board of the emulator, which counts
instructions, not cycles: the same numbers on every run.  Flash is code and weights of the least
program that calls the bundle, RAM its arena and what else is no constant, without the caller's
tensors; stack is what the call left written below it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import aotc
from aotc.errors import AotcError
from aotc.options import IO
from aotc.runtime.compile_bundle import read_manifest
from aotc.runtime.emulate import tools
from aotc.target import TARGETS

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "mcu"
CORES = tuple(t.name for t in TARGETS.values() if t.board)


@dataclass(frozen=True)
class McuCost:
    """Of one model on one core: instructions of a call, and bytes."""

    model: str
    target: str
    instructions: int
    flash: int
    ram: int
    stack: int


def measure(path: Path, target: str, folder: Path, optimize: str | None = None,
            io: str = IO[0]) -> McuCost:
    """The McuCost of a model; ``folder`` gets its bundle.  AotcError if it cannot be compiled,
    built or run, or if its outputs are not those that are recorded."""
    bundle = aotc.compile(path, folder, target=target, optimize=optimize, io=io).path
    manifest = read_manifest(bundle)
    tools(manifest)  # says what is to be installed
    done = subprocess.run(["make", "-s", "test", "CFLAGS=-O2"], cwd=bundle, capture_output=True,
                          text=True)
    told = done.stdout + done.stderr
    if done.returncode:
        raise AotcError(f"{path.name} on {target}: {told}")
    flash, ram = _sizes(bundle, manifest["name"], manifest["build"]["cross"]["cc"][0])
    return McuCost(path.stem, target, _told("instructions", told), flash, ram,
                   _told("stack", told))


def _told(what: str, text: str) -> int:
    return int(re.findall(rf"{what} (\d+)", text)[-1])


def _sizes(bundle: Path, name: str, cc: str) -> tuple[int, int]:
    """(flash, RAM) of the least program."""
    program = Path(__file__).with_name("mcu_program.c")
    macros = [f"-DNAME(f)={name}_##f", f'-DAOTC_HEADER="{name}.h"',
              f"-DARENA={name.upper()}_ARENA_BYTES_MAX(1)"]
    flags = " ".join(["-O2", *(f"'{m}'" for m in macros), "-I."])
    script = f"include Makefile\nleast: ; $(CC) $(BASE) {flags} -nostdlib -Wl,--gc-sections " \
        f"-T aotc_board.ld $(LDFLAGS) {program} lib{name}.a -lgcc -o build/least\n"
    subprocess.run(["make", "-s", "-f", "-", "least"], cwd=bundle, check=True, text=True,
                   input=script)
    size = subprocess.run([cc.replace("gcc", "size"), "build/least"], cwd=bundle, check=True,
                          capture_output=True, text=True).stdout
    text, data, bss = map(int, size.splitlines()[1].split()[:3])
    return text + data, data + bss


def table(costs: list[McuCost]) -> str:
    """The costs as a table of Markdown."""
    lines = ["| model | core | 1000 instructions | flash, KB | RAM, KB | stack, bytes |",
             "|---|---|--:|--:|--:|--:|"]
    lines += [f"| {c.model} | {c.target} | {c.instructions / 1000:.0f} | {c.flash / 1000:.1f} | "
              f"{c.ram / 1000:.1f} | {c.stack} |" for c in costs]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--targets", default=",".join(CORES))
    parser.add_argument("--optimize", choices=("speed", "size"))
    parser.add_argument("--io", choices=IO, default=IO[0],
                        help="quantised: 8-bit inputs and outputs, of models that round them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--models", type=Path, default=MODELS)
    args = parser.parse_args()
    files = args.files or sorted(args.models.glob("*.onnx"))
    if not files:
        print(f"no models in {args.models}; name files", file=sys.stderr)
        return 2
    costs = []
    for path in files:
        for target in args.targets.split(","):
            with tempfile.TemporaryDirectory(prefix="aotc-mcu-") as work:
                try:
                    costs.append(measure(path, target, Path(work) / "bundle", args.optimize,
                                         args.io))
                except AotcError as err:  # no board holds it, it has no 8-bit ends, or no tools
                    print(f"{path.name} on {target}: {str(err)[-300:]}", file=sys.stderr)
                    continue
            print(costs[-1], file=sys.stderr)
    print(table(costs))
    if args.json:
        args.json.write_text(json.dumps([asdict(c) for c in costs], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

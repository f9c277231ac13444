"""Bundles for another machine: cross-compiled, run under an emulator of its user space, or of a
board without an operating system."""

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aotc.errors import AotcError, ToolchainError
from aotc.ir.bundle import Manifest, emulators
from aotc.ir.dtypes import Array
from aotc.runtime.compile_bundle import cross_compiler, missing_tool, read_manifest
from aotc.runtime.feeds import Given, Syms, call_run, feeds_in_order, symbol_values, texts_of
from aotc.runtime.tensor_info import tensor_infos


def tools(manifest: Manifest) -> tuple[list[str], list[str], dict[int | None, list[str]]]:
    """(C compiler's command, linker flags, ``emulators``) for a bundle of another machine.
    ToolchainError with what to install if one is missing or the target names none."""
    arch, cross = manifest["build"]["arch"], manifest["build"]["cross"]
    found = emulators(cross)
    if not found:
        raise ToolchainError(f"{manifest['name']}: its target names no emulator for {arch}; run "
                             "the bundle's own test there (make test)")
    compiler = cross_compiler(manifest)
    if shutil.which(cross["emulator"][0]) is None:
        raise missing_tool(manifest, cross["emulator"][0])
    return compiler, cross["ldflags"], found


def emulated_models(folder: str | Path,
                    vlen: int | None = None) -> dict[int | None, "EmulatedModel"]:
    """{vlen: EmulatedModel} of a bundle for another machine: one for every vector length that its
    target lists, or for ``vlen`` alone.  Errors as ``EmulatedModel``."""
    found = tools(read_manifest(folder))[2]
    return {v: EmulatedModel(folder, vlen=v) for v in (found if vlen is None else (vlen,))}


class EmulatedModel:
    """A bundle for another machine, with the ``run`` of ``aotc.runtime.model.Model``.

    Building takes the bundle's own Makefile; every call starts the emulator anew.  ``vlen``: bits
    of a vector register of the emulated CPU, one that the target lists; None: the first of them.
    ToolchainError if a tool is missing or fails, AotcError for another ``vlen``.
    """

    def __init__(self, folder: str | Path, jobs: int = 2, vlen: int | None = None) -> None:
        self.folder = Path(folder).resolve()
        self.manifest = read_manifest(self.folder)
        self.name = self.manifest["name"]
        self.inputs, self.outputs = tensor_infos(self.manifest)
        compiler, ldflags, found = tools(self.manifest)
        if vlen is not None and vlen not in found:
            raise AotcError(f"vlen {vlen}: {self.manifest['target']} can be emulated with "
                            + (", ".join(map(str, found)) if None not in found else
                               "vectors of one length only; leave vlen out"))
        # words that are files of the bundle: what runs its programs
        self._emulator = [str(self.folder / w) if (self.folder / w).is_file() else w
                          for w in found[next(iter(found)) if vlen is None else vlen]]
        self._program = self.folder / "build" / f"test_{self.name}"
        self._board = bool(self.manifest["build"].get("board"))
        self.told = ""  # what a board's program printed in the last call
        command = ["make", "-s", f"-j{jobs}", f"build/test_{self.name}"]
        if not self._board:  # whose Makefile knows
            command += ["CC=" + " ".join(compiler), "LDFLAGS=" + " ".join(ldflags)]
        if self.manifest["build"]["cross"]["emulated"]:  # behind -O2, which would undo them
            command.append(" ".join(["CFLAGS=" + os.environ.get("CFLAGS", "-O2"),
                                     *self.manifest["build"]["cross"]["emulated"]]))
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise ToolchainError(f"{compiler[0]} failed on {self.folder}:\n{done.stderr[-2000:]}")

    def run(self, feeds: Given, dims: Syms = None) -> dict[str, Any]:
        """Outputs as {ONNX name: array} in the model's order; arguments as for ``Model.run``, but
        what lies in the buffer of an input is a copy.
        ValueError for wrong feeds, AotcError with what the program printed if it fails."""
        arrays = feeds_in_order(self.name, self.inputs, feeds, self.manifest)
        if any(a is None for a in arrays):
            raise ValueError(f"{self.name}: an emulated bundle takes no defaults: give all inputs")
        texts = texts_of(self.inputs, self.outputs, self.manifest)
        return call_run(self.inputs, self.outputs, self.manifest, texts, arrays,
                        lambda found: self._called(found, dims))

    def _called(self, arrays: Sequence[Array | None], dims: Syms) -> dict[str, Array]:
        values = symbol_values(self.name, self.inputs, arrays, dims)
        syms = [values[s["name"]] for s in self.manifest["symbols"]]
        with tempfile.TemporaryDirectory(prefix="aotc-emulated-") as work:
            inputs, outputs = (os.path.join(work, x) for x in ("inputs", "outputs"))
            with open(inputs, "wb") as f:
                f.write(b"AOTCTST1" + struct.pack(f"<Q{len(syms)}q", 1, *syms))
                for array in arrays:
                    f.write(np.ascontiguousarray(array).tobytes())
            files = [] if self._board else [self._weights(), inputs, outputs]  # of its own folder
            done = subprocess.run([*self._emulator, str(self._program), *files], cwd=work,
                                  capture_output=True, text=True)
            self.told = done.stdout + done.stderr
            if done.returncode:
                raise AotcError(f"{self.name} under {self._emulator[0]}: exit status "
                                f"{done.returncode}: {done.stdout}{done.stderr}")
            return self._read(outputs)

    def _weights(self) -> str:
        embedded = self.manifest["weights"] == "embed"
        return "-" if embedded else str(self.folder / f"{self.name}_weights.bin")

    def _read(self, path: str) -> dict[str, Array]:
        """The outputs file: per tensor its extents (i64 each), then its elements."""
        data, at, out = Path(path).read_bytes(), 0, {}
        for info in self.outputs:
            shape = np.frombuffer(data, "<i8", len(info.shape), at)
            at += shape.nbytes
            array = np.frombuffer(data, info.dtype, int(np.prod(shape)), at).reshape(shape)
            out[info.name] = array.copy()
            at += array.nbytes
        return out

"""Every tensor of a call between pages that nobody may touch: a bundle as users build it, run by
this file as a program of its own, since a touch ends the process:

    python guarded.py FOLDER        runs FOLDER/b; FOLDER/parts.pickle says what is in it

Inputs, outputs, the weights image and the arena each end where such a page begins, or begin where
one ends.  Outputs and the arena hold other bytes before each call, which must not show in what it
gives, and the same call with other numbers of threads must give the same; inputs stay as they were.
"""

import ctypes
import mmap
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
from hostile import Part, resized, tried  # noqa: F401 (pickles name Part)

from aotc.errors import AotcError
from aotc.runtime.compile_bundle import build, read_manifest
from aotc.runtime.model import Model
from aotc.runtime.shared_library import Library

PAGE = mmap.PAGESIZE
THREADS = 1, 2, 7
POISONS = 0xA5, 0xFF, 0x00
_libc = ctypes.CDLL(None, use_errno=True)


class Room:
    """``nbytes`` between two pages without permission, at the ``end`` in front of the upper one as
    far as ``align`` allows, else behind the lower one."""

    def __init__(self, nbytes, align, end):
        inner = max(-(-nbytes // PAGE), 1) * PAGE
        self._map = mmap.mmap(-1, inner + 2 * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        first = whole.__array_interface__["data"][0]
        for at in (first, first + PAGE + inner):
            if _libc.mprotect(ctypes.c_void_p(at), PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        start = PAGE + ((inner - nbytes) // align * align if end else 0)
        self.bytes = whole[start:start + nbytes]


class GuardedModel(Model):
    """A Model whose memory lies in ``Room``s, at their ends or at their beginnings."""

    def __init__(self, folder, threads, end):
        self.end, self.poison, self.rooms = end, POISONS[0], []
        manifest = read_manifest(folder)
        super().__init__(folder, manifest, Library(folder, manifest, build(folder)), threads)

    def room(self, nbytes, align):
        room = Room(nbytes, align, self.end)
        self.rooms.append(room)
        return room.bytes

    def placed(self, array):
        """A copy of an array in a room of its own."""
        made = self.room(array.nbytes, array.dtype.itemsize).view(array.dtype).reshape(array.shape)
        made[...] = array
        return made

    def _open_weights(self, folder, weights):
        data = np.fromfile(folder / f"{self.name}_weights.bin", np.uint8)
        image = self.room(data.nbytes, 64)
        image[:] = data
        self._library.call("weights_from_memory", weights, self._address(image), data.nbytes)

    def _empty(self, shape, dtype):
        return self.placed(np.empty(shape, dtype))

    def _grow(self, need):
        """An arena of just what this call needs."""
        self._arena = self.room(need, 64)
        self._library.call("init_variant", self._context, self._weights,
                           self._address(self._arena), need, self._pool, -1)

    def _address(self, array):
        return self._ffi.cast("void *", array.__array_interface__["data"][0])

    def spoil(self, bound):
        """Other bytes in everything that a call writes."""
        self.poison = POISONS[(POISONS.index(self.poison) + 1) % len(POISONS)]
        self._arena[:] = self.poison
        for out in bound.outputs.values():
            out.reshape(-1).view(np.uint8)[:] = self.poison

    def bind(self, feeds, dims=None):
        return Spoiled(self, super().bind(feeds, dims))


class Spoiled:
    """A Bound whose memory is spoiled before each call; its inputs stay as they are."""

    def __init__(self, model, bound):
        self.model, self.bound, self.inputs = model, bound, bound.inputs

    def __call__(self):
        before = {n: a.tobytes() for n, a in self.inputs.items()}
        self.model.spoil(self.bound)
        try:
            return self.bound()
        finally:
            changed = [n for n, a in self.inputs.items() if a.tobytes() != before[n]]
            assert not changed, f"inputs {changed} were written"


def results(models, part, at_rest, at, rng):
    """Asserts that all models give the same bits, whatever lay in the memory before."""
    feeds = at_rest | resized(rng, part, at)
    found = []
    for model in models:
        try:
            bound = model.bind({n: model.placed(a) for n, a in feeds.items()})
            found += [{n: a.tobytes() for n, a in bound().items()} for _ in POISONS]
        except (AotcError, ValueError) as err:
            found.append(type(err).__name__)
        model.rooms.clear()
    other = [n for n in found[0] for f in found if f[n] != found[0][n]] if isinstance(
        found[0], dict) and all(isinstance(f, dict) for f in found) else []
    assert not other and len({isinstance(f, dict) for f in found}) == 1, (
        f"{part.name} at {at}: other threads or memory change {other or found}")


def main(folder):
    """All cases with the values they are made for, by all models; then with hostile ones."""
    parts = pickle.loads((folder / "parts.pickle").read_bytes())
    models = [GuardedModel(folder / "b", threads, end) for threads, end in zip(
        THREADS, (True, False, True))]
    kept = [model.rooms[:] for model in models]  # of the weights
    rng, at_rest, total = np.random.default_rng(0), {}, np.zeros(2, int)
    for part in parts:
        at_rest |= part.feeds
    for part in parts:
        (folder / "at").write_text(part.name)
        free = any(not isinstance(d, int) for s in part.shapes.values() for d in s)
        for at in ("own", "lo", "hi", "mixed") if free else ("own",):
            results(models, part, at_rest, at, np.random.default_rng(1))
        for model in models[::len(models) - 1]:
            total += tried(model, part, at_rest, rng, model.placed)
            model.rooms.clear()
    print(f"{total[0]} runs, {total[1]} faults, {len(kept)} models")


def run(folder):
    """(exit status, text) of this file's program on a folder; the text names the case at which it
    ended."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", __file__, str(folder)],
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True)
    at = folder / "at"
    where = at.read_text() if at.exists() else "before the first case"
    return done.returncode, f"at {where}:\n{done.stdout}{done.stderr[-3000:]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

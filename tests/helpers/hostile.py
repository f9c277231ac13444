"""Every operator at run-time values that no model is made for: a bundle under the address and
undefined-behaviour sanitizers, run by this file as a program of its own, since the sanitizers must
be there before Python is:

    python hostile.py FOLDER        runs FOLDER/b; FOLDER/parts.pickle says what is in it
"""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import aotc
from aotc.errors import AotcError

FLAGS = "-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
ROUNDS = 3  # runs of every case with values drawn at random


@dataclass(frozen=True)
class Part:
    """One case of the bundle.  ``feeds``: its inputs by the bundle's names, as the case has them;
    ``shapes``: the extents of each, ints or (name of a dimension, lo, hi)."""

    name: str
    feeds: dict
    shapes: dict


def values(dtype):
    """The numbers that a dtype's elements are made of."""
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = [n for n in (-7, -2, -1, 0, 1, 2, 3, 5, 8, 100) if info.min <= n <= info.max]
        return np.array([info.min, info.min + 1, info.max, *small], dtype)
    return np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 0.5, 3.7, -6e4, 6e4, 1e-7], dtype)


def drawn(rng, array, how):
    """An array of hostile values of ``array``'s shape and dtype.  how: "one" value everywhere,
    "few" elements of the array replaced, else all elements drawn."""
    pool = values(array.dtype)
    if how == "one":
        return np.full(array.shape, rng.choice(pool), array.dtype)
    new = rng.choice(pool, array.shape).astype(array.dtype)
    return np.where(rng.random(array.shape) < 0.2, new, array) if how == "few" else new


def resized(rng, part, at):
    """The part's feeds at other extents; at: "lo", "hi" or "mixed"; "own" for those it has."""
    if at == "own":
        return part.feeds
    dims, out = {}, {}
    for name, array in part.feeds.items():
        shape = []
        for d in part.shapes[name]:
            if not isinstance(d, int):
                label, lo, hi = d
                d = dims.setdefault(label, {"lo": lo, "hi": hi}.get(
                    at, int(rng.integers(lo, hi + 1))))
            shape.append(d)
        flat = np.resize(array.reshape(-1) if array.size else np.zeros(1, array.dtype),
                         int(np.prod(shape)))
        out[name] = flat.reshape(shape)
    return out


def variants(base, rng):
    """Values to try for the inputs ``base`` of one case."""
    yield {}
    for how in ("one", "few", "all"):
        for _ in range(ROUNDS):
            yield {n: drawn(rng, a, how) for n, a in base.items()}
        for name in base:  # and one input by itself
            yield {name: drawn(rng, base[name], how)}


def tried(model, part, at_rest, rng, placed=np.copy):
    """(runs, faults) of one case, the others being at rest.  ``placed``: array -> the same where
    the model reads it."""
    runs = faults = 0
    dynamic = any(not isinstance(d, int) for s in part.shapes.values() for d in s)
    for at in ("own", "lo", "hi", "mixed", "mixed") if dynamic else ("own",):
        base = resized(rng, part, at)
        runs += 1
        try:
            bound = model.bind({n: placed(a) for n, a in (at_rest | base).items()})
        except ValueError:  # extents that do not fit together
            faults += 1
            continue
        for feeds in variants(base, rng):
            for name, array in (base | feeds).items():
                bound.inputs[name][...] = array
            runs += 1
            try:
                bound()
            except AotcError:
                faults += 1
    return runs, faults


def main(folder):
    """Run every case; what breaks a rule of the model must say so, and nothing else happens."""
    parts = pickle.loads((folder / "parts.pickle").read_bytes())
    model = aotc.load(folder / "b")
    rng, at_rest, total = np.random.default_rng(0), {}, np.zeros(2, int)
    for part in parts:
        at_rest |= part.feeds
    (folder / "at").write_text("rest")
    model.run(at_rest)
    for part in parts:
        (folder / "at").write_text(part.name)
        total += tried(model, part, at_rest, rng)
    print(f"{total[0]} runs, {total[1]} faults")


def run(folder):
    """(exit status, text) of this file's program on a folder; the text names the case at which it
    ended."""
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True,
                             check=True).stdout.strip()
    # a bundle is built again for other flags
    env = os.environ | {"CFLAGS": FLAGS, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc",
                        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
                        "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__, str(folder)], env=env, capture_output=True,
                          text=True)
    at = folder / "at"
    where = at.read_text() if at.exists() else "before the first case"
    found = [done.stderr.find(t) for t in ("ERROR: ", "runtime error: ", "Traceback")]
    told = max(0, min((k for k in found if k >= 0), default=0) - 200)
    return done.returncode, f"at {where}:\n{done.stdout}{done.stderr[told:][:3000]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

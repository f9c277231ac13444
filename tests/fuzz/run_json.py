"""Fuzzing the JSON that users write: whatever a Schedule, a machine file, a manifest, observed
shapes or the value of an option says, the answer is a bundle or one clear error.

    python tests/fuzz/run_json.py --seconds 600 --seed 0

Valid texts are damaged: values of other types, numbers at the ends of their range, keys and items
that are lost, doubled or moved, brackets nested without end, bits.
Findings make the exit status 1.
"""

import argparse
import copy
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from aotc.cli_values import fixed_of, list_of
from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.loading import load
from aotc.target import TARGETS
from aotc.target.machine_file import machine_json

OTHERS = (None, True, False, 0, 1, -1, 7, 1 << 40, -(1 << 63), 1 << 70, 0.5, float("nan"),
          float("inf"), "", "x", "k000", [], [7], {}, {"a": 1}, [[]], ["oc", "oc"])
DEEP = 100_000  # brackets: more than any reader follows
TARGET_NAMES = ("x86-64-v3", "c", "dsa:stcp920", "cuda:sm_80")


def _model():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 4, 3, 3), dtype=np.float32)
    v = rng.standard_normal((8, 5), dtype=np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("GlobalAveragePool", ["r"], ["p"]),
             helper.make_node("Flatten", ["p"], ["f"]),
             helper.make_node("MatMul", ["f", "v"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
             for n, shape in (("x", ("n", 4, 8, 8)), ("y", ("n", 5)))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [
        numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODEL = _model()


def _places(value, at=()):
    """Paths to everything in a JSON value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(
        value, list) else ()
    for key, item in items:
        yield from _places(item, (*at, key))


def damaged(rng, value):
    """A JSON text of ``value`` with a few things wrong."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        *way, last = rng.choice([p for p in _places(value) if p] or [("",)])
        if last == "":
            break
        holder = value
        for key in way:
            holder = holder[key]
        match rng.randrange(5):
            case 0 | 1:
                holder[last] = rng.choice(OTHERS)
            case 2:
                del holder[last]
            case 3 if isinstance(holder, list):
                holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[last]))
            case 3:
                holder[rng.choice(("x", "y", "", "oc", *map(str, holder)))] = holder[last]
            case 4:
                holder[last] = rng.choice([[holder[last]], {"a": holder[last]}, str(holder[last])])
    text = json.dumps(value)
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(('"', "}", "]", ",", "é", "\0", "[" * DEEP)) + text[at + 1:]
    return text


def offend(answer, *args):
    """None if ``answer(*args)`` gives something or refuses properly, else what it did instead."""
    try:
        answer(*args)
    except (AotcError, argparse.ArgumentTypeError) as err:
        text = str(err)
        return None if text.strip() and len(text) < 20_000 else f"unclear error: {text[:200]!r}"
    except Exception as err:  # anything else is a finding, whatever it is
        where = err.__traceback__
        while where.tb_next:
            where = where.tb_next
        name = Path(where.tb_frame.f_code.co_filename).name
        return f"{type(err).__name__}: {str(err)[:200]} ({name}:{where.tb_lineno})"
    return None


class Kinds:
    """Answers to a text, by kind, with a valid one to begin from; files go to ``folder``."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.schedules = {}
        for name in TARGET_NAMES:
            work = run_pipeline(Options(MODEL, target=name, stop_after="schedule"))
            self.schedules[name] = json.loads(work.schedule.to_json())
        run_pipeline(Options(MODEL, self.folder / "bundle", target="c"))
        load(self.folder / "bundle")
        self.written = json.loads((self.folder / "bundle" / "manifest.json").read_text())

    def _file(self, text):
        path = self.folder / "text.json"
        path.write_text(text)
        return path

    def schedule(self, rng):
        name = rng.choice(TARGET_NAMES)
        text = damaged(rng, self.schedules[name])
        return text, lambda: run_pipeline(Options(MODEL, target=name, stop_after="plan",
                                                  schedule=self._file(text)))

    def machine(self, rng):
        name = rng.choice(TARGET_NAMES)
        value = json.loads(machine_json(TARGETS[name]))
        if rng.random() < 0.2:  # another kind of machine under this target's name
            other = TARGETS[rng.choice(TARGET_NAMES)]
            value["machine"] = json.loads(machine_json(other))["machine"]
        text = damaged(rng, value)
        return text, lambda: run_pipeline(Options(MODEL, target=name, stop_after="plan",
                                                  machine=self._file(text)))

    def observed(self, rng):
        text = damaged(rng, [{"n": 3}, {"n": 5, "share": 0.5}])
        return text, lambda: run_pipeline(Options(MODEL, target="c", stop_after="schedule",
                                                  dim_samples=self._file(text)))

    def option(self, rng):
        text = "x=" + damaged(rng, [[1, 2], [3.5, 4]])
        return text, lambda: (fixed_of(text), list_of(text))

    def manifest(self, rng):
        """Of a bundle that is built: opened."""
        text = damaged(rng, self.written)
        (self.folder / "bundle" / "manifest.json").write_text(text)
        return text, lambda: load(self.folder / "bundle")


KINDS = ("schedule", "machine", "manifest", "observed", "option")


def findings(seed, seconds, most=None):
    """(kind, seed of the case, what happened, text) of every case that went wrong, until the time
    is up or ``most`` cases have run."""
    end, number = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        kinds = Kinds(folder)
        while time.monotonic() < end and (most is None or number < most):
            kind = KINDS[number % len(KINDS)]
            text, answer = getattr(kinds, kind)(random.Random(f"{seed} {number}"))
            wrong = offend(answer)
            if wrong:
                yield kind, number, wrong, text
            number += 1


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args(arguments)
    print(f"seed {args.seed}", flush=True)
    status = 0
    for kind, number, wrong, text in findings(args.seed, args.seconds):
        print(f"{kind} {number}: {wrong}\n    {text[:400]}", flush=True)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

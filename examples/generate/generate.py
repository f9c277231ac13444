"""Train, compile and sample: the whole way from a text to tokens a second, in Python and C++."""

import argparse
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from export import export
from train import train, zen

import aotc

HERE = Path(__file__).resolve().parent
CAPACITY = 1024


class Dice:
    """Numbers from 0 up to 1, the same as generate.cpp's."""

    def __init__(self):
        self._state = 1

    def roll(self):
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 11) / 9007199254740992.0


def sample(scores, temperature, dice):
    """A character by the scores of all, more boldly at a higher temperature; at 0 the best one."""
    best = max(scores)
    if temperature <= 0:
        return scores.index(best)
    sums, total = [], 0.0
    for s in scores:
        total += math.exp((s - best) / temperature)
        sums.append(total)
    at = dice.roll() * total
    return min(next((i for i, s in enumerate(sums) if s > at), len(sums) - 1), len(sums) - 1)


class Decoder:
    """The model and what it remembers: buffers that grow in place."""

    def __init__(self, bundle):
        self.model, self.past = aotc.load(bundle), 0
        self.caches = {i.name: np.zeros((1, i.shape[1], CAPACITY, i.shape[3]), np.float32)
                       for i in self.model.inputs if i.alias >= 0}

    def read(self, ids):
        """The scores of what follows ``ids``, which follow all that was read before."""
        feeds = {"ids": np.array([ids], np.int64)} | self.caches
        scores = self.model.run(feeds, dims={"past": self.past})["scores"]
        self.past += len(ids)
        return scores[0, -1].tolist()


def generate(bundle, characters, prompt, count, temperature):
    """(text, tokens a second)."""
    decoder, dice, text = Decoder(bundle), Dice(), prompt
    scores = decoder.read([characters.index(c) for c in prompt])
    start = time.perf_counter()
    for _ in range(count):
        following = sample(scores, temperature, dice)
        text += characters[following]
        scores = decoder.read([following])
    return text, count / (time.perf_counter() - start)


def build_cpp(bundle, out):
    """The C++ program beside the bundle's own static library."""
    program = out / "generate"
    subprocess.run(["make", "-s", f"-j{os.cpu_count()}", "static"], cwd=bundle, check=True)
    subprocess.run([*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2", "-Wall",
                    "-Wextra", "-Werror", str(HERE / "generate.cpp"), "-I", str(bundle),
                    str(bundle / "libzen.a"), "-lpthread", "-lm", "-o", str(program)], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("zen_demo"))
    parser.add_argument("--steps", type=int, default=250, help="of training")
    parser.add_argument("--count", type=int, default=240, help="characters to sample")
    parser.add_argument("--temperature", type=float, default=0.4)
    parser.add_argument("--prompt", default="Beautiful ")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    weights, characters = train(zen(), args.steps, report=print)
    export(weights, args.out / "zen.onnx")
    aotc.compile(args.out / "zen.onnx", args.out / "bundle", name="zen",
                 alias={"past.*": "present.*"}, variants={"seq": [(1, 1)]},
                 dims={"batch": 1, "seq": (1, CAPACITY), "past": (0, CAPACITY)})
    (args.out / "characters.txt").write_text(characters)
    text, speed = generate(args.out / "bundle", characters, args.prompt, args.count,
                           args.temperature)
    print(f"{text}\nPython: {speed:.0f} tokens a second")
    program = build_cpp(args.out / "bundle", args.out)
    done = subprocess.run([str(program), str(args.out / "bundle" / "zen_weights.bin"),
                           str(args.out / "characters.txt"), str(args.count),
                           str(args.temperature), args.prompt], capture_output=True, text=True)
    print(f"C++: {done.stderr.strip()}, same text: {done.stdout == text + chr(10)}")
    return 0 if done.stdout == text + "\n" else 1


if __name__ == "__main__":
    sys.exit(main())

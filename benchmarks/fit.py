"""What a probe can see of a machine's ``Tuning``, measured anew and written into a machine file.

    python -m benchmarks.fit [-o machine.json] [--machine FILE] [--target native] [--seconds 5]

Chains of one operation over vectors that stay in a core's cache, a kernel each in one bundle: what
a step more takes per element.  ``other_flops`` is an addition or a multiplication beside the peak
of products, ``op_cost`` the others beside that.  Printed are the usual values and the measured
ones; everything else of the machine is as in FILE (see ``aotc targets --probe``), or the target's
preset.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
from onnx import TensorProto, helper

from aotc.api import load
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.target import get_target
from aotc.target.machine_file import machine_json, with_machine
from aotc.target.tuning import Tuning
from aotc.tools.bench import WARM_UP, pin

POINTS = 1 << 14  # f32 elements of a vector: two of them stay in a core's own cache
STEPS = 8  # of a chain
LEAST_CALLS = 3
BASE, SUMS = "base", "sums"  # one step that costs next to nothing; products and sums in turns
UNARY = {"exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf", "sin": "Sin", "cos": "Cos",
         "sqrt": "Sqrt"}
BINARY = {"pow": "Pow", "div": "Div"}


def _chain(name):
    """[(operator, inputs behind the one that the chain hands on)] of a chain."""
    if name == BASE:
        return [("Neg", [])]
    if name == SUMS:
        return [("Mul", ["x"]), ("Add", ["x"])] * STEPS
    return [(UNARY[name], [])] * STEPS if name in UNARY else [(BINARY[name], ["x"])] * STEPS


def chains(names, points=POINTS):
    """A model with a chain of every name, each from an input of its own."""
    nodes, f32 = [], TensorProto.FLOAT
    for name in names:
        last, steps = f"{name}_x", _chain(name)
        for i, (op, others) in enumerate(steps):
            out = f"{name}_y" if i == len(steps) - 1 else f"{name}_{i}"
            nodes.append(helper.make_node(op, [last, *(f"{name}_x" for _ in others)], [out],
                                          name=f"{name}/{i}"))
            last = out
    def values(end):
        return [helper.make_tensor_value_info(f"{n}_{end}", f32, [points]) for n in names]
    graph = helper.make_graph(nodes, "chains", values("x"), values("y"))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def seconds_of(names, target, machine, seconds, folder):
    """{name: least seconds of its chain's kernel}, on one thread."""
    path = Path(folder) / "chains"
    options = Options(chains(names), path, target, "chains", connect="register", machine=machine,
                      profile=True)
    build(run_pipeline(options).path)
    model = load(path, threads=1)
    rng = np.random.default_rng(0)
    call = model.bind({f"{n}_x": rng.uniform(0.5, 1.5, POINTS).astype(np.float32) for n in names})
    found, end = {}, perf_counter() + seconds
    calls = 0
    while calls < WARM_UP + LEAST_CALLS or perf_counter() < end:
        model.profile(reset=True)
        call()
        calls += 1
        for cost in model.profile() if calls > WARM_UP else ():
            name = cost.nodes[0].split("/")[0]
            found[name] = min(found.get(name, float("inf")), cost.seconds)
    return found


def fitted(tuning, flops, found):
    """The Tuning with what ``found`` (seconds of chains) says; what it does not say, or noise has
    drowned, stays.  flops: a core's peak."""
    def step(name, count):
        return (found[name] - found[BASE]) / (count * POINTS)

    one = step(SUMS, 2 * STEPS)
    if one <= 0:
        return tuning
    costs = {n: max(1, round(step(n, STEPS) / one)) for n in tuning.op_cost
             if n in found and found[n] > found[BASE]}
    return replace(tuning, other_flops=round(one * flops, 3),
                   op_cost={**tuning.op_cost, **costs})


def main(argv=None):
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, help="machine file to write")
    parser.add_argument("--machine", type=Path, help="machine file to start from")
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args(argv)
    target = get_target(args.target)
    if args.machine is not None:
        target = with_machine(target, args.machine.read_text())
    pin(1)
    with tempfile.TemporaryDirectory() as folder:
        found = seconds_of([BASE, SUMS, *UNARY, *BINARY], target.name, args.machine, args.seconds,
                           folder)
    new, usual = fitted(target.tuning, target.machine.flops, found), Tuning()
    print(f"other_flops  usual {usual.other_flops}, measured {new.other_flops}")
    for name, cost in new.op_cost.items():
        print(f"op_cost.{name:6} usual {usual.op_cost[name]}, measured {cost}")
    if args.out is not None:
        tuned = replace(target, machine=replace(target.machine, tuning=new))
        args.out.write_text(machine_json(tuned))
    return 0


if __name__ == "__main__":
    sys.exit(main())

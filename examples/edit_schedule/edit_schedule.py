"""Edit a schedule by hand: the steps of README.md, one after the other.

    python examples/edit_schedule/edit_schedule.py --out demo-edit

Exit code 0 only if every legal edit gives the same logits and the wrong one is refused.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import aotc
from aotc.errors import ScheduleError

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "digits"))
from train import write_model  # noqa: E402  (the first example's model)


def smaller_work_items(schedule):
    """Step 2: 16 images a work item instead of all, so that a batch is spread over the pool."""
    group = next(g for g in schedule["groups"] if "a1_sum" in g["computes"])
    group["tile"] = {"m": 16}


def an_activation_of_its_own(schedule):
    """Step 3: the second layer's ReLU leaves the epilogue and becomes a kernel of its own."""
    at = next(k for k, g in enumerate(schedule["groups"]) if "a2_sum" in g["computes"])
    layer = schedule["groups"][at]
    layer["computes"].remove("h2")
    layer["outputs"] = ["a2_2"]
    del layer["connect"]["a2_2"]
    schedule["groups"].insert(at + 1, {"name": "relu2", "computes": ["h2"], "outputs": ["h2"],
                                       "anchor": "h2"})
    del schedule["buffers"]  # a2_2 is stored now: let the arena be planned again


def plain_loops(schedule):
    """Step 4: the last layer as plain loops over unpacked weights instead of a register tile."""
    group = next(g for g in schedule["groups"] if "logits_sum" in g["computes"])
    group["ukernel"] = {"logits_sum": "loops"}
    group["loops"] = {"logits_sum": {}}
    del schedule["layouts"]["w3"]


def a_mistake(schedule):
    """Step 5: a row that no target has, and a tile of an axis that the stage does not have."""
    group = next(g for g in schedule["groups"] if "a1_sum" in g["computes"])
    group["ukernel"] = {"a1_sum": "contraction_f32_5x5__c"}
    group["tile"] = {"rows": 16}


STEPS = (smaller_work_items, an_activation_of_its_own, plain_loops)


def compile_with(out, name, schedule=None):
    """Compile the model, with a schedule if one is given, else with a kernel for every layer;
    returns the bundle."""
    path = None
    if schedule is not None:
        path = out / f"{name}.json"
        path.write_text(json.dumps(schedule, indent=1))
    return aotc.compile(out / "digits.onnx", out / name, target="c", name="digits",
                        dims={"batch": (1, 1024)}, schedule=path, connect="register")


def main():
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo-edit", type=Path, help="folder for all that is made")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    _, images, _ = write_model(out / "digits.onnx")

    bundle = compile_with(out, "decided")
    want = bundle.load().run([images])["logits"]
    text = (bundle.path / "schedule.json").read_text()
    print(f"decided by the compiler: {len(json.loads(text)['groups'])} groups")
    good = True
    for edit in STEPS:
        schedule = json.loads(text)
        edit(schedule)
        edited = compile_with(out, edit.__name__, schedule)
        got = edited.load(threads=2).run([images])["logits"]
        same = np.allclose(got, want, rtol=1e-5, atol=1e-5)
        good = good and same and edited.manifest["variants"] != bundle.manifest["variants"]
        print(f"{edit.__name__}: same logits: {same}")
    try:
        schedule = json.loads(text)
        a_mistake(schedule)
        compile_with(out, "a_mistake", schedule)
        good = False
    except ScheduleError as err:
        print(f"a_mistake: refused:\n{err}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Small models and stand-ins for machines, for tests of tuning."""

import hashlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.tuner.measure.executor import Result
from aotc.tuner.measure.whole_model import ModelVerdict
from aotc.tuner.space.knobs import Space, untuned_form
from aotc.tuner.space.sites import sites


def convolutions(size=14, channels=32, layers=2, seed=0):
    """A chain of 3x3 convolutions with ReLU and a pooling, two of them alike."""
    rng, nodes, tensors, last = np.random.default_rng(seed), [], [], "x"
    for i in range(layers):
        w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / channels
        tensors.append(numpy_helper.from_array(w, f"w{i}"))
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]),
                  helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]
        last = f"r{i}"
    nodes.append(helper.make_node("MaxPool", [last], ["y"], kernel_shape=[2, 2], strides=[2, 2]))
    shape = [1, channels, size, size]
    graph = helper.make_graph(
        nodes, "convs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT,
                                       [1, channels, size // 2, size // 2])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def scheduled(model, target="c", **decisions):
    """The pipeline's Work after the schedule stage."""
    return run_pipeline(Options(model, target=target, stop_after="schedule", **decisions))


def untuned_candidates(work):
    """[(Site, Candidate)] of every site as the untuned Schedule has it."""
    _, found = sites(work.program, work.schedule, work.target)
    return [(s, Space(s, untuned_form(s), work.target).candidate({})) for s in found]


def pretended(candidate):
    """Seconds a pretended machine takes: half as long for a third of all points."""
    text = f"{candidate.site} {candidate.point}"
    number = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
    return 1e-3 if candidate.point == ("", ()) else 1e-3 * (0.5 if number % 3 == 0 else 1.5)


class PretendedExecutor:
    """Times without building.  ``faults``: {site key: text} of sites whose other candidates
    fail."""

    def __init__(self, faults=()):
        self.asked, self.faults = [], dict(faults)

    def build_and_measure(self, candidates):
        self.asked.append([c.point for c in candidates])
        return [Result(None, self.faults[c.site]) if c.site in self.faults and c.point[1]
                else Result(pretended(c)) for c in candidates]


class PretendedChecker:
    """The whole model on the pretended machine."""

    faster = 0.99

    def __init__(self, kernels, ratio=0.8, slower=()):
        self.kernels, self.ratio, self.slower, self.seen = kernels, ratio, slower, []

    def untuned(self):
        return [1e-3] * self.kernels, 1e-3 * self.kernels

    def compare(self, schedule, chosen, base=None):
        self.seen.append(schedule)
        slow = {chosen[n].tie for n in self.slower if n in chosen}
        ratios = {c.tie: 16.0 if c.tie in slow else 0.5 for c in chosen.values()}
        return ModelVerdict((1.0, self.ratio * (1.5 if slow else 1.0)), ratios, False)


class Ticks:
    """A clock that goes on by one second whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Crash(AotcError):
    """Raised by tests in place of an interruption."""

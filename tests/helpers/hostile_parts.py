"""What hostile runs are made of: a case of every operator and random graphs as Programs, with fixed
extents, with free ones and with every extent free by itself, many to a bundle."""

import pickle

import numpy as np
import onnx
from frontend_cases import model_of
from harness import INFO, Case, merged
from hostile import Part
from onnx_graphs import random_graph
from operator_tables import node_cases
from standard_cases import array_of, cases

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.options import Options
from aotc.oracle.eval_expr import EvalScope
from aotc.pipeline import run_pipeline
from aotc.sched import lower
from aotc.target import get_target

TARGET = "c"  # the frontend's Programs are those of any CPU
MOST = 3000  # elements of a case's inputs: what is larger takes time and shows nothing more
EACH = 40  # cases of one bundle


def all_cases():
    """(name, operator, model, arrays by position) of every operator."""
    for op, found in sorted(cases().items()):
        for case in found:
            arrays = [array_of(a) for a in case.data_sets[0][0]]
            yield case.name, op, case.model, arrays
    for case in node_cases():
        model, feeds = case.model()
        yield case.name, case.op, model, list(feeds.values())
    yield "sequences", "SequenceAt", _sequences(), [np.ones((5, 4), np.float32)]


def _sequences():
    """A model that cuts a tensor into a sequence, changes that, and joins it again."""
    node = onnx.helper.make_node
    return model_of([
        node("SplitToSequence", ["x"], ["pieces"], axis=0),
        node("SequenceAt", ["pieces", "two"], ["piece"]),
        node("SequenceConstruct", ["x", "piece"], ["pair"]),
        node("SequenceErase", ["pair", "one"], ["alone"]),
        node("SequenceEmpty", [], ["none"]),
        node("SequenceInsert", ["none", "x"], ["single"]),
        node("SequenceAt", ["single", "zero"], ["first"]),
        node("SequenceInsert", ["alone", "first"], ["both"]),
        node("SequenceLength", ["both"], ["count"]),
        node("ConcatFromSequence", ["both"], ["joined"], axis=0),
        node("Cast", ["count"], ["number"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["joined", "number"], ["y"])],
        {"x": (np.float32, (5, 4))}, ["y"],
        {n: np.array(k, np.int64) for k, n in enumerate(("zero", "one", "two"))})


def _program(model, shapes=None):
    """The model's Program, inlined; ``shapes``: extents of inputs, ints or (name, lo, hi).  None if
    it is refused."""
    dims = {}
    if shapes is not None:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        for info in changed.graph.input:
            info.type.tensor_type.ClearField("shape")
            for d in shapes[info.name]:
                dim = info.type.tensor_type.shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
                else:
                    dim.dim_param, dims[d[0]] = d[0], d[1:]
        for info in changed.graph.output:
            info.type.tensor_type.ClearField("shape")
        model = changed
    try:
        return run_pipeline(Options(model, target=TARGET, dims=dims or None,
                                    stop_after="inline")).program
    except AotcError:
        return None


def _free(arrays, least):
    """The shapes with every extent above 1 free, equal ones of one name."""
    return {n: tuple((f"d{d}", least, d) if d > 1 else d for d in a.shape)
            for n, a in arrays.items()}


def _apart(arrays):
    """The shapes with every extent free by itself: most choices contradict each other."""
    return {n: tuple((f"d{k}_{j}", min(d, 1), d + 1) for j, d in enumerate(a.shape))
            for k, (n, a) in enumerate(arrays.items())}


def _takes(program, feeds, shapes):
    """True if the Program takes inputs of the extents that the case has: where every extent is free
    by itself, one of 1 is no reason to broadcast."""
    own = {d[0]: n for name, s in (shapes or {}).items()
           for d, n in zip(s, feeds[name].shape) if not isinstance(d, int)}
    names = {s.name for s in program.syms}
    return not names or all(EvalScope({}, None, own).value(c.cond) for c in program.checks)


def operator_parts(step):
    """(name, Program, feeds, shapes): cases with fixed extents, and again with free ones.  step: 1
    for all cases, else for every so many an operator's first one, of others none."""
    seen, number = {}, 0
    for name, op, model, arrays in all_cases():
        if sum(a.size for a in arrays) > MOST or any(a.dtype.kind not in "fiub" for a in arrays):
            continue
        feeds = dict(zip((i.name for i in model.graph.input), arrays))
        if seen.get(op, 0) >= (3 if step == 1 else 1) or len(feeds) != len(model.graph.input):
            continue
        number += op not in seen
        if number % step:
            seen[op] = seen.get(op, 0) + 1
            continue
        for ways in ((None,), (_free(feeds, 0), _free(feeds, 1)), (_apart(feeds),)):
            for shapes in ways:
                program = _program(model, shapes)
                if program is not None and _takes(program, feeds, shapes):
                    seen[op] = seen.get(op, 0) + 1
                    yield name, program, feeds, shapes or {n: a.shape for n, a in feeds.items()}
                    break


def random_parts(seeds):
    """As ``operator_parts``, of random graphs of numbers; every third with free extents."""
    for seed in seeds:
        graph = random_graph(seed)
        if any(a.dtype.kind not in "fiub" for a in graph.feeds.values()):
            continue  # a bundle's own texts are all the texts there are
        shapes = _free(graph.feeds, 0) if seed % 3 == 0 else None
        program = _program(graph.model, shapes)
        if program is None and shapes is not None:
            shapes, program = None, _program(graph.model)
        if program is not None:
            yield (f"random graph {seed}", program, graph.feeds,
                   shapes or {n: a.shape for n, a in graph.feeds.items()})


def write_parts(parts, folder, target):
    """A bundle of all parts and what ``hostile.main`` needs to know of it."""
    target = get_target(target)
    program, schedule = merged([Case(n, p) for n, p, _, _ in parts], target)
    write_bundle(render_bundle(lower(program, schedule, target), schedule, INFO), folder / "b")
    kept = []
    for i, (name, p, feeds, shapes) in enumerate(parts):
        named = {p.buffers[n].onnx or n: f"q{i}_{n}" for n in p.inputs}
        kept.append(Part(name, {named[n]: a for n, a in feeds.items() if n in named},
                         {named[n]: tuple(d if isinstance(d, int) else (f"{i}{d[0]}", *d[1:])
                                          for d in s) for n, s in shapes.items() if n in named}))
    (folder / "parts.pickle").write_bytes(pickle.dumps(kept))


def batches(parts):
    """Lists of as many parts as one bundle has."""
    parts = list(parts)
    return [parts[k:k + EACH] for k in range(0, len(parts), EACH)]

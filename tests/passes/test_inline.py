"""Substitution, inlining of moves, and the size of what inlining would write."""

import random

import numpy as np
import pytest

from aotc.ir.expr import Axis, Binary, Cast, Const, Load, children, maximum, minimum, substitute
from aotc.ir.program import Buffer, Compute, Program
from aotc.oracle.evaluate import evaluate
from aotc.passes.inline import inline_moves
from aotc.sched.choose.tree_size import tree_size
from aotc.sched.model.stages import expand

I, J, K = (Axis(name, Const(4)) for name in "ijk")


def test_substitution_is_simultaneous():
    """i + k with k = 0 becomes j: that j is not the one that becomes i."""
    assert substitute(Binary("add", I, K), {I: J, J: I, K: Const(0)}) == J
    assert substitute(I + J * 2, {I: J, J: I}) == J + I * 2
    load = Load("x", (I,), "f32")
    assert substitute(Load("y", (load.index[0],), "f32"), {load: Const(1.0, "f32")}).buffer == "y"


def test_a_move_read_with_exchanged_axes_of_the_same_names():
    """m[i, j, k] = x[i + k, j] read as m[j, i, 0]."""
    def buffer(name, shape, role):
        return Buffer(name, tuple(map(Const, shape)), "f32", role, name)
    buffers = {b.name: b for b in (buffer("x", (8, 4), "input"), buffer("m", (4, 4, 4), "temp"),
                                   buffer("y", (4, 4), "output"))}
    move = Compute(("m",), (I, J, K), (), "none", Load("x", (I + K, J), "f32"))
    read = Compute(("y",), (I, J), (), "none", Load("m", (J, I, Const(0)), "f32"))
    program = Program("p", ("x",), ("y",), buffers, {}, (move, read))
    inlined = inline_moves(program)
    assert len(inlined.steps) == 1
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(evaluate(inlined, {"x": x})["y"], x[:4].T)
    np.testing.assert_array_equal(evaluate(program, {"x": x})["y"], x[:4].T)


@pytest.mark.parametrize("place, steps", [(I // Const(2), 1),
                                          (Cast("i64", Cast("f32", I) / 2.0), 2)])
def test_places_that_take_floats_to_find_are_found_once(place, steps):
    """y[i, j] = x[p[i], j]: p is no tensor of its own where integers are all it takes."""
    def buffer(name, shape, role, dtype="f32"):
        return Buffer(name, tuple(map(Const, shape)), dtype, role, name)
    buffers = {b.name: b for b in (buffer("x", (4, 4), "input"), buffer("p", (4,), "temp", "i64"),
                                   buffer("y", (4, 4), "output"))}
    found = Compute(("p",), (I,), (), "none", place)
    inside = minimum(maximum(Load("p", (I,), "i64"), Const(0)), Const(3))
    read = Compute(("y",), (I, J), (), "none", Load("x", (inside, J), "f32"))
    program = Program("p", ("x",), ("y",), buffers, {}, (found, read))
    inlined = inline_moves(program)
    assert len(inlined.steps) == steps
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(evaluate(inlined, {"x": x})["y"], x[[0, 0, 1, 1]])


def _written_out(e):
    """(nodes, depth, {buffer: (loads, depth of the deepest)}) of a tree, the slow way."""
    nodes, depth, reads = 0, 0, {}
    todo = [(e, 1)]
    while todo:
        n, at = todo.pop()
        nodes, depth = nodes + 1, max(depth, at)
        if isinstance(n, Load):
            count, deepest = reads.get(n.buffer, (0, 0))
            reads[n.buffer] = count + 1, max(deepest, at)
        todo += [(k, at + 1) for k in children(n)]
    return nodes, depth, reads


def _body(rng, buffers):
    e = Load(rng.choice(buffers), (I,), "f32")
    for _ in range(rng.randrange(1, 7)):
        other = rng.choice((e, Load(rng.choice(buffers), (I,), "f32"), Const(2.0, "f32")))
        e = Binary(rng.choice(("add", "mul", "max")), *rng.sample((e, other), 2))
    return e


@pytest.mark.parametrize("seed", range(20))
def test_tree_size_is_that_of_the_tree(seed):
    """Of bodies and of bodies with others inlined, which stand one node below their loads."""
    rng, names = random.Random(seed), ["x", "w"]
    sizes, bodies = {}, {}
    for step in range(3):
        body = _body(rng, names)
        size = tree_size(body)
        assert (size.nodes, size.depth, size.reads) == _written_out(body)
        grown = size.inlined(sizes)
        maps = {b: Compute((b,), (I,), (), "none", e) for b, e in bodies.items()}
        flat = tree_size(expand(body, maps))
        assert {b: n for b, (n, _) in grown.reads.items()} == {
            b: n for b, (n, _) in flat.reads.items()}
        # expand puts the producer in the place of the load and its index; here they stand over it
        assert grown.nodes >= flat.nodes and grown.depth >= flat.depth
        assert grown.nodes - size.nodes == sum(
            size.reads[b][0] * sizes[b].nodes for b in sizes if b in size.reads)
        names.append(f"t{step}")
        sizes[f"t{step}"], bodies[f"t{step}"] = grown, body

"""The operators of Gensor's published tables, two-level machines, and brute force on the model."""

import numpy as np
from te_programs import Maker, ax, conv2d, matmul

from aotc.ir.expr import Const
from aotc.ir.schedule import Group
from aotc.sched.choose.gensor import MAX_VTHREADS, TileSpace, TileState, cache_multiplier
from aotc.sched.cost.group_cost import compute_seconds, level_seconds
from aotc.sched.model.group_model import group_model
from aotc.target.base import Machine, Memory

# a large GPU: device memory, 100 KiB of shared memory and 512 bytes of registers a thread
GPU = Machine((Memory("device", 1 << 40, 1.0e12, "device", latency=500e-9, transaction=32),
               Memory("shared", 100 << 10, 20e12 / 128, latency=30e-9, banks=32),
               Memory("register", 512, 1e15, "thread")), 128, 80e12 / 128, 1, scratch="shared")


def gemm(m, k, n):
    p = Maker("gemm")
    p.input("a", m, k)
    p.input("b", k, n)
    matmul(p, "y", "a", "b")
    return p.done("y")


def gemv(m, k):
    p = Maker("gemv")
    p.input("a", m, k)
    p.input("x", k)
    i, r = ax("i", m), ax("r", k)
    p.step("y", (i,), p.ref("a", i, r) * p.ref("x", r), (r,), "sum")
    return p.done("y")


def conv(n, c, size, oc, stride):
    """Valid 3x3 convolution of an n,c,size,size image; the weights are an input, no array."""
    p = Maker("conv")
    p.input("x", n, c, size, size)
    p.input("w", oc, c, 3, 3)
    conv2d(p, "y", "x", "w", stride)
    return p.done("y")


def avgpool(n, c, size, window, stride):
    p = Maker("pool")
    p.input("x", n, c, size, size)
    out = (size - window) // stride + 1
    b, ch, oh, ow = ax("n", n), ax("c", c), ax("oh", out), ax("ow", out)
    i, j = ax("i", window), ax("j", window)
    p.step("s", (b, ch, oh, ow), p.ref("x", b, ch, oh * stride + i, ow * stride + j), (i, j),
           "sum")
    p.pointwise("y", "s", lambda e, _: e * Const(1 / window ** 2, "f32"))
    return p.done("y")


# name -> (Program, size of the output's rows or None, GFLOP or None)
TABLE_IV = {
    "C1": (conv(128, 256, 30, 256, 2), 14, 29.6), "C2": (conv(128, 128, 28, 128, 1), 26, 25.5),
    "C3": (conv(128, 128, 58, 128, 2), 28, 29.6), "M1": (gemm(8192, 8192, 8192), None, 1099.5),
    "M2": (gemm(65536, 4, 1024), None, 0.537), "M3": (gemm(65536, 1024, 4096), None, 549.8),
    "V1": (gemv(16384, 16384), None, 0.537), "V2": (gemv(16384, 8192), None, 0.268),
    "V3": (gemv(16384, 1000), None, 0.033), "P1": (avgpool(16, 48, 48, 2, 2), 24, None),
    "P2": (avgpool(128, 168, 83, 2, 2), 41, None), "P3": (avgpool(128, 617, 21, 3, 2), 10, None)}
EXTRA = {"4096x4096x128": gemm(4096, 128, 4096), "512x2304x768": gemm(512, 768, 2304),
         "32768x2048x64": gemm(32768, 64, 2048), "16384x1024x32": gemm(16384, 32, 1024),
         "1024x2304x768": gemm(1024, 768, 2304)}
OPERATORS = {name: p for name, (p, _, _) in TABLE_IV.items()} | EXTRA


def one_group(program):
    """The model of a Program as one register-connected group."""
    names = tuple(s.outs[0] for s in program.steps)
    fold = next((s.outs[0] for s in program.steps if s.fold != "none"), names[-1])
    connect = {b: "register" for b in names if b not in program.outputs}
    return group_model(program, Group("g", names, program.outputs, fold, connect))


def printed_benefit(q, q_new, f, f_new):
    """Benefit of a tile move as the paper's formula has it; its text has the footprints the other
    way round."""
    return q / q_new * (f_new / f)


def nearer(moved, low, high):
    """Time of one exchange of ``moved`` bytes with a memory over that with the one inside it: the
    printed benefit of the next level."""
    return (low.latency + moved / low.bandwidth) / (high.latency + moved / high.bandwidth)


def printed_moves(space, state, t):
    """[(weight, State)] of tile and cache moves with the benefits as printed, and of none; ``t``:
    steps since entering the level."""
    number = len(state.tiles) - 1
    tile, outer = state.tiles[-1], state.tiles[-2] if number else space.model.extents
    q, f = space.measure(number, tile)
    out = [(printed_benefit(q, space.measure(number, new)[0], f, space.measure(number, new)[1]),
            TileState(state.tiles[:-1] + (new,)))
           for new, _ in space.neighbours(tile, outer) if space.fits(number, new)]
    out.append((sum(w for w, _ in out) / len(out) / 4 if out else 1.0, state))
    if number + 1 < space.depth:
        out.append((cache_multiplier(t) * nearer(f, *space.machine.memories[number:number + 2]),
                    TileState(state.tiles + (space.least,))))
    return out


def brute_force(model, machine):
    """Least seconds over every pair of nested tiles on the ladders of a two-level machine, for
    every number of virtual threads.  Exact: traffic of the inner level only has to be known for the
    best tile inside each outer one, a running minimum along every axis; a tile larger than one that
    does not fit does not fit either; a pair needs no less than its inner tile and arithmetic."""
    space = TileSpace(model, machine)
    shape = tuple(map(len, space.rungs))
    inner, fitting = np.full(shape, np.inf), np.zeros(shape, bool)
    for at in np.ndindex(shape):  # smaller tiles first
        tile = tuple(rungs[n] for rungs, n in zip(space.rungs, at))
        below = (at[:i] + (n - 1,) + at[i + 1:] for i, n in enumerate(at) if n)
        if not all(map(fitting.__getitem__, below)) or not space.fits(1, tile):
            continue
        fitting[at], (moved, live) = True, space.measure(1, tile)
        for v in (1, 2, 4, MAX_VTHREADS):
            if tile[model.rank - 1] % v == 0 and live * v <= space.room(1):
                inner[at] = min(inner[at], level_seconds(model, machine, 1, tile, moved, v))
    for axis in range(len(shape)):
        inner = np.minimum.accumulate(inner, axis)
    best = np.inf
    for at in zip(*np.unravel_index(np.argsort(inner, axis=None, kind="stable"), shape)):
        if inner[at] >= best:
            break
        tile = tuple(rungs[n] for rungs, n in zip(space.rungs, at))
        util, compute = compute_seconds(model, machine, tile)
        if max(compute, inner[at]) < best * util and space.fits(0, tile):
            outer = level_seconds(model, machine, 0, tile, space.measure(0, tile)[0])
            best = min(best, max(outer, compute, inner[at]) / util)
    return best + machine.launch


__all__ = ["EXTRA", "GPU", "OPERATORS", "TABLE_IV", "brute_force", "nearer", "one_group",
           "printed_benefit", "printed_moves"]

"""Plans stay inside their buffers: planted faults are named, legal Plans are accepted (those of all
tests that compile Programs, besides: ``harness.compile_program`` asks of each)."""

from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import relowered
from group_cases import GROUPS, schedule
from te_programs import Maker, ax, conv2d
from te_random import random_program, random_schedule

from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Load,
    Sym,
    Where,
    check_index,
    compare,
    maximum,
    minimum,
    rewrite,
    walk,
)
from aotc.ir.indices.polynomial import ONE
from aotc.ir.kernel.plan_stages import Contract, Nest, Unrolled
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import to_poly
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.prove import ProofScope, is_never_negative
from aotc.passes.inline import inline_moves
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import complete, decide, lower
from aotc.target import get_target

TARGETS = [get_target(n) for n in ("x86-64-v4", "c", "riscv64", "cuda:sm_80")]
V4 = TARGETS[0]


def planned(name, number=0, target=V4):
    (p, connect, anchor, *run), tiles, _ = GROUPS[name]
    s = schedule(target, p, connect, tiles[number], anchor, **(run[0] if run else {}))
    return lower(p, complete(p, s, target), target)


def mutated(plan, change, kind=Nest, number=0, stage=0):
    """The Plan with ``change`` made to a stage of ``kind``, the ``stage``-th such of a kernel."""
    k = plan.kernels[number]
    at = [i for i, s in enumerate(k.lowered.stages) if isinstance(s, kind)][stage]
    stages = list(k.lowered.stages)
    stages[at] = change(stages[at])
    kernels = list(plan.kernels)
    kernels[number] = relowered(k, stages=tuple(stages))
    return replace(plan, kernels=tuple(kernels))


# ---------------------------------------------------------------- legal Plans

@pytest.mark.parametrize("target", [
    pytest.param(t, id=t.name, marks=pytest.mark.product if k % 2 else ())
    for k, t in enumerate(TARGETS)])
def test_random_programs_stay_inside(target):
    first = 12 * TARGETS.index(target)
    for seed in range(first, first + 12):
        p = random_program(seed, library=target.library)
        p = inline_moves(p) if seed % 3 else p
        assert plan_faults(lower(p, random_schedule(p, target, seed), target)) == [], seed


@pytest.mark.parametrize("target", [V4, get_target("cuda:sm_90")], ids=lambda t: t.name)
def test_rows_of_a_scratch_that_begin_at_a_remainder_stay_inside(target):
    """A tile of one line of shuffled pixels begins at channel 2 * (line % 2) of its scratch, which
    lies by lines, columns, channels, and a second piece follows: half of the tiles need none."""
    m = Maker()
    m.input("x", 2, 1, 64, 4, 4)
    m.input("z", 1, 16, 8, 8)
    part, n, c, h, w = ax("part", 2), ax("n", 1), ax("c", 64), ax("h", 4), ax("w", 4)
    m.step("s", (n, c, h, w), m.ref("x", part, n, c, h, w), (part,), "sum")
    b, k, i, j = ax("b", 1), ax("k", 32), ax("i", 8), ax("j", 8)
    m.step("y", (b, k, i, j), Where(
        compare("lt", k, 16), m.ref("s", b, k * 4 + i % 2 * 2 + j % 2, i // 2, j // 2),
        m.ref("z", b, k - 16, i, j)))
    p, near = m.done("y"), target.machine.near.name
    s = replace(schedule(target, p, {"s": near}, {"k": 8, "i": 1}, "y"),
                layouts={"s": (("reorder", (0, 2, 3, 1)),)})
    assert plan_faults(lower(p, complete(p, s, target), target)) == []


# ---------------------------------------------------------------- planted faults

def names(plan, *parts):
    """True if every fault of the Plan is told with kernel and stage, and one says all parts."""
    faults = plan_faults(plan)
    assert all(f.startswith("kernel k0") for f in faults)
    return any(all(p in f for p in parts) for f in faults)


@pytest.mark.parametrize("name", ["convolutions", "valid convolutions", "mlp", "masks",
                                  "sliding convolutions", "sliding chain", "symbolic mlp"])
def test_scratch_short_by_one(name):
    plan = planned(name)
    for i, s in enumerate(plan.kernels[0].scratch):
        k = plan.kernels[0]
        short = k.scratch[:i] + (replace(s, elements=s.elements - 1),) + k.scratch[i + 1:]
        assert names(replace(plan, kernels=(relowered(k, scratch=short),)), s.name,
                     str(s.elements - 1)), s.name


def test_range_too_long():
    plan = planned("masks")

    def longer(c):
        m = (replace(c.m[0], hi=c.m[0].hi + 1),) + c.m[1:]
        return replace(c, m=m, whole=())

    for stage in range(2):
        assert names(mutated(plan, longer, Contract, stage=stage), f"stage {stage}",
                     "i in 0..11 leaves 0..10")

    def over_the_edge(c):  # of the tile, not of the tensor
        return replace(c, n=replace(c.n, hi=c.n.hi + 1), whole=())

    assert names(mutated(plan, over_the_edge, Contract, stage=1), "stage 1", "w in w_lo")


def test_tiles_that_are_not_whole():
    """What wrote outside: columns of a work item that fill no register tile, said to fill it."""
    plan = planned("masks", 1)
    c = plan.kernels[0].lowered.stages[1]
    assert "columns" not in c.whole
    assert names(mutated(plan, lambda c: replace(c, whole=("columns",)), Contract, stage=1),
                 "stage 1", "columns are not whole")


def test_offset_shifted():
    def shifted(by):
        return lambda s: replace(s, puts=tuple(replace(p, offset=p.offset + by) for p in s.puts))

    for plan, kind in ((planned("norm"), Nest), (planned("masks"), Contract)):
        assert names(mutated(plan, shifted(1), kind), "store", "past its")
        assert names(mutated(plan, shifted(-1), kind), "store", "below 0")


def test_guard_dropped():
    """Padding: a load that happens outside of the tensor, without its condition."""
    m = Maker()
    m.input("x", 6)
    i, k = ax("i", 6), ax("k", 3)
    inside = Binary("and", compare("ge", i + k - 1, Const(0)), compare("lt", i + k - 1, Const(6)))
    m.step("y", (i, k), Where(inside, m.ref("x", i + k - 1), Const(5, "f32")))
    p = m.done("y")
    plan = lower(p, decide(p, get_target("c")), get_target("c"))
    assert plan_faults(plan) == []

    def bare(s):
        return replace(s, puts=tuple(replace(p, value=p.value.a) for p in s.puts))

    bad = mutated(plan, bare)
    assert names(bad, "load of x[", "below 0") and names(bad, "load of x[", "past its 6")


def test_guards_of_written_out_stages():
    """A transform whose blocks do not divide: stores have conditions, loads have flags."""
    m = Maker()
    m.input("x", 1, 5, 7, 9)
    conv2d(m, "c", "x", m.const("w", np.ones((6, 5, 3, 3), np.float32)), 1, 1)
    p = m.done("c")
    s = decide(p, V4, winograd=(("winograd", "c", {"oh": 4, "ow": 4}),))
    p = apply_rewrites(p, s.rewrites)
    plan = lower(p, s, V4)
    assert plan_faults(plan) == []
    k = next(i for i, k in enumerate(plan.kernels) if any(isinstance(s, Unrolled)
                                                          for s in k.lowered.stages))
    never = mutated(plan, lambda s: replace(s, flags=tuple(
        (v, Const(True, "bool")) for v, _ in s.flags)), Unrolled, number=k)
    assert names(never, "load of")


def test_names_that_nothing_binds():
    plan = planned("picked")
    k = plan.kernels[0]
    assert names(replace(plan, kernels=(relowered(k, let=k.lowered.let + (
        (Axis("last", Const(4)), minimum(k.lowered.stages[-1].acc[0], Const(3))),)),)), "acc",
        "which nothing before it binds")
    alien = mutated(plan, lambda s: replace(s, puts=(replace(
        s.puts[0], offset=s.puts[0].offset + Axis("alien", Const(1))),) + s.puts[1:]))
    assert names(alien, "uses alien")


def test_place_from_data_outside_of_the_box():
    """The fallback of a failed check lies in the box of a tile, not in front of it."""
    m = Maker()
    m.input("x", 8, 3)
    m.input("k", dtype="i64")
    i, j = ax("i", 8), ax("j", 3)
    m.pointwise("t", "x", lambda e, _: e * Const(2, "f32"))
    picked = Where(compare("eq", m.ref("k"), Const(0)), i, Const(8))
    m.step("y", (i, j), m.ref("t", check_index(picked, 8), j))
    p = m.done("y")
    c = get_target("c")
    s = complete(p, Schedule("c", (Group("g", ("t", "y"), ("y",), "y", {"t": "L1"}, {"i": 2},
                                         parallel=("i",)),)), c)
    plan = lower(p, s, c)
    assert plan_faults(plan) == []

    value = plan.kernels[0].lowered.stages[-1].puts[0].value
    bounded = next(n for n in walk(value) if isinstance(n, Binary) and n.op == "max")
    rest = bounded.a if bounded.b == Const(0) else bounded.b
    bad = mutated(plan, lambda s: replace(s, puts=(replace(
        s.puts[0], value=rewrite(value, lambda n: rest if n == bounded else None)),)), stage=-1)
    assert names(bad, "load of t[", "below 0")


def test_library_calls():
    p = next(random_program(seed) for seed in range(200)
             if any(hasattr(s, "kernel") for s in random_program(seed).steps))
    plan = lower(p, decide(p, V4), V4)
    number, call = next((i, s) for i, k in enumerate(plan.kernels) for s in k.lowered.stages
                        if hasattr(s, "operands"))
    first = call.operands[0]
    bad = mutated(plan, lambda s: replace(s, operands=(replace(first, offset=first.offset + 1),
                                                     *s.operands[1:])),
                  type(call), number)
    assert names(bad, "call", first.buffer)
    wrong = mutated(plan, lambda s: replace(s, numbers=(s.numbers[0] + 1, *s.numbers[1:])),
                    type(call), number)
    assert names(wrong, "other extents")
    unknown = mutated(plan, lambda s: replace(s, kernel="nothing"), type(call), number)
    assert names(unknown, "no library kernel has that name")
    nowhere = mutated(plan, lambda s: replace(s, operands=(replace(first, buffer="gone"),
                                                         *s.operands[1:])),
                      type(call), number)
    assert names(nowhere, "no buffer gone")


# ---------------------------------------------------------------- proofs

LO, I, TILE = (Axis(n, Const(64)) for n in ("lo", "i", "tile"))


def scope(extent=20, tile=8):
    steps = -(-extent // tile)
    return ProofScope({TILE: ("range", Const(0), Const(steps - 1)), LO: ("value", TILE * tile),
                       I: ("range", LO, minimum(LO + tile, Const(extent)) - 1)})


def test_ends_of_tiles_stay_tied():
    assert is_never_negative(19 - I, scope()) and not is_never_negative(18 - I, scope())
    assert is_never_negative(LO + 7 - I, scope()) and not is_never_negative(LO + 6 - I, scope())
    halo = maximum(LO - 1, Const(0))
    assert is_never_negative(minimum(LO + 8, Const(19)) - halo, scope())
    assert is_never_negative(9 - (minimum(LO + 8, Const(19)) - halo), scope())
    assert not is_never_negative(8 - (minimum(LO + 8, Const(19)) - halo), scope())


def test_quotients_and_remainders():
    assert is_never_negative(Const(4) - I // 4, scope())
    assert is_never_negative(I // 4 - LO // 4, scope())
    assert is_never_negative(Const(1) - (I // 4 - LO // 4), scope())
    assert is_never_negative(Const(3) - I % 4,
                             scope()) and not is_never_negative(2 - I % 4, scope())
    # i lies in the first columns of a row of 8 by what is known: so does i + 5 in the row
    assert is_never_negative(LO + 7 - I - 5, scope(24), (2 - I % 8,))
    assert is_never_negative(9 - I, scope(), (4 - I // 2,))
    assert not is_never_negative(8 - I, scope(), (4 - I // 2,))


def test_a_remainder_at_which_a_range_begins_joins_its_quotient():
    first = LO % 2 * 2
    s = ProofScope({LO: ("value", TILE % 32), I: ("range", first, minimum(first + 5, Const(6)))})
    at = I - LO * 2 + LO // 2 * 4  # what is behind the first
    assert is_never_negative(at, s) and is_never_negative(5 - at, s)
    assert not is_never_negative(at - 1, s) and not is_never_negative(4 - at, s)


def test_facts_and_symbols():
    n, m = Sym("n", 1, 1 << 40), Sym("m", 0, 1 << 40)
    j = Axis("j", n)
    s = ProofScope({I: ("range", Const(0), m - 1), j: ("range", Const(0), n - 1)})
    assert is_never_negative(n * m - 1 - (I * n + j), s)
    assert not is_never_negative(n * m - 2 - (I * n + j), s)
    assert is_never_negative(m - n, s, (m - n - 3,)) and not is_never_negative(m - n, s)


def test_numbers_beyond_64_bits_refute_nothing():
    n = Sym("n", 1, 9)
    assert ProofScope({}).refutes(to_poly(n - 5), ()) is True
    assert ProofScope({}).refutes({ONE: -1 << 70, (n,): 1}, ()) is None


def test_what_data_divides_is_proved_by_the_range_of_its_table():
    place = Load("t", (ax("i", 8),), "i64")
    first = Const(1) - place // 27  # at most the second of runs of 27
    counts, signed = (ProofScope(tables={"t": (least, 200)}) for least in (0, -1))
    assert is_never_negative(Const(53) - place, counts, (first,))
    assert not is_never_negative(Const(52) - place, counts, (first,))
    assert not is_never_negative(place, signed, (first,))  # no number of digits

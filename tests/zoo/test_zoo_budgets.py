"""What every model of the zoo may cost: arena near the least possible, little C text.  Bytes and
counts, never times, so the numbers are the same on every machine."""

import pytest
from zoo_files import OTHERS, SMALL, SMALLEST
from zoo_plans import TARGET, planned

from aotc.emit.c.kernels import render_kernels
from aotc.ir.expr import Const, Sym, substitute, walk
from aotc.ir.simplify import simplify
from aotc.options import Options
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched.memory.allocate import find_in_place, liveness, slot_sizes
from aotc.sched.model.stored_sizes import buffer_bytes
from aotc.sched.report.summary import summarise
from aotc.target import TARGETS

ARENA, TEXT_BYTES = 1.1, 3 << 20


SHARES = (0.0, 0.05, 0.25, 0.7, 1.0)  # of a dynamic dimension's range


def arena_and_bound(program, schedule, share):
    """(bytes of the arena, most bytes that live at one time) where every dynamic dimension has
    come so far in its range."""
    live = liveness(program, schedule.groups)
    owner = {b: b for b in live}
    for i, g in enumerate(schedule.groups):
        for out, source in find_in_place(program, schedule, g, live, i).items():
            owner[out] = owner[source]
    spans = {}
    for b, root in owner.items():
        first, last = spans.get(root, live[b])
        spans[root] = (min(first, live[b][0]), max(last, live[b][1]))

    def bytes_of(size):
        syms = {n: Const(n.lo + int(share * (n.reach - n.lo))) for n in walk(size)
                if isinstance(n, Sym)}
        return simplify(substitute(size, syms)).value

    size = {b: bytes_of(buffer_bytes(program, schedule, b)) for b in spans}
    bound = max((sum(size[b] for b, (first, last) in spans.items() if first <= i <= last)
                 for i in range(len(schedule.groups))), default=0)
    return sum(map(bytes_of, slot_sizes(program, schedule))), bound


@pytest.mark.parametrize("name", [
    SMALLEST[-1], *(pytest.param(n, marks=pytest.mark.zoo) for n in (*SMALL, *OTHERS)
                    if n != SMALLEST[-1])])
def test_arena_and_text_stay_small(zoo_model, name):
    work = planned(zoo_model(name))
    program = apply_rewrites(work.program, work.schedule.rewrites)
    for share in SHARES if program.syms else (0,):
        arena, bound = arena_and_bound(program, work.schedule, share)
        assert arena <= ARENA * bound, share
    text = render_kernels(work.plan, TARGETS[TARGET])
    assert sum(map(len, text.values())) <= TEXT_BYTES


@pytest.mark.zoo
@pytest.mark.parametrize("name, target, share", [
    *((n, TARGET, 0.5) for n in ("nafnet", "restormer", "mobilevit_s", "swin_tiny")),
    # the first convolution, of one channel, stores what takes no longer to store than to make again
    ("conformer", TARGET, 0.6), ("conformer", "x86-64-v3", 0.6)])
def test_connecting_saves_much_of_what_is_stored(zoo_model, name, target, share):
    stored = {}
    for how in ("register", "all"):
        work = run_pipeline(Options(zoo_model(name), target=target, connect=how,
                                    stop_after="schedule"))
        stored[how] = summarise(work.program, work.schedule, work.target)["stored_bytes"]
    assert stored["all"] <= share * stored["register"], stored

"""What every model of the zoo may cost: arena near the least possible, little C text.  Bytes and
counts, never times, so the numbers are the same on every machine."""

import pytest
from test_zoo import OTHERS, SMALL

from aotc.emit.kernels import render_kernels
from aotc.ir.program import static_shape
from aotc.ir.rewrites import apply_rewrites
from aotc.pipeline import Options, run_pipeline
from aotc.sched.allocate import buffer_bytes, in_place, liveness, slot_sizes
from aotc.target import TARGETS

ARENA, TEXT_BYTES = 1.1, 3 << 20


def arena_and_bound(program, schedule):
    """(bytes of the arena, most bytes that live at one time); None for dynamic shapes."""
    live = liveness(program, schedule.groups)
    if any(static_shape(program.shape(b)) is None for b in live):
        return None
    owner = {b: b for b in live}
    for i, g in enumerate(schedule.groups):
        for out, source in in_place(program, schedule, g, live, i).items():
            owner[out] = owner[source]
    spans = {}
    for b, root in owner.items():
        first, last = spans.get(root, live[b])
        spans[root] = (min(first, live[b][0]), max(last, live[b][1]))
    size = {b: buffer_bytes(program, schedule, b).value for b in spans}
    bound = max((sum(size[b] for b, (first, last) in spans.items() if first <= i <= last)
                 for i in range(len(schedule.groups))), default=0)
    return sum(s.value for s in slot_sizes(program, schedule)), bound


@pytest.mark.parametrize("name", [
    *SMALL, *(pytest.param(n, marks=pytest.mark.zoo) for n in OTHERS)])
def test_arena_and_text_stay_small(zoo_model, name):
    work = run_pipeline(Options(zoo_model(name), target="x86-64-v4", stop_after="plan"))
    program = apply_rewrites(work.program, work.schedule.rewrites)
    sizes = arena_and_bound(program, work.schedule)
    if sizes is not None:
        assert sizes[0] <= ARENA * sizes[1], sizes
    text = render_kernels(work.plan, TARGETS["x86-64-v4"])
    assert sum(map(len, text.values())) <= TEXT_BYTES

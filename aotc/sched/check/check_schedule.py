"""Legality of a Schedule, written down: every fault with the legal choices."""

from collections import Counter

from aotc.errors import ScheduleError
from aotc.ir.access import dim_order, layout_from_json, volume
from aotc.ir.program import Branch, Loop, Program
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import upper
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.accelerator.kernels import store_faults
from aotc.sched.check.check_group import check_group
from aotc.sched.check.precision_faults import (
    grouping_faults,
    precision_faults,
    stored_faults,
)
from aotc.sched.memory.allocate import find_in_place, lives
from aotc.sched.model.size import reach
from aotc.sched.model.stored_sizes import part_bytes
from aotc.sched.rows.settled_choices import called_buffers
from aotc.sched.shape_variants import parts
from aotc.target.base import Target

# physical elements of a layout per logical one; a column alone in a panel of 4-bit weights has 128
MAX_GROWTH = 256
MAX_ARENA = 1 << 40  # bytes


def check_schedule(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """List of faults (empty if the Schedule is legal for this Program and target).  ``program``:
    without rewrites applied, or with those of a Schedule that has no variants."""
    if schedule.variants:
        try:
            found = parts(program, schedule)
        except ScheduleError as err:
            return err.faults
        return [f"{p.title}: {f}" for p in found
                for f in check_schedule(p.program, p.schedule, target)]
    try:
        program = apply_rewrites(program, schedule.rewrites)
        faults = precision_faults(schedule) + grouping_faults(schedule) + stored_faults(
            schedule, target)
    except ScheduleError as err:
        faults = [*err.faults]  # the rest is read as if there were none
    faults += check_kernels(program, schedule, target)
    return faults or _buffers(program, schedule) or store_faults(program, schedule, target)


def check_kernels(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Faults of a Schedule's groups and layouts: of all but the places of buffers in the arena.
    ``program`` has its rewrites applied."""
    faults = []
    if schedule.target != target.name:
        faults.append(f"schedule is for target {schedule.target}, compiling for {target.name}; "
                      "remove its ukernel and loops fields to have them chosen again")
    faults += _coverage(program, schedule)
    faults += _regions(program, schedule, target)
    wrong = layout_faults(program, schedule)
    faults += wrong
    known = {s.outs[0]: set(s.outs) for s in program.steps}
    rows = [u.name for u in target.ukernels]
    for g in schedule.groups:
        faults += [f"group {g.name}: ukernel {r!r} of {s}: target {target.name} has "
                   + ", ".join(rows) for s, r in g.rows.items() if r not in rows]
        made = {o for c in g.computes for o in known.get(c, ())}
        if not wrong and made.issuperset(g.outputs) and all(c in known for c in g.computes):
            faults += check_group(program, schedule, target, g)
    return faults


def _regions(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Every body of every region has a Schedule without faults."""
    found = {s.name: s for s in program.steps if isinstance(s, (Loop, Branch))}
    faults = [f"regions: no region {name!r}; the program has {', '.join(found) or 'none'}"
              for name in schedule.regions if name not in found]
    for name, region in found.items():
        own = schedule.regions.get(name, ())
        if len(own) != len(region.bodies):
            faults.append(f"regions[{name}]: {len(own)} schedules for {len(region.bodies)} bodies; "
                          "remove the whole entry to have them made")
            continue
        if any(s.variants for s in own):
            faults.append(f"regions[{name}]: a body has no variants; they are of whole calls, put "
                          "them into the schedule around it")
            continue
        faults += [f"regions[{name}]: {b} in {x.memory}; a body runs in rounds, store it in "
                   f"{target.machine.memory.name}" for s in own for b, x in s.buffers.items()
                   if x.memory]
        faults += [f"region {name}: {f}" for body, s in zip(region.bodies, own)
                   for f in check_schedule(body, s, target)]
    return faults


def _coverage(program: Program, schedule: Schedule) -> list[str]:
    faults: list[str] = []
    seen: dict[str, str] = {}
    stored = set(program.inputs) | set(program.consts)
    names = {s.outs[0] for s in program.steps}
    group_names = [g.name for g in schedule.groups]
    faults += [f"group {n}: name used twice" for n, k in Counter(group_names).items() if k > 1]
    for g in schedule.groups:
        for c in g.computes:
            if c not in names:
                faults.append(f"group {g.name}: no compute {c!r} in the program; known: "
                              + ", ".join(sorted(names - set(seen))[:12]))
            if c in seen:
                faults.append(f"group {g.name}: {c} is already computed in group {seen[c]}")
            seen.setdefault(c, g.name)
        known = [c for c in g.computes if c in names]
        inside = {o for c in known for o in program.producer[c].outs}
        for c in known:
            for b in program.producer[c].inputs:
                if b not in stored and b not in inside:
                    faults.append(f"group {g.name}: {c} reads {b}, which no earlier group stores; "
                                  "move the group or add it to that group's outputs")
        made = {o for c in known for o in program.producer[c].outs}
        faults += [f"group {g.name}: output {o!r} is not computed in it; choose from "
                   + ", ".join(sorted(made)) for o in g.outputs if o not in made]
        if g.anchor not in inside:
            faults.append(f"group {g.name}: anchor {g.anchor!r} is not one of {sorted(inside)}")
        stored |= set(g.outputs)
    missing = sorted(names - set(seen))
    if missing:
        faults.append("schedule: no group computes " + ", ".join(missing))
    faults += [f"schedule: program output {o} is not stored by any group"
               for o in program.outputs if o not in stored]
    return faults


def layout_faults(program: Program, schedule: Schedule) -> list[str]:
    """Faults of ``layouts``: unknown buffers, those that have none to choose, what is no layout of
    the tensor's extents.  ``program`` has its rewrites applied."""
    faults, stored = [], {b for g in schedule.groups for b in g.outputs}
    called = called_buffers(program)
    scratch = {b for g in schedule.groups for b, lv in g.connect.items() if lv != "register"}
    for name, data in schedule.layouts.items():
        if name not in program.buffers:
            faults.append(f"layouts: no buffer {name!r}")
            continue
        if program.buffers[name].role in ("input", "output"):
            faults.append(f"layouts: {name} is the caller's memory and stays row-major")
            continue
        if name in called:
            faults.append(f"layouts: {name} is touched by a library call and stays row-major")
            continue
        tile = program.buffers[name].role == "temp" and name not in stored
        if tile and name not in scratch:
            faults.append(f"layouts: {name} is not stored, its layout means nothing; remove it")
            continue
        try:
            layout = layout_from_json(data)
            shape = layout.shape(program.shape(name))
        except ScheduleError as err:
            faults += [f"layouts: {name}: {f}" for f in err.faults]
            continue
        if tile and dim_order(layout, len(program.shape(name))) is None:
            faults.append(f"layouts: {name} is a tile in scratch, which can only be reordered")
        size, plain = (reach(volume(d)) for d in (shape, program.shape(name)))
        if size is not None and plain is not None and size > MAX_GROWTH * max(plain, 64):
            faults.append(f"layouts: {name}: {size} elements for {plain} logical ones; at most "
                          f"{MAX_GROWTH} times as many")
    return faults


def _buffers(program: Program, schedule: Schedule) -> list[str]:
    """Every stored temp has a place and no two live at once overlap."""
    live = lives(program, schedule)
    faults = [f"buffers: {b} has no slot; remove the whole buffers field to have it planned"
              for b in live if b not in schedule.buffers]
    faults += [f"buffers: {b} is not stored by any group" for b in schedule.buffers
               if b not in live]
    if faults:
        return faults
    shared = {}
    for i, g in enumerate(() if schedule.order else schedule.groups):
        for out, src in find_in_place(program, schedule, g, live, i).items():
            shared[out] = (src, i)
    names = sorted(live, key=lambda b: live[b])
    most_bytes = {b: upper(part_bytes(program, schedule, b)) for b in names}
    sizes = {b: MAX_ARENA if n is None else n for b, n in most_bytes.items()}
    places = [schedule.buffers[b] for b in names]
    most = sum(max(1, p.span) for p in places) + len({p.memory for p in places})
    for i, a in enumerate(names):
        pa = schedule.buffers[a]
        if pa.offset % 64 or not 0 <= pa.offset < MAX_ARENA:
            faults.append(f"buffers: {a}: offset {pa.offset} must be a multiple of 64 in "
                          f"0..{MAX_ARENA}")
        if pa.span < 1 or pa.span > 1 and pa.offset:
            faults.append(f"buffers: {a}: span {pa.span} with offset {pa.offset}; a span is at "
                          "least 1, and of several slots only whole ones can be taken (offset 0)")
        if not 0 <= pa.slot <= most - max(1, pa.span):
            faults.append(f"buffers: {a}: slot {pa.slot}, span {pa.span}; choose from slots "
                          f"0..{most - 1}")
        for b in names[i + 1:]:
            pb = schedule.buffers[b]
            if live[b][0] > live[a][1]:
                break  # so are all behind it: they are sorted
            if pa.slot + pa.span <= pb.slot or pb.slot + pb.span <= pa.slot:
                continue
            if shared.get(b, (None,))[0] == a and pa == pb and live[a][1] == live[b][0]:
                continue
            size_a, size_b = sizes[a], sizes[b]
            if max(pa.span, pb.span) > 1 or (
                    pa.offset < pb.offset + size_b and pb.offset < pa.offset + size_a):
                faults.append(f"buffers: {a} and {b} are live together (groups "
                              f"{live[b][0]}..{live[a][1]}) and overlap in slot "
                              f"{max(pa.slot, pb.slot)}")
    return faults

"""Wrong edits of a Schedule: every fault is listed, with the legal choices."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from edits import tables, with_tables
from schedule_cases import GOOD, PROGRAM, TARGET, named
from te_programs import Maker, ax, matmul, softmax

from aotc.errors import ScheduleError
from aotc.ir.expr import Cast, Const, Sym
from aotc.ir.layout import Layout, Split
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.stage_choice import TABLES, StageChoice
from aotc.sched import check_schedule, complete, decide, lower

SAID = named(GOOD, "a").choices["a"].said  # of a product


def edited(compute, **fields):
    """GOOD with one group's fields changed; dict fields are updated, None removes a key."""
    group = named(GOOD, compute)
    for key, value in fields.items():
        if isinstance(value, dict):
            had = tables(group)[key] if key in TABLES else getattr(group, key)
            fields[key] = {k: v for k, v in (had | value).items() if v is not None}
    return replace(GOOD, groups=tuple(with_tables(g, **fields) if g is group else g
                                      for g in GOOD.groups))


def faults(schedule):
    return check_schedule(PROGRAM, schedule, TARGET)


def test_the_decided_schedule_has_no_faults():
    assert faults(GOOD) == []
    assert {g.anchor for g in GOOD.groups} >= {"a", "y", "pool"}


# what is edited -> a part of the one fault that must come out
EDITS = {
    "target": (replace(GOOD, target="c"), "schedule is for target c, compiling for x86-64-v3"),
    "rewrite": (replace(GOOD, rewrites=(("winograd", "a", {"i": 2}),)),
                "rewrites: winograd of a: no convolution with constant weights"),
    "rule": (replace(GOOD, rewrites=(("faster", "a", {}),)),
             "rewrites: rule 'faster'; choose from winograd"),
    "compute": (edited("a", computes=("a", "nothing", *named(GOOD, "a").computes[1:])),
                "no compute 'nothing' in the program"),
    "output": (edited("a", outputs=(*named(GOOD, "a").outputs, "x")),
               "output 'x' is not computed in it; choose from"),
    "anchor": (edited("a", anchor="y"), "anchor 'y' is not one of"),
    "inlined anchor": (edited("s", anchor="s_exp", connect={"s_exp": "register"}), "s_exp"),
    "connect level": (edited("a", connect={"a": "L7"}), "connect level 'L7' of a; choose from "
                      "register, L1, L2"),
    "no level": (edited("a", connect={"a": None}), "b reads a, which connect gives no level; "
                 "choose from register, L1, L2"),
    "foreign edge": (edited("a", connect={"s": "L1"}), "connect names 's', which does not flow "
                     "inside it; edges: a"),
    "tiled axis": (edited("a", tile={"q": 4}), "tile of 'q'; the anchor's axes are i, j"),
    "tile extent": (edited("a", tile={"i": 0}), "tile i/0; a tile is an integer >= 1, at most 20"),
    "tile type": (edited("a", tile={"i": 2.5}), "tile i/2.5; a tile is an integer >= 1"),
    "parallel": (edited("a", tile={"i": 4}, parallel=("j",)), "parallel 'j' has no tile; tiled "
                 "axes: i"),
    "row of another target": (edited("a", ukernel={"a": "contraction_f32_6x64__avx512"}),
                              "contraction_f32_6x64__avx512' of a: target x86-64-v3 has"),
    "row of another category": (edited("a", ukernel={"a": "reduction_f32__avx2"}),
                                "ukernel 'reduction_f32__avx2'; legal here: contraction_f32"),
    "row of no stage": (edited("a", ukernel={"b": "loops"}), "ukernel of 'b', which is no stage; "
                        "stages: a"),
    "loops of no stage": (edited("a", loops={"b": {}}), "loops of 'b', which is no stage"),
    "unknown choice": (edited("a", loops={"a": SAID | {"unroll": 4}}),
                       "loops has 'unroll'; contraction_f32"),
    "lanes": (edited("pool", loops={"pool": {"lanes": "w"}}), "lanes 'w'; choose from i, o, k"),
    "block": (edited("pool", ukernel={"pool": "window_f32_4x__avx2"},
                     loops={"pool": {"lanes": "i", "block": "i"}}),
              "block 'i'; choose from o"),
    "contraction lanes": (edited("a", loops={"a": SAID | {"lanes": "k"}}),
                          "lanes 'k' belongs to one factor only in no orientation"),
    "contraction k": (edited("a", loops={"a": SAID | {"k": "i"}}),
                      "k 'i'; choose from k"),
    "operand a": (edited("a", loops={"a": SAID | {"a": "columns"}}),
                  "a 'columns'; choose rows or packed"),
    "operand b": (edited("a", loops={"a": SAID | {"b": "row"}}),
                  "b 'row'; choose panel, direct or packed"),
    "panel": (replace(GOOD, layouts={k: v for k, v in GOOD.layouts.items() if k != "w"}),
              "b 'panel' needs a constant laid out in panels of"),
    "direct": (edited("a", loops={"a": SAID | {"b": "direct"}}),
               "b 'direct' needs unit stride along j"),
    "split": (edited("a", split={"a": {"i": 8}}), "split of a: 'i' by 8; choose k and a positive"),
    "split of no stage": (edited("a", split={"b": {"k": 8}}), "split of 'b', which is no stage"),
    "split of a nest": (edited("a", ukernel={"a": "loops"}, loops={"a": dict.fromkeys(SAID)},
                               split={"a": {"k": 8}}), "split of a: sums run in slices where a"),
    "reuse": (edited("a", reuse={"a": "keep"}), "reuse 'keep' of a; choose recompute or slide"),
    "slide": (edited("a", reuse={"a": "slide"}), "a cannot slide, its work items make no steps"),
    "run": (edited("a", run={"k": 8}), "run k/8; choose a tiled axis"),
    "run in steps of nothing": (edited("a", tile={"i": 0}, run={"i": 8}), "tile i/0; a tile is"),
    "layout of the caller": (replace(GOOD, layouts=GOOD.layouts | {"x": GOOD.layouts["w"]}),
                             "x is the caller's memory and stays row-major"),
    "layout of nothing": (replace(GOOD, layouts=GOOD.layouts | {"zz": ()}), "no buffer 'zz'"),
    "layout of a tile": (replace(GOOD, layouts=GOOD.layouts | {"s_exp": Layout(
        (Split(1, (2, 20)),)).to_json()}), "s_exp is a tile in scratch, which can "
        "only be reordered"),
    "layout of a register": (replace(GOOD, layouts=GOOD.layouts | {"a": ()}),
                             "a is not stored, its layout means nothing"),
    "layout rank": (replace(GOOD, layouts=GOOD.layouts | {"s": (
        {"op": "reorder", "perm": (1, 0, 2)},)}), "layouts: s: "),
    "no place": (replace(GOOD, buffers={}), "s has no slot; remove the whole buffers field"),
    "place of nothing": (replace(GOOD, buffers=GOOD.buffers | {"a": Slot(0, 0)}),
                         "buffers: a is not stored by any group"),
    "alignment": (replace(GOOD, buffers={b: Slot(s.slot, s.offset + 4)
                                         for b, s in GOOD.buffers.items()}),
                  "must be a multiple of 64 in 0.."),
    "order": (replace(GOOD, groups=GOOD.groups[::-1]), "which no earlier group stores; move the "
              "group or add it to that group's outputs"),
    "missing group": (replace(GOOD, groups=tuple(g for g in GOOD.groups
                                                 if "pool" not in g.computes)),
                      "no group computes pool"),
    "name twice": (edited("a", name=GOOD.groups[-1].name), "name used twice"),
    "twice computed": (replace(GOOD, groups=(*GOOD.groups, replace(named(GOOD, "pool"),
                                                                   name="again"))),
                       "group again: pool is already computed in group"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_wrong_edit_is_named(edit):
    schedule, text = EDITS[edit]
    found = faults(schedule)
    assert any(text in f for f in found), found
    with pytest.raises(ScheduleError) as err:
        lower(PROGRAM, schedule, TARGET)
    assert err.value.faults == found


@pytest.mark.parametrize("edit", sorted(EDITS.keys() - {
    "target", "no place", "place of nothing", "alignment"}))
def test_a_wrong_edit_that_leaves_places_out_is_named_too(edit):
    schedule, text = EDITS[edit]
    found = faults(complete(PROGRAM, replace(schedule, buffers={}), TARGET))
    assert any(text in f for f in found), found


@pytest.mark.parametrize("edit", sorted(EDITS.keys() - {
    "target", "panel", "place of nothing", "alignment", "no place"}))
def test_no_row_is_chosen_from_what_is_wrong_beside_it(edit):
    schedule, _ = EDITS[edit]
    bare = tuple(with_tables(g, ukernel={}, loops={}, tile={}, parallel=())
                 if "y" in g.computes else g for g in schedule.groups)
    with pytest.raises(ScheduleError):
        lower(PROGRAM, complete(PROGRAM, replace(schedule, groups=bare), TARGET), TARGET)


def test_all_faults_at_once():
    a = named(GOOD, "a")
    wrong = edited("a", tile={"q": 1, "i": 0}, ukernel={"b": "loops"}, split={"b": {"k": 8}})
    wrong = replace(wrong, target="c", rewrites=(("x",),), layouts=GOOD.layouts | {"zz": ()})
    found = "\n".join(faults(wrong))
    for text in ("target c", "an item is [rule", "'zz'"):
        assert text in found
    found = "\n".join(faults(replace(wrong, layouts=GOOD.layouts)))
    for text in ("tile of 'q'", "tile i/0", "ukernel of 'b'", "split of 'b'"):
        assert text in found
    assert a.name in found


@pytest.mark.parametrize("dtype, row", [("f32", lambda k: k // 2), ("f16", lambda k: k)])
def test_columns_read_in_place_have_one_stride_and_are_f32(dtype, row):
    """The checker's refusal is all there is before C that steps along K: no stride, or that of
    elements of half the size, would go into it."""
    m = Maker()
    m.input("x", 64, 32)
    m.input("v", 32, 48, dtype=dtype)
    i, j, k = ax("i", 64), ax("j", 48), ax("k", 32)
    v = m.ref("v", row(k), j)
    m.step("y", (i, j), m.ref("x", i, k) * (v if dtype == "f32" else Cast("f32", v)), (k,), "sum")
    p = m.done("y")
    schedule = decide(p, TARGET)
    group, = schedule.groups
    group = with_tables(group, loops={"y": group.choices["y"].said | {"b": "direct"}})
    found = check_schedule(p, replace(schedule, groups=(group,)), TARGET)
    assert "b 'direct' needs unit stride along j and one stride along the only" in found[0]


def test_a_kernel_that_stores_nothing_is_named():
    m = Maker()
    m.input("x", 40)
    m.pointwise("p", "x", lambda e, _: e + 1.0)
    m.pointwise("q", "p", lambda e, _: e * 2.0)
    p = m.done("q")
    # anchored at no compute
    first = Group("g0", ("p",), (), "i", choices={"p": StageChoice("loops")})
    schedule = Schedule(TARGET.name, (first, Group("g1", ("q",), ("q",), "q")))
    found = "\n".join(check_schedule(p, complete(p, schedule, TARGET), TARGET))
    assert "group g0: it stores nothing; list as outputs" in found
    assert "anchor 'i' is not one of ['p']" in found


def test_overlapping_places_are_named():
    m = Maker()
    m.input("x", 40)
    for n, (out, src) in enumerate((("p", "x"), ("q", "p"), ("r", "q"))):
        i = ax("i", 40)
        m.step(out, (i,), m.ref(src, 39 - i) * Const(2 + n, "f32"))
    i = ax("i", 40)
    m.step("z", (i,), m.ref("p", 39 - i) + m.ref("r", 39 - i))
    p = m.done("z")
    groups = tuple(Group(f"g{s.out}", (s.out,), (s.out,), s.out,
                         choices={s.out: StageChoice("loops")}) for s in p.steps)
    good = complete(p, Schedule(TARGET.name, groups), TARGET)
    assert check_schedule(p, good, TARGET) == []
    bad = replace(good, buffers=dict.fromkeys(good.buffers, Slot(0, 0)))
    found = check_schedule(p, bad, TARGET)
    assert "buffers: p and q are live together (groups 1..3) and overlap in slot 0" in found


def test_what_cannot_share_registers_says_what_would_be_legal():
    m = Maker()
    m.input("x", 6, 8)
    matmul(m, "a", "x", m.const("w", np.ones((8, 5), np.float32)))
    i, j = ax("i", 6), ax("j", 4)
    m.step("y", (i, j), m.ref("a", i, j) + m.ref("a", i, j + 1))
    p = m.done("y")
    g = Group("g", ("a", "y"), ("y",), "a", {"a": "register"}, choices={
        "a": StageChoice("loops")})
    fault, = check_schedule(p, Schedule(TARGET.name, (g,)), TARGET)
    assert "keep a in scratch or store it" in fault
    assert "a[i, j" in fault


def test_an_unbounded_tile_is_refused_or_bounded():
    """A symbolic extent has an upper bound: the slab is sized by it."""
    m = Maker()
    m.input("x", Sym("s", 1, 30), 8)
    softmax(m, "y", "x")
    p = m.done("y")
    s = decide(p, TARGET)
    assert check_schedule(p, s, TARGET) == []
    whole = replace(s, groups=tuple(replace(g, tile={}, parallel=()) for g in s.groups))
    assert check_schedule(p, whole, TARGET) == []
    assert lower(p, whole, TARGET).slab_bytes >= 30 * 8 * 4


@pytest.mark.parametrize("change, text", [
    (lambda d: d.pop("target"), "field 'target' is missing"),
    (lambda d: d.pop("groups"), "field 'groups' is missing"),
    (lambda d: d.update(tiles=[]), "unknown field 'tiles'; known: target, groups"),
    (lambda d: d.update(version=9), "version 9, this aotc reads 1"),
    (lambda d: d.update(groups={}), "schedule.groups: expected list, got dict"),
    (lambda d: d["groups"][0].pop("anchor"), "groups[0]: field 'anchor' is missing"),
    (lambda d: d["groups"][0].update(tile=[1]), "groups[0].tile: expected dict, got list"),
    (lambda d: d["groups"][0].update(til={}), "groups[0]: unknown field 'til'"),
    (lambda d: d["buffers"].update(s={"offset": 0}), "buffers[s]: field 'slot' is missing"),
    (lambda d: d["buffers"].update(s={"slot": "0"}), "buffers[s].slot: expected int, got str"),
])
def test_json_faults(change, text):
    data = json.loads(GOOD.to_json())
    change(data)
    with pytest.raises(ScheduleError, match=text.replace("[", r"\[").replace("]", r"\]")):
        Schedule.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[", "3", "[]", "null"])
def test_text_that_is_no_schedule(text):
    with pytest.raises(ScheduleError):
        Schedule.from_json(text)


def _leaves(data, path=()):
    """Paths of every value below the top of JSON data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(
        data, list) else ()
    for key, value in items:
        yield path + (key,)
        yield from _leaves(value, path + (key,))


@pytest.mark.parametrize("junk", [None, -1, "zz", [], {}, 3.5, 10 ** 30, [["x"]], {"zz": 1}],
                         ids=repr)
def test_junk_anywhere_is_a_schedule_error_or_works(junk):
    """Whatever value is replaced: the edit compiles or its faults are listed."""
    paths = list(_leaves(json.loads(GOOD.to_json())))
    for path in random.Random(len(repr(junk))).sample(paths, 40):
        data = json.loads(GOOD.to_json())
        at = data
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = junk
        try:
            schedule = Schedule.from_json(json.dumps(data))
            lower(PROGRAM, complete(PROGRAM, schedule, TARGET), TARGET)
        except ScheduleError as err:
            assert err.faults and all(err.faults)

"""Who imports whom, enforced: between the parts of aotc, and between the storeys of ``sched``."""

import ast
import re
import sys
from collections import defaultdict
from graphlib import TopologicalSorter

import pytest
from helpers.source_tree import ROOT, imports_of, owner_of, package_files, parsed

BASE = {"errors", "ir", "json_text"}
VALUES = BASE | {"passes", "oracle"}
COMPILER = VALUES | {"frontend", "target", "sched", "emit", "samples", "installed",
                     "collector"}
SURFACE = COMPILER | {"as_asked", "pipeline", "runtime", "api", "tools", "tuner", "stage_names",
                      "options", "svg", "footprint", "version"}
# folder or module of aotc -> those it may import, beside itself
MAY_IMPORT = {
    "errors": set(),
    "collector": set(),
    "installed": {"errors"},
    "ir": {"errors", "json_text"},
    "oracle": BASE,
    "passes": BASE | {"oracle"},
    "frontend": VALUES,
    "target": BASE,
    "sched": VALUES | {"target"},
    "emit": VALUES | {"target", "installed"},
    "samples": VALUES,
    **dict.fromkeys(("json_text", "stage_names", "svg", "version"), set()),
    "options": BASE,
    "as_asked": COMPILER | {"options"},
    "pipeline": COMPILER | {"as_asked", "stage_names", "options"},
    "runtime": VALUES | {"pipeline", "installed", "target"},
    "tuner": COMPILER | {"pipeline", "runtime", "options", "svg"},
    "footprint": COMPILER | {"pipeline", "runtime", "options", "svg", "json_text"},
    "api": SURFACE,
    "tools": SURFACE,
    "cli": SURFACE | {"cli_values"},
    "cli_values": {"errors", "json_text", "options", "sched"},
    "onnx_backend": {"api", "errors"},
    "__init__": {"api", "errors", "options", "version"},
    "__main__": {"cli"},
}
# third-party package -> who may import it, and why
ONLY = {
    # one door for models; peers holds the ONNX reference evaluator, one executor among others;
    # onnx_backend implements an interface that the onnx package defines
    "onnx": {"frontend", "tools", "onnx_backend"},
    "google": {"frontend"},
    "jinja2": {"emit"},
    "cffi": {"runtime"},
    "sklearn": {"tuner"},
    "elftools": {"footprint"},
    "onnxruntime": {"tools"},
    "openvino": {"tools"},
    "ncnn": {"tools"},
}
# Storeys of ``sched``, the lowest first: folders and modules of one line stand beside each other.
# Those of ``accelerator`` have storeys of their own.
# Each imports from those below it alone, and is read without those above it.
STOREYS = (
    # facts: of a Program, its groups and their stages, of stages that rows compute, of extents
    ("model", "narrowed_program"), ("rows", "shape_variants"), ("common_groups",),
    # what tensors take in memory; what anything takes of time; what a work item touches
    ("memory",), ("cost", "accelerator.clock"), ("items",), ("accelerator.items",),
    ("accelerator.kernels",),
    # what may be rounded; what is legal
    ("precision",), ("check",), ("independent_parts",),
    # what was decided, as a Plan
    ("expand", "shared_functions"), ("lowering",),
    ("common_kernels", "refused", "shared_plans"),
    # deciders: texts of stages; rows, layouts and tiles; those that ask what others would choose
    ("text_choices",), ("choose",), ("judge",),
    ("accelerator.instances",), ("accelerator.places",), ("candidates",), ("decide",),
    ("complete",),
    # whole Schedules, several of them, and what is told of them
    ("dynamic", "limit", "report"),
)
# What outside of ``accelerator`` imports of it: what the ``__init__`` of these have.
DOORS = {f"aotc.sched.accelerator.{door}" for door in ("kernels", "places", "clock")}
# what only some machines have; folders that define, run and print it
SPECIAL = {"engines", "stores", "units", "clusters"}
AT_HOME = ("sched/accelerator/", "emit/dsa/", "target/", "ir/", "oracle/")
# other modules that name it, at most six, and why: all else asks for facts, or passes values on
NAMING = {
    "sched/lowering/lower.py": "asks for what they are told in a Plan",
    "sched/shared_functions.py": "kernels that are dealt alike may share a function",
    "emit/bundle/call_tree.py": "how many work items a turn of all of them has",
    "tools/engine_times.py": "shows when they are busy",
}
STOREY = {name: number for number, names in enumerate(STOREYS) for name in names}
SCHED = ROOT / "aotc/sched"
ACCELERATOR = SCHED / "accelerator"


@pytest.fixture(scope="module", autouse=True)
def _trees_while_these_tests_run():
    yield
    parsed.cache_clear()


def test_every_part_of_the_package_has_its_row():
    assert {owner_of(p) for p in package_files()} <= set(MAY_IMPORT)


def test_imports_follow_the_layers():
    wrong = []
    for path in package_files():
        owner = owner_of(path)
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] == "aotc" and parts[1:]:
                if parts[1] not in MAY_IMPORT[owner] | {owner}:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            elif owner not in ONLY.get(parts[0], {owner}):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_folder_stands_in_an_import_cycle():
    """Of all imports, those for types alone and those inside functions too."""
    arrows = defaultdict(set)
    for path in package_files():
        parts = (name.split(".") for name in imports_of(path))
        arrows[owner_of(path)] |= {p[1] for p in parts if p[0] == "aotc" and p[1:]}
    order = [*TopologicalSorter({x: to - {x} for x, to in arrows.items()}).static_order()]
    assert order.index("ir") < order.index("sched") < order.index("pipeline")


def _room(parts):
    """The folder or module of ``sched`` that a path in it leads to, or of ``accelerator``."""
    return ".".join(parts[:2 if parts[0] == "accelerator" else 1]).removesuffix(".py")


def _rooms(path):
    """(room of a file of ``sched``, those that it imports from)."""
    own, parts = _room(path.relative_to(SCHED).parts), (n.split(".") for n in imports_of(path))
    return own, {_room(p[2:]) for p in parts if p[:2] == ["aotc", "sched"] and p[2:]} - {own}


def _sched_files():
    return [p for p in package_files() if p.is_relative_to(SCHED)
            and p not in (SCHED / "__init__.py", ACCELERATOR / "__init__.py")]


def _not_below(own, others):
    return sorted(x for x in others if STOREY[x] >= STOREY[own])


def test_every_room_of_sched_imports_from_storeys_below_it():
    wrong = [f"{path.relative_to(ROOT)} imports from {other}" for path in _sched_files()
             for other in _not_below(*_rooms(path))]
    assert not wrong, "\n".join(wrong)
    assert {_rooms(p)[0] for p in _sched_files()} == set(STOREY)


def test_an_import_from_above_is_found_by_that_test(tmp_path):
    (tmp_path / "m.py").write_text("if TYPE_CHECKING:\n    from aotc.sched.cost.decided import D\n"
                                   "def f():\n    from aotc.sched import decide\n")
    assert [*imports_of(tmp_path / "m.py")] == ["aotc.sched.cost.decided", "aotc.sched"]
    assert _not_below("rows", {"model", "shape_variants", "cost"}) == ["cost", "shape_variants"]


def _named(text):
    """Identifiers of a module, parts of the modules that it imports, and strings that are one."""
    for node in ast.walk(parsed(text)):
        for field in ("id", "attr", "arg", "name", "value", "module"):
            name = getattr(node, field, None)
            if isinstance(name, str) and (name.isidentifier() or field in ("name", "module")):
                yield from name.split(".")


def test_few_modules_name_what_only_some_machines_have():
    names = {str(p.relative_to(ROOT / "aotc")): SPECIAL & {*_named(p.read_text())}
             for p in package_files()}
    found = {p for p, special in names.items() if special and not p.startswith(AT_HOME)}
    assert found == set(NAMING) and len(found) <= 6, found ^ set(NAMING)


@pytest.mark.parametrize("text", ["import a.stores", "m.units = 1", "f(engines=1)", "'clusters'",
                                  "from a import units", "def f(stores): ...", "units = x"])
def test_a_name_of_theirs_is_found_by_that_test(text):
    assert SPECIAL & {*_named(text)} and not SPECIAL & {*_named(f'"""{text}"""  # {text}')}


def test_the_accelerator_is_asked_at_its_doors():
    wrong = [f"{p.relative_to(ROOT)} imports {name}" for p in package_files()
             for name in imports_of(p) if name.startswith("aotc.sched.accelerator")
             and (name in DOORS) == p.is_relative_to(ACCELERATOR)]
    assert not wrong, "\n".join(wrong)


def test_nothing_in_sched_imports_its_front_door():
    assert not [p for p in _sched_files() if "aotc.sched" in imports_of(p)]


def test_every_folder_of_sched_says_what_it_imports():
    """The last sentence of its docstring names the folders and modules below that it is built on,
    all of them and no others."""
    used = defaultdict(set)
    for path in _sched_files():
        own, others = _rooms(path)
        used[own] |= others
    doors = {*SCHED.glob("*/__init__.py"), *ACCELERATOR.glob("*/__init__.py")}
    for door in sorted(doors - {ACCELERATOR / "__init__.py"}):
        text = parsed(door.read_text()).body[0].value.value
        found = re.search(r"Imports of ``sched``: ([\w., \n]+)\.$", text.rstrip())
        assert found, f"{door}: its docstring ends with no list of imports"
        said = set(re.findall(r"[\w.]+", found[1])) - {"nothing"}
        assert said == used[_room(door.parent.relative_to(SCHED).parts)], door


def test_compiler_imports_only_what_it_declares():
    declared = {"numpy", "onnx", "jinja2", "cffi", "aotc"} | set(ONLY)
    wrong = [f"{p.relative_to(ROOT)} imports {n}" for p in package_files() for n in imports_of(p)
             if n.split(".")[0] not in declared | set(sys.stdlib_module_names)]
    assert not wrong, "\n".join(wrong)

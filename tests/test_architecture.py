"""The shape of the project, enforced: sizes, names, and what no file may hold.

Who imports whom is in test_layers.py.
"""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest
from helpers.source_tree import ROOT, imports_of, owner_of, package_files, parsed, tracked_files

from aotc.ir.dtypes import DTYPES
from aotc.target import TARGETS

FILE_LINES, FUNCTION_LINES, COLUMNS = 500, 60, 100
README_LINES = 150

FOLDER_FILES = 20  # modules of a folder, beside __init__


@pytest.fixture(scope="module", autouse=True)
def _trees_while_these_tests_run():
    yield
    parsed.cache_clear()


def test_no_two_test_modules_have_one_name():
    """pytest imports them by it."""
    names = Counter(p.name for p in (ROOT / "tests").rglob("test_*.py"))
    assert [n for n, count in names.items() if count > 1] == []


def test_a_module_is_found_by_its_name():
    """No folder is a heap, and no two modules have one name."""
    files = [p for p in package_files() if p.name != "__init__.py"]
    folders, names = Counter(p.parent for p in files), Counter(p.name for p in files)
    assert not {str(f.relative_to(ROOT)): n for f, n in folders.items() if n > FOLDER_FILES}
    assert not [n for n, count in names.items() if count > 1]


def _public_functions(body):
    """Functions of a module, and methods of its classes, whose name is for others."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public_functions(node.body)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def _untyped(function):
    """Parameters without an annotation, and ``return``."""
    a = function.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    missing = [x.arg for x in named if x.annotation is None and x.arg not in ("self", "cls")]
    return missing + (["return"] if function.returns is None else [])


def test_public_functions_are_annotated():
    wrong = [f"{p.relative_to(ROOT)}:{f.lineno}: {f.name}: {', '.join(_untyped(f))}"
             for p in package_files()
             for f in _public_functions(parsed(p.read_text()).body) if _untyped(f)]
    assert not wrong, "\n".join(wrong)


def test_an_unannotated_function_is_found_by_that_test():
    body = parsed("class A:\n def f(self, x, *y, z: int = 1): ...\n"
                     "def _g(x): ...\ndef h(x: int) -> int: ...").body
    assert [(f.name, _untyped(f)) for f in _public_functions(body)] == [
        ("f", ["x", "y", "return"]), ("h", [])]


def test_no_test_module_imports_another():
    """What several of them share lies in tests/helpers."""
    files = [p for p in tracked_files(".py") if p.is_relative_to(ROOT / "tests")]
    tests = {p.stem for p in files if p.name.startswith("test_")}
    wrong = [f"{p.relative_to(ROOT)} imports {n}" for p in files for n in imports_of(p)
             if n.split(".")[0] in tests]
    assert len(tests) > 100 and not wrong, "\n".join(wrong)


def _c_functions(text):
    """(line of the opening brace, lines) of every C function: in the house style a body opens
    with a brace that stands alone or ends a line that starts in column 0, and a brace in column 0
    closes it."""
    start = None
    for number, line in enumerate(text.splitlines(), 1):
        if start is None and (line == "{" or re.match(r"\w.*\) (const )?\{$", line)):
            start = number
        elif line.startswith("}") and start is not None:
            yield start, number - start + 1
            start = None


def test_sizes_of_files_functions_and_lines():
    wrong = []
    for path in tracked_files(".py", ".c", ".h", ".j2", ".cpp"):
        text, name = path.read_text(), path.relative_to(ROOT)
        lines = text.splitlines()
        if len(lines) >= FILE_LINES:
            wrong.append(f"{name}: {len(lines)} lines")
        wrong += [f"{name}:{k}: {len(line)} columns" for k, line in enumerate(lines, 1)
                  if len(line) > COLUMNS]
        if path.suffix == ".py":
            functions = [(n.lineno, n.end_lineno - n.lineno + 1) for n in ast.walk(parsed(text))
                         if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        else:
            functions = list(_c_functions(text))
        wrong += [f"{name}:{at}: function of {n} lines" for at, n in functions
                  if n >= FUNCTION_LINES]
    assert not wrong, "\n".join(wrong)


def test_no_operator_names_below_the_frontend():
    operators = {s.name for s in onnx.defs.get_all_schemas()}
    # IR nodes whose class has the name of an operator
    vocabulary = {"Cast", "Where"}
    wrong = []
    for path in package_files():
        if owner_of(path) in ("ir", "passes", "oracle", "target", "sched", "emit"):
            for node in ast.walk(parsed(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and (
                        node.value in operators - vocabulary):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}")
    assert not wrong, "\n".join(wrong)


def test_operator_names_are_found_by_that_test():
    assert {"Conv", "Gemm", "Softmax"} <= {s.name for s in onnx.defs.get_all_schemas()}


def _strings(tree):
    """(line, text) of the strings of a module that are no docstrings, and of its names."""
    said = {id(n.body[0].value) for n in ast.walk(tree)
            if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and n.body
            and isinstance(n.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in said:
                yield node.lineno, node.value
        elif isinstance(node, (ast.Name, ast.Attribute, ast.arg, ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, next(getattr(node, k) for k in ("id", "attr", "arg", "name")
                                    if hasattr(node, k))


@cache
def _kinds():
    """Words that are of a target, of a kind of machine, its emitter or one of its memories."""
    names = [word for t in TARGETS.values() for word in re.split("[^a-z0-9]+", t.name)
             + [t.folder, t.arch]]
    memories = {x.name.lower() for t in TARGETS.values() for x in t.machine.memories}
    words = {n for n in names if len(n) > 2} | memories | {
        "emitter", "simt", "gpu", "cpu", "sm", "neon", "avx", "avx2", "avx512", "sse", "sse2",
        "rvv", "warp", "warps"}
    words -= {"register", "shared"}  # of Schedules, and a plain word
    # what elements are is said of rows, and a target may be called after it
    return words - {*DTYPES}


def _kinds_named(text):
    """Lines of a module that name one of them."""
    return [(line, s) for line, s in _strings(parsed(text))
            if _kinds() & set(re.split(r"[^a-z0-9]+|_", s.lower()))]


def test_deciders_and_lowering_ask_for_facts_not_for_kinds():
    """A machine of another kind is described, not mentioned."""
    wrong = [f"{p.relative_to(ROOT)}:{line}: {s!r}" for p in package_files()
             if owner_of(p) == "sched" for line, s in _kinds_named(p.read_text())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["x = 'L1'", "on_cuda = 1", "def f(warp): ...", "t.emitter",
                                  "y = f'at L2 {x}'", "x == 'x86-64-v3'", "x = 'sm_90'",
                                  "x = 'x86-64-v4-bf16'"])
def test_a_kind_is_found_by_that_test(text):
    assert _kinds_named(text) and not _kinds_named(f'"""{text}"""  # {text}')


# fields of a Tuning that weigh terms of the cost
WEIGHTS = {"wave", "other_flops", "resident_copies", "kept_lines", "op_cost", "fold_load",
           "window_load", "vector_store", "across", "apart", "packed", "moved", "page_conflict",
           "pressure", "load_cost", "winograd_transform", "lane_base", "lane_long", "lane_strided",
           "lane_gather", "lane_folded", "lane_stored", "lane_across", "far_wait", "unhidden",
           "barrier", "access_cost", "sector_cost", "by_register", "fold_step", "fold_part",
           "spill", "step_control", "tile_rate", "load_shown", "unit_rate", "nest_registers"}
# folders of sched that know no speed: facts, checks and deciders
DECIDERS_AND_FACTS = ("candidates", "check", "choose", "items", "judge", "memory", "model", "rows")
SPEEDS = {"bandwidth", "flops", "latency", "launch", "overlap"}  # of a Machine and its Memories


def _weighed(text):
    """(line, name) of the speeds of a machine and the weights of a Tuning that a module reads."""
    found = [n for n in ast.walk(parsed(text)) if isinstance(n, ast.Attribute)]
    return [(n.lineno, n.attr) for n in found if n.attr in SPEEDS or n.attr in WEIGHTS
            and getattr(n.value, "id", getattr(n.value, "attr", "")) == "tuning"]


def test_deciders_ask_the_cost_and_estimate_nothing():
    """Whoever reads a speed or a weight has a formula of its own beside the one cost."""
    wrong = [f"{p.relative_to(ROOT)}:{line}: {name}" for p in package_files()
             if owner_of(p) == "passes" or any(p.is_relative_to(ROOT / "aotc/sched" / folder)
                                             for folder in DECIDERS_AND_FACTS)
             for line, name in _weighed(p.read_text())]
    assert not wrong, "\n".join(wrong)
    assert _weighed("t = size / machine.outside(near).bandwidth") == [(1, "bandwidth")]
    assert _weighed("a = target.tuning.moved + tuning.apart + model.moved(t)") == [
        (1, "moved"), (1, "apart")]


# module-level numbers of deciders, lowering and emitters that are fields of no ``Tuning``, and why
FORMAT, BOUND, NUMERICS, POLICY, TRIES = (
    "text or a file format", "bounds an algorithm or the size of generated code",
    "rounding errors, the same on every machine", "what users are promised or told",
    "what a search tries")
NUMBERS = {
    "sched/check/check_schedule.py": {"MAX_GROWTH": POLICY, "MAX_ARENA": POLICY},
    "sched/choose/connect.py": {"NODES_LIMIT": BOUND, "DEPTH_LIMIT": BOUND},
    "sched/candidates/join_streams.py": {"MOST": BOUND},
    "sched/rows/stream_bounds.py": {"LOWEST": NUMERICS, "_DEEP": BOUND},
    "sched/choose/gensor.py": {"MAX_VTHREADS": BOUND, "STEPS": BOUND},
    "sched/choose/layout_choices.py": dict.fromkeys(("LANES", "TILES"), TRIES),
    "sched/candidates/long_sums.py": {"FETCHED": "elements of a vector of threads' loads"},
    "sched/choose/slices.py": {"TRIED": TRIES}, "sched/choose/tile.py": {"TRIED": TRIES},
    "sched/choose/runs.py": {"PARTS": TRIES}, "sched/lowering/kernel_names.py": {"LONGEST": BOUND},
    "sched/lowering/program_lines.py": dict.fromkeys(("LINES", "NODES"), BOUND),
    "sched/candidates/winograd_choice.py": {
        "SLIDING": "axes that forms exist for", "ERROR_FACTOR": NUMERICS, "ERROR_SHARE": NUMERICS,
        "SPAN": NUMERICS, "GROWTH": POLICY, "GROWTH_BYTES": POLICY},
    "sched/cost/block_cost.py": {"LINE": "of any machine with sectors"},
    "sched/cost/accesses.py": {"COPY": "of any machine: a load and a store"},
    "sched/cost/lane_accesses.py": {"WORD": "of any machine with banks"},
    "sched/cost/thread_accesses.py": {"MULTIPLY_ADD": "of any machine: a product and a sum"},
    "sched/candidates/partition.py": {"BEAM": BOUND, "PASSES": BOUND, "FEW": BOUND,
                                      "MAX_COMPUTES": BOUND},
    "sched/cost/winograd_errors.py": {"ERRORS": NUMERICS},
    "sched/text_choices/block_writing.py": {"ENDLESS": BOUND},
    "sched/judge/judge.py": {"MAX_STAGES": BOUND}, "sched/narrowed_program.py": {"SMALL": BOUND},
    "sched/accelerator/kernels/unit_choice.py": {"PACKED_PART": POLICY},
    "sched/dynamic/choose.py": {
        **dict.fromkeys(("GAIN", "LOST", "WORSE", "DOUBT"), "what a variant must save"),
        "MOST": POLICY},
    "sched/candidates/row_ends.py": {"CALLS": BOUND},
    "sched/candidates/call_tiles.py": dict.fromkeys(
        ("ASKED", "EASY", "IDLE", "MORE", "PARTS"), TRIES),
    "sched/model/typical_calls.py": dict.fromkeys(
        ("POINTS", "FEW", "SPLIT", "SPLIT_AGAIN", "BETWEEN"), BOUND),
    "sched/accelerator/instances/residence.py": {"ROUNDS": BOUND},
    "sched/accelerator/instances/binding.py": {"FACTORS": TRIES},
    "sched/accelerator/instances/decide_instances.py": dict.fromkeys(
        ("FIRST_CUTS", "HELD_BACK"), TRIES),
    "sched/accelerator/instances/instance_order.py": {"EXACT_NODES": BOUND, "EXACT_STATES": BOUND},
    "sched/accelerator/instances/segments.py": {"SHARES": TRIES},
    "sched/accelerator/instances/split.py": dict.fromkeys(
        ("CORES_FIRST", "FIRST_TRIED"), TRIES),
    "sched/model/stored_sizes.py": {"ALIGN": "the alignment of every buffer"},
    "sched/accelerator/items/item_boxes.py": {"WHOLE": BOUND},
    "sched/lowering/held_rows.py": {"WRITTEN_OUT": BOUND},
    "sched/lowering/lower_contract.py": {"_GRAINS": "elements of 16 bytes"},
    "sched/lowering/lower_nest.py": {"MAX_PIECES": BOUND},
    "sched/lowering/partial_sums.py": dict.fromkeys(
        ("TERMS", "STEPS", "BLOCK_STEPS", "MOST_PARTS"), NUMERICS),
    "sched/lowering/neighbours.py": {"NARROW": "of any machine: half of the widest access"},
    "sched/lowering/operand_ways.py": {"WIDE": "of the rows that fetch"},
    "sched/lowering/threads.py": {"_ANYWHERE": BOUND},
    "sched/memory/allocate.py": {"ATTEMPTS": BOUND},
    "sched/limit/arena.py": {"LARGE": POLICY, "_UNITS": FORMAT},
    "sched/limit/arena_cones.py": {"MAX_STAGES": BOUND, "WORTH": BOUND, "FINE": BOUND},
    "sched/limit/arena_limit.py": {"ATTEMPTS": BOUND, "ROUNDS": BOUND, "NEAR": BOUND,
                                    "LOWER": BOUND, "KIB": FORMAT},
    "sched/memory/slots.py": {"MAX_SPAN": BOUND},
    "sched/model/box_end_names.py": {"CLAMPS": FORMAT},
    "sched/precision/budget.py": dict.fromkeys(
        ("MARGIN", "LEAST_LOTS", "MOST_TRIALS", "TRIED_FLOPS"), POLICY),
    "sched/precision/trials.py": {"KEPT_BYTES": POLICY},
    "sched/model/size.py": {"ENDLESS": BOUND, "TYPICAL": "of models: what symbols stand for",
                            "MAX_TAPS": BOUND},
    "sched/model/sparse_tables.py": {"TOUCHED": "of the operating system",
                                     "SPARSE": "of the operating system"},
    "sched/model/group_numbers.py": {"RAGGED": BOUND},
    "sched/rows/transforms.py": {"MAX_SIDE": BOUND, "MAX_TERMS": BOUND},
    "sched/model/group_model.py": {
        "WHOLE": BOUND, "PRODUCT": "of any machine: a product and a sum"},
    "sched/shape_variants.py": {"ALPHA": "how much size counts (DietCode)", "MOST_PIECES": BOUND},
    "emit/bundle/kits.py": {"KITS": FORMAT},
    "emit/bundle/memory_map.py": {"LINE": FORMAT},
    "emit/bundle/render.py": {"COST_BYTES": FORMAT, "MOST_BYTES": BOUND},
    "emit/bundle/manifest.py": {"SHOWN": FORMAT},
    "emit/bundle/weights.py": dict.fromkeys(
        ("MAGIC", "VERSION", "HEADER_BYTES", "ALIGNMENT", "TEXT_BYTES", "_PLACE", "_HALF",
         "WORTH_A_RANGE", "_CHUNK"), FORMAT),
    "emit/dsa/device_text.py": {"_CONTROL": "of the simulator", "_CLUSTERS": "of the simulator"},
    "emit/c/integers.py": {"CAST": FORMAT, "_RING": FORMAT},
    "emit/c/kernels.py": {"FILE_BYTES": FORMAT},
    "emit/c/register_tile.py": dict.fromkeys(("COUNTED", "SIDE", "STEP_BYTES", "LINE"), FORMAT),
    "emit/c/scalars.py": dict.fromkeys(("CONDITION", "LEVEL", "_SIGN"), FORMAT),
    "emit/simt/product_writer.py": {"_MOST": FORMAT},
    "emit/bundle/device_needs.py": {"_WITHOUT_PERMISSION": "of the language that is written"},
    "emit/simt/simt_kernels.py": {"FILE_BYTES": FORMAT},
    "emit/simt/simt_writer.py": {"WARP": "of the language that is written"},
    "emit/text/c_names.py": {"_MAX": FORMAT},
    "emit/text/cexpr.py": {"ATOM": FORMAT, "_LEVEL": FORMAT},
    "emit/text/math_forms.py": {"SCALES": NUMERICS},
    "emit/text/wrapped.py": {"WIDTH": FORMAT, "_TRIES": FORMAT},
}


def _module_numbers(text):
    """Names that a module gives a value with a number in it."""
    for node in parsed(text).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        if any(isinstance(x, ast.Constant) and type(x.value) in (int, float)
               for x in ast.walk(node.value)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (x.id for x in ast.walk(target) if isinstance(x, ast.Name))


def test_numbers_fitted_to_machines_are_fields_of_a_tuning():
    found = {str(p.relative_to(ROOT / "aotc")): set(_module_numbers(p.read_text()))
             for p in package_files() if owner_of(p) in ("sched", "emit")}
    found = {p: names for p, names in found.items() if names}
    listed = {p: set(names) for p, names in NUMBERS.items()}
    assert found == listed, (
        {p: n - listed.get(p, set()) for p, n in found.items() if n - listed.get(p, set())},
        {p: n - found.get(p, set()) for p, n in listed.items() if n - found.get(p, set())})
    assert set(_module_numbers("A = 1\nB, C = 2, (3,)\nD: int = 4\nE = 'x'\nF = not True")) == {
        "A", "B", "C", "D"}


def test_no_machine_paths_or_registries():
    paths = re.compile(r"(?<![\w.$})/])/(work|root|home|opt|tmp|mnt|Users)/|pypi\.|index-url|"
                       r"file://")
    wrong = []
    for path in tracked_files(".py", ".c", ".h", ".j2", ".cpp", ".md", ".toml", "Makefile", "run",
                       ".json", "NOTICE"):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if paths.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def test_readme_is_short():
    """It says what aotc is and where to read on; all else has a page of docs/."""
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LINES


def _relative_links(text):
    """Paths that a Markdown text links to, without anchors; code, addresses and links inside the
    page are none."""
    prose = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", text, flags=re.S | re.M)
    targets = re.findall(r"\]\(([^)\s]+)[^)]*\)|^\[[^]]+\]:\s+(\S+)", prose, re.M)
    paths = [(inline or named).partition("#")[0] for inline, named in targets]
    return [p for p in paths if p and not re.match(r"\w+:", p)]


def test_links_between_pages_lead_somewhere():
    links = [(page, link) for page in tracked_files(".md")
             for link in _relative_links(page.read_text())]
    wrong = [f"{page.relative_to(ROOT)}: {link}" for page, link in links
             if not (page.parent / link).exists()]
    assert links and not wrong, "\n".join(wrong)


def test_relative_links_are_found_by_that_test():
    text = ("[a](b.md), [two\nlines](../c/d.md#part) `x[0](y)`, [in](#page) [o](https://e.org/f)\n"
            "```\nf[i](g)\n```\n![picture](h.svg \"title\")\n[named]: i.md\n")
    assert _relative_links(text) == ["b.md", "../c/d.md", "h.svg", "i.md"]


def test_no_unfinished_work():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|except[^\n]*:\s*\n?\s*pass\b")
    wrong = [f"{p.relative_to(ROOT)}: {m.group().strip()!r}" for p in
             tracked_files(".py", ".c", ".h", ".j2", ".cpp", ".md") if p != Path(__file__)
             for m in marks.finditer(p.read_text())]
    assert not wrong, "\n".join(wrong)


def test_every_package_travels_in_the_wheel():
    with open(ROOT / "pyproject.toml", "rb") as file:
        packages = tomllib.load(file)["tool"]["setuptools"]["packages"]
    there = {".".join(p.parent.relative_to(ROOT).parts)
             for p in package_files() if p.name == "__init__.py"}
    assert there == set(packages) - {"aotc._runtime_c"}

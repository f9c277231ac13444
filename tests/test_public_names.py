"""Names that say something away from their line: what public functions and classes are called."""

import ast
import re
from collections import Counter

from helpers.source_tree import ROOT, package_files, parsed

# builders of operators are called after them, and what they share after what they compute
OPERATORS = ROOT / "aotc/frontend/ops"
PARTICIPLE = re.compile(r"\w+(ed|en|ing|wn)$")
NO_PARTICIPLES = {"children", "heading", "padding", "shorten", "unflatten"}
PREPOSITIONS = set("above after along among at before behind below beside between by for in inside "
                   "into near of off on out outside over through under until upon within".split())
BARE = PREPOSITIONS | set(
    "as from to with without "  # in front of a noun: of a conversion, of a copy
    # participles of another form
    "built chosen dealt found held kept left lost made met said sent spelt spilt told "
    # adverbs, pronouns, adjectives
    "alone always apart away ever everywhere here maybe never now once only there together twice "
    "all any both each either most none one other some such "
    "affine busy canonical cheapest contiguous dense dry endless equal even exact greedy last low "
    "middle native neutral plain readable resident roomy same shapeless sliceable straight tunable "
    "typical unique unlike whole".split())
FIRST = PREPOSITIONS - {"near"} | {"always", "never", "not", "only", "while"}


def _says_nothing(name):
    """True for a bare participle, preposition, adverb or adjective, and for a name that begins
    with a word that joins it to a line."""
    first, _, rest = name.partition("_")
    if rest:
        return first in FIRST
    return name in BARE or bool(PARTICIPLE.match(name)) and name not in NO_PARTICIPLES


def _public(kind, paths):
    """(module, name) of what stands at the top of modules and is for others."""
    return [(str(p.relative_to(ROOT)), n.name) for p in paths for n in parsed(p.read_text()).body
            if isinstance(n, kind) and not n.name.startswith("_")]


def test_a_public_function_has_a_verb_or_is_called_after_what_it_returns():
    paths = [p for p in package_files() if not p.is_relative_to(OPERATORS)]
    functions = _public(ast.FunctionDef, paths)
    assert [f"{p}: {name}" for p, name in functions if _says_nothing(name)] == []
    assert len(functions) > 1000 and {name for _, name in functions} >= NO_PARTICIPLES


def test_a_function_that_says_nothing_is_found_by_that_test():
    wrong = {"moved", "kept", "drawn", "written", "wrapping", "everywhere", "in_turn", "only_said"}
    right = {"move_region", "stride", "row_tails", "is_even", "keep_said", "padding", "to_poly",
             "with_symbols", "find_kept"}
    assert {n for n in wrong | right if _says_nothing(n)} == wrong


def test_a_class_name_means_one_thing():
    """Nobody has to look at imports to know which of two is meant."""
    names = Counter(name for _, name in _public(ast.ClassDef, package_files()))
    assert len(names) > 400 and [n for n, count in names.items() if count > 1] == []

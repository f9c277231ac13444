"""How a target spells vector C: the macros of ``vector.j2`` in its folder of templates.

Python decides what is computed, a macro says how it is written.  What the vectors are like says the
target (``VectorFacts``); what matters to their spelling alone, the file sets beside its macros
(``VectorMacros``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import jinja2

from aotc.emit.text.cexpr import ATOM, plus
from aotc.installed import TEMPLATES
from aotc.target.base import VectorFacts


@cache
def environment(folder: str) -> jinja2.Environment:
    """The jinja2 environment of a target's folder of templates."""
    found = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES / folder),
                               trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
                               undefined=jinja2.StrictUndefined)
    found.filters["plus"] = plus
    return found


@dataclass(frozen=True)
class OperandText:
    """C text of an f32 value.  ``fixed``: a scalar that is the same in every lane; ``level``: C
    precedence of the text."""

    text: str
    fixed: bool = False
    level: int = ATOM

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class VectorMacros:
    """What a target's file of macros says of vectors.

    scalars: arithmetic takes a scalar operand as it is (else it becomes a vector first); strided:
    there are loads and stores with a stride between lanes; apart: there are loads of whole vectors
    with such a stride; masks: they can be combined, and loaded from bytes; parts: there are loads
    of any run of lanes, and of every second element; quotients: there is a division of all lanes by
    one scalar; rounds: there is a conversion to integers that rounds within bounds; forms: there
    are functions for 1 / (1 + exp(-x)) and for erf and tanh of s * x; infix: arithmetic and
    comparisons that are C operators, {operation: operator} (else calls); argument: what a
    micro-kernel takes before its last argument, which is what is fetched meanwhile or what its sums
    start from; header: of the runtime, with ``defines`` before it; half_header: of half precision;
    bf16_header: of bf16; narrow_header: of integer lanes."""

    scalars: bool
    strided: bool
    apart: bool
    masks: bool
    parts: bool
    quotients: bool
    rounds: bool
    forms: bool
    infix: Mapping[str, str]
    argument: str
    header: str
    defines: str
    half_header: str
    bf16_header: str
    narrow_header: str


Macro = Callable[..., str]


@dataclass(frozen=True)
class Dialect:
    """The spelling of vectors of ``lanes`` f32 values, or of ``group`` registers each where the
    target's ``vectors`` have no fixed length.  ``arrays``: names of the arrays of one step's lanes
    that have been declared, where they are noted."""

    folder: str
    lanes: int
    vectors: VectorFacts
    group: int = 1
    arrays: list[str] | None = field(default=None, compare=False)

    def __getattr__(self, name: str) -> Macro:
        """The macro of that name.  It gives text without line ends around it."""
        if name.startswith("_"):
            raise AttributeError(name)
        found: Macro = getattr(self._macros, name)
        return lambda *args: found(*args).strip("\n")

    @property
    def _macros(self) -> Any:
        """The file's module."""
        return _macros(self.folder, self.lanes, self.group, self.vectors.runs)

    @property
    def facts(self) -> VectorMacros:
        """What the file says beside its macros."""
        return _facts(self.folder, self.lanes, self.group, self.vectors.runs)

    def array(self, ctype: str, name: str) -> str:
        """Declares an array of the lanes of one step."""
        if self.arrays is not None:
            self.arrays.append(name)
        text: str = self._macros.array(ctype, name)
        return text.strip("\n")

    def noting(self) -> "Dialect":
        """The same, with a note of arrays that is empty."""
        return replace(self, arrays=[])

    def lines(self, macro: str, *args: Any) -> list[str]:
        """The macro's text as a list of lines."""
        found: Macro = getattr(self, macro)
        return found(*args).split("\n")

    def of_width(self, group: int) -> "Dialect":
        """The same for values of ``group`` registers each."""
        return replace(self, group=group)


@cache
def _macros(folder: str, lanes: int, group: int, runs: bool) -> Any:
    template = environment(folder).get_template("vector.j2")
    return template.make_module({"lanes": lanes, "group": group, "runs": runs})


@cache
def _facts(folder: str, lanes: int, group: int, runs: bool) -> VectorMacros:
    module = _macros(folder, lanes, group, runs)
    return VectorMacros(**{f.name: getattr(module, f.name) for f in fields(VectorMacros)})

"""Kernels whose indices have 32 bits, where 64 are two registers.

Kernels are written with ``int64_t`` for what counts and addresses, and for that alone unless they
compute on data of 64 bits: then they stay as they are, as do those of tensors beyond 2**31 bytes.
"""

import re
from dataclasses import replace

from aotc.emit.c.kernel_text import Text
from aotc.ir.contents import nodes
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Cast, Expr, Guarded, Load, walk
from aotc.ir.kernel.plan_stages import Call
from aotc.ir.numbers.fixed_point import match_rescaled, match_shifted
from aotc.ir.plan import Plan
from aotc.ir.simplify import upper
from aotc.ir.statements import OWN, walk_body

HEADER = "aotc_index32.h"
_WIDE = ("i64", "u64", "u32", "f64")
_CALLS = re.compile(r"\baotc_(min|max|floordiv|floormod)\(")
_KERNEL = "int{}_t begin, int{}_t end"  # what calls kernels has 64 bits


def has_short_indices(plan: Plan) -> bool:
    """True if every tensor of a plan has less than 2**31 bytes."""
    return all((n := upper(p.elements)) is not None and n * DTYPES[p.dtype].size < 1 << 31
               for p in plan.places)


def with_short_indices(t: Text) -> Text:
    """The text of a kernel with indices of 32 bits; as it is where it has numbers of 64."""
    if any(isinstance(s, Call) for s in walk_body(t.kernel.body)) or any(
            map(_is_wide, _values(t))):
        return t
    return replace(t, text=short_text(t.text),
                   stages={name: short_text(text) for name, text in t.stages.items()})


def short_text(text: str) -> str:
    """C text with 32 bits where it has 64."""
    text = _CALLS.sub(r"aotc_\g<1>32(", text).replace("int64_t", "int32_t")
    return text.replace(_KERNEL.format(32, 32), _KERNEL.format(64, 64))


def _values(t: Text) -> list[Expr]:
    """The expressions of a kernel, but those that a multiplier and a shift make 32 bits again."""
    found = set(nodes(t.kernel.body))
    for e in [e for e in found if isinstance(e, Cast)]:
        one, other = match_rescaled(e), match_shifted(e)
        if one is not None or other is not None:
            kept = one[:2] if one is not None else other[:1] if other is not None else ()
            inside = set(walk(e)) - {e} - {n for k in kept for n in walk(k)}
            found -= inside
    return list(found)


def _is_wide(e: Expr) -> bool:
    return isinstance(e, Guarded) or isinstance(e, (Load, Cast)) and e.dtype in _WIDE and not (
        isinstance(e, Load) and e.buffer.startswith(OWN))  # a table of indices


__all__ = ["HEADER", "has_short_indices", "short_text", "with_short_indices"]

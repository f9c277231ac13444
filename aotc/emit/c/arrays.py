"""Elements of tensors as elements of C arrays: ``t_x[m][n]`` of ``float (*const t_x)[64]``."""

from collections.abc import Callable, Sequence

from aotc.emit.text.env import Env
from aotc.ir.access import ArrayOf
from aotc.ir.expr import Const, Expr

Spell = Callable[[Expr, int], str]  # (an index, the least precedence of its text) -> C text


def declaration(ctype: str, name: str, array: ArrayOf | None) -> str:
    """C declaration of a pointer to a buffer; without a name its type."""
    if array is None:
        return f"{ctype} *{name}"
    return f"{ctype} (*{name})" + "".join(f"[{n}]" for n in array.inner)


def element(env: Env, buffer: str, offset: Expr, spell: Spell) -> str:
    """C text of an element, which can be assigned to."""
    index = _index(env, buffer, offset, spell)
    return env["buffer"](buffer) + _bracketed(index or [spell(offset, 0)])


def address(env: Env, buffer: str, offset: Expr, spell: Spell, sure: bool = True) -> str:
    """C text of an element's address, an additive expression.  sure: the element is there; else its
    place may be outside of the array, and is counted from the start of its row."""
    base, array = env["buffer"](buffer), env["arrays"].get(buffer)
    if array is None:
        return base if offset == Const(0) else f"{base} + {spell(offset, 13)}"
    index, rest = (array.index(offset), Const(0)) if sure else array.row(offset)
    texts = [spell(i, 0) for i in index]
    if len(texts) <= len(array.inner):
        row = base + _bracketed([*texts, *["0"] * (len(array.inner) - len(texts))])
        return row if rest == Const(0) else f"{row} + {spell(rest, 13)}"
    return base + _bracketed(texts[:-1]) if texts[-1] == "0" else f"&{base}{_bracketed(texts)}"


def _index(env: Env, buffer: str, offset: Expr, spell: Spell) -> list[str]:
    """C texts of the indices of an element; [] if its buffer is a row of elements here."""
    array = env["arrays"].get(buffer)
    return [] if array is None else [spell(i, 0) for i in array.index(offset)]


def _bracketed(index: Sequence[str]) -> str:
    return "".join(f"[{i}]" for i in index)


__all__ = ["address", "declaration", "element"]

"""Names for extents that a kernel uses again and again: ``(((h + 1) / 2 + 1) / 2 ..`` of a symbol
``h`` stands once, in front of the work items, and is called ``h_part1`` from there on."""

from collections import Counter
from collections.abc import Iterator, Mapping

from aotc.emit.text.cexpr import Argument, c_index
from aotc.ir.contents import expressions, names_in, with_expressions
from aotc.ir.expr import Binary, Expr, Sym, children, leaves, substitute, walk
from aotc.ir.simplify import lower, upper
from aotc.ir.statements import OWN, Body, Section, Stmt, bodies, with_bodies, without_bodies

ROUNDED = ("floordiv", "mod")
Named = tuple[tuple[Argument, Expr], ...]


def with_named_extents(body: Body) -> tuple[Body, Named]:
    """Statements with names instead of quotients of symbols that they have several times, and what
    each name stands for, by the names before it.  Those of functions of their own are theirs."""
    found: Counter[Expr] = Counter()
    for e in _expressions(body):
        found.update(_quotients(e, {}))
    again = sorted((e for e, n in found.items() if n > 1), key=_size)
    taken, named = names_in(body), dict[Expr, Argument]()
    count: Counter[str] = Counter()
    for e in again:
        name = "_".join(sorted({s.name.removeprefix(OWN) for s in leaves(e)
                                if isinstance(s, Sym)})) + "_part"
        while True:
            count[name] += 1
            if f"{name}{count[name]}" not in taken:
                break
        named[e] = Argument(f"{name}{count[name]}", max(0, lower(e) or 0), upper(e))
    parts: list[tuple[Argument, Expr]] = []
    for e, own in named.items():
        known = {k: v for k, v in named.items() if k != e}
        parts.append((own, substitute(e, known)))
    return _with_names(body, named) if named else body, tuple(parts)


def _is_apart(s: Stmt) -> bool:
    return isinstance(s, Section) and s.function is not None


def _expressions(body: Body) -> Iterator[Expr]:
    """The expressions of statements that are in no function of their own."""
    for s in body:
        if not _is_apart(s):
            yield from expressions(without_bodies(s))
            for _, inner in bodies(s):
                yield from _expressions(inner)


def _with_names(body: Body, named: Mapping[Expr, Expr]) -> Body:
    """The statements with ``named`` where they are in no function of their own."""
    out = []
    for s in body:
        if not _is_apart(s):
            inner = {f: _with_names(b, named) for f, b in bodies(s)}
            alone = with_expressions(without_bodies(s), lambda e: substitute(e, named))
            s = with_bodies(alone, inner)
        out.append(s)
    return tuple(out)


def declare_extents(named: Named) -> list[str]:
    """C lines that declare the names."""
    return [f"const int64_t {c_index(own, 0)} = {c_index(e, 0)};" for own, e in named]


def _quotients(e: Expr, known: dict[Expr, Counter[Expr]]) -> Counter[Expr]:
    """How often each largest quotient of symbols stands in an expression, as it is written out."""
    if e not in known:
        if _is_quotient(e):
            known[e] = Counter([e])
        else:
            known[e] = Counter()
            for k in children(e):
                known[e].update(_quotients(k, known))
    return known[e]


def _is_quotient(e: Expr) -> bool:
    if not isinstance(e, Binary) or e.op not in ROUNDED:
        return False
    names = leaves(e)
    return bool(names) and all(isinstance(n, Sym) for n in names)


def _size(e: Expr) -> tuple[int, str]:
    return sum(1 for _ in walk(e)), c_index(e, 0)


__all__ = ["declare_extents", "with_named_extents"]

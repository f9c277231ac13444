"""Inputs that say shapes, where the model declares what comes of them: the extents that an output
must have leave one value for the numbers that decide them, and other numbers are a fault."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import expect
from aotc.frontend.building.values import Index, Val
from aotc.frontend.graph import Graph, Node
from aotc.ir.dtypes import INDEX, is_int
from aotc.ir.expr import Const, Expr, Sym, Where, compare, substitute, walk
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

MOST = 8  # elements of such an input
TRIED = 1 << 12  # combinations of extents


def settle_inputs(graph: Graph, build: Callable[[Graph], Builder]) -> Graph:
    """The Graph with what its declared outputs say of its inputs; the same object if that is
    nothing.  ``build``: a trial build."""
    unknown = {t.name: tuple(Sym(f"~{t.name}_{k}", 0, None) for k in range(n))
               for t in graph.inputs if (n := _few(t.dtype, t.shape))}
    if not unknown or graph.settled:
        return graph
    try:
        made = build(replace(graph, settled={**unknown}))
        pairs = [(d, e.value) for o in graph.outputs if o in graph.declared
                 for d, e in zip(made.tensor(o).shape, graph.declared[o], strict=True)
                 if isinstance(e, Const)]
    except (UnsupportedError, ModelError, ValueError):
        return graph  # the build without says why
    found = list(_solutions(pairs, {s for row in unknown.values() for s in row}))
    if len(found) != 1:
        return graph
    rows = {name: tuple(found[0].get(s) for s in row) for name, row in unknown.items()}
    return replace(graph, settled={n: row for n, row in rows.items() if any(row)})


def _few(dtype: str, shape: tuple[Expr, ...]) -> int:
    """The number of elements of a short list of integers, 0 of another tensor."""
    dims = static_shape(shape)
    few = is_int(dtype) and dims is not None and len(dims) == 1 and dims[0] <= MOST
    return dims[0] if few and dims else 0


def _solutions(pairs: list[tuple[Expr, int]], unknown: set[Sym]) -> Iterator[dict[Sym, Const]]:
    """Values of the unknown numbers in the extents (extent, its value), which fit all of them: of
    the extents that are declared."""
    asked = sorted({n for e, _ in pairs for n in walk(e) if isinstance(n, Sym) and n in unknown},
                   key=lambda s: s.name)
    values = sorted({n for _, n in pairs})
    if not asked or len(values) ** len(asked) > TRIED:
        return
    for chosen in product(values, repeat=len(asked)):
        table: dict[Sym, Const] = dict(zip(asked, map(Const, chosen)))
        if all(simplify(substitute(e, table)) == Const(n) for e, n in pairs):
            yield table


def enter_settled(b: Builder) -> None:
    """Give the inputs what is settled of them, and demand it of the data."""
    for name, row in b.graph.settled.items():
        raw = b.tensor(name)

        def element(i: Index, raw: Val = raw, row: tuple[Expr | None, ...] = row) -> Expr:
            out: Expr = b.load(raw, i)
            for k, e in enumerate(row):
                if e is not None:
                    out = Where(compare("eq", i[0], Const(k)), e, out)
            return simplify(out)
        b.env[name] = Val(raw.shape, INDEX, fn=element, name=name)
        outer, b.node = b.node, Node("Input", "", (), (f"{name}_settled",), {}, name)
        expect(b, [(b.load(raw, (Const(k),)), e) for k, e in enumerate(row)
                   if isinstance(e, Const)], "an element that the declared outputs decide is")
        b.node = outer

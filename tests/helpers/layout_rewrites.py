"""Rewrites that store given tensors in given layouts, and what is computed beside them."""

from collections.abc import Mapping

from aotc.ir.layout import Layout, Pad, Unfold
from aotc.ir.program import Compute, Program, Rewrite
from aotc.passes.layout_rule import layout_rewrite
from aotc.sched.choose.layout_choices import is_called
from aotc.sched.model.elementwise import elementwise_class


def expands(layout: Layout) -> bool:
    """True if a stored tensor is larger than the logical one or holds elements twice."""
    return any(isinstance(p, Unfold) and p.stride < p.size or isinstance(p, Pad)
               and (p.before or p.after) for p in layout.primitives)


def layout_rewrites(program: Program, layouts: Mapping[str, Layout]) -> tuple[Rewrite, ...]:
    """Rewrites of a Schedule that store each buffer of ``layouts`` ({name: Layout}) so, and with it
    the temps and outputs of equal shape along elementwise paths (the first of ``layouts`` that
    reaches a buffer counts).  A layout that repeats elements goes no further than its buffer; it is
    a copy unless the producer is elementwise itself."""
    chosen: dict[str, Layout] = {}
    out: list[Rewrite] = []
    for name, layout in layouts.items():
        if expands(layout):
            s = program.producer.get(name)
            simple = isinstance(s, Compute) and s.fold == "none"
            out.append(layout_rewrite(name, layout, copy=not simple))
            continue
        for b in elementwise_class(program, name) or (name,):
            if program.buffers[b].role in ("temp", "const") and not is_called(program, b):
                chosen.setdefault(b, layout)
    explicit = {name for _, name, _ in out}
    return tuple(layout_rewrite(b, lay) for b, lay in chosen.items()
                 if not lay.is_identity and b not in explicit) + tuple(out)

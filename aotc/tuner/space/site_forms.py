"""Other forms of a site than the untuned one: what the deciders make of its piece when they are
told something else."""

import json
from collections.abc import Iterator
from dataclasses import replace

from aotc.errors import AotcError
from aotc.ir.layout import Layout, LayoutJson
from aotc.ir.program import Compute, Program, Rewrite
from aotc.json_text import freeze_json
from aotc.passes.images.unfold import unfold_candidates
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.sums.split_k import RULE as SPLIT
from aotc.passes.winograd import TILES, find_convolution, legal_tiles
from aotc.sched.candidates.long_sums import count_parts
from aotc.sched.candidates.winograd_choice import SLIDING, is_exact_enough
from aotc.sched.decide import decide
from aotc.target.base import Target
from aotc.tuner.space.knobs import Form, settled_layouts
from aotc.tuner.space.partings import cut_groups, cuts
from aotc.tuner.space.sites import Site, number_buffers

LAYOUT = "layout:"  # what names of forms with another layout start with
CUT = "cut:"  # and of those whose parts are connected otherwise


def forms(site: Site, target: Target) -> tuple[Form, ...]:
    """Tuple of Form, those of other rewrites and connections that are legal; the untuned one is
    not among them.  Winograd forms keep to the error budget of the untuned choice."""
    out, seen = [], set()
    for name, how, rewrites in _options(site, target):
        form = decided_form(site, target, name, how, rewrites, site.layouts)
        text = None if form is None else str((form.rewrites, [
            (g.computes, sorted(g.connect.items())) for g in form.groups]))
        base = str((site.rewrites, [(g.computes, sorted(g.connect.items())) for g in site.groups]))
        if form is not None and text not in seen and text != base:
            seen.add(text)
            out.append(form)
    return tuple(out)


def decided_form(site: Site, target: Target, name: str, how: str, rewrites: tuple[Rewrite, ...],
                 layouts: dict[str, LayoutJson]) -> Form | None:
    """The Form that the deciders make of a site's piece; None if they refuse.  layouts: primitives
    of the buffers on its border."""
    given = settled_layouts(layouts, [b for b in site.fixed if b in site.piece.buffers])
    try:
        groups = None
        if name.startswith(CUT):
            groups = cut_groups(apply_rewrites(site.piece, rewrites), target,
                                int(name.removeprefix(CUT)))
            if groups is None:
                return None
        schedule = decide(site.piece, target, how, rewrites, layouts=given, groups=groups,
                          written=False)
    except AotcError:
        return None
    after = apply_rewrites(site.piece, rewrites)
    kept = {b: x for b, x in layouts.items() if b in site.fixed}
    return Form(name, rewrites, after, schedule.groups, kept | {
        b: x for b, x in schedule.layouts.items() if b in after.buffers})


def layout_name(number: int, layout: Layout) -> str:
    """Name of the form in which buffer ``number`` of a site's piece is stored in a Layout."""
    return f"{LAYOUT}{number}:{json.dumps(layout.to_json())}"


def layout_form(site: Site, target: Target, name: str) -> Form | None:
    """The Form of such a name; None if the deciders refuse it."""
    number, _, data = name.removeprefix(LAYOUT).partition(":")
    buffer = next((b for b, n in number_buffers(site.piece, "").items() if n == number), None)
    if buffer is None or buffer not in site.fixed:
        return None
    primitives = freeze_json(json.loads(data))
    layouts = {b: x for b, x in site.layouts.items() if b != buffer}
    return decided_form(site, target, name, "all", site.rewrites,
                        layouts | ({buffer: primitives} if primitives else {}))



def _options(site: Site, target: Target) -> Iterator[tuple[str, str, tuple[Rewrite, ...]]]:
    """(name, connect, rewrites) of what the deciders may be told."""
    now = {c: (rule, c, p) for rule, c, p in site.rewrites}
    others: dict[str, list[tuple[str, Rewrite | None]]] = {}
    # a tensor of the model counts as the caller's own only if it is
    own = replace(site.piece, inputs=tuple(b for b in site.piece.inputs
                                           if site.piece.buffers[b].role == "input"))
    unfolded = unfold_candidates(own)
    for s in site.piece.steps:
        if not isinstance(s, Compute):
            continue
        others[s.out] = [("direct", None)] if s.out in now else []
        if s.out in unfolded and now.get(s.out, ("",))[0] != "unfold":
            others[s.out].append(("unfold", ("unfold", s.out, {})))
        others[s.out] += _winograd(site.piece, s) if target.rows("transform") else []
        others[s.out] += [(f"parts{n}", (SPLIT, s.out, {"parts": n}))
                          for n in count_parts(site.piece, target, s)
                          if now.get(s.out) != (SPLIT, s.out, {"parts": n})]
    for compute, options in others.items():
        for name, item in options:
            rewrites = tuple(r for c, r in now.items() if c != compute)
            rewrites += (item,) if item is not None else ()
            yield name, "all", rewrites
    if any(level != "register" for g in site.groups for level in g.connect.values()):
        yield "register", "register", site.rewrites
    for at in cuts(site):
        yield f"{CUT}{at}", "all", site.rewrites


def _winograd(program: Program, step: Compute) -> list[tuple[str, Rewrite | None]]:
    conv = find_convolution(program, step)
    if conv is None:
        return []
    windows = list(conv.windows.values())[-SLIDING:]
    return [(f"winograd{m}", ("winograd", step.out, {w.out.name: m for w in windows}))
            for m in TILES if all(m in legal_tiles(w) for w in windows)
            and is_exact_enough(conv, windows, m)]


__all__ = ["LAYOUT", "decided_form", "forms", "layout_form", "layout_name"]

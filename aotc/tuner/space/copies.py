"""What a point of one site means for all sites equal to it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aotc.ir.program import Program, Rewrite
from aotc.passes.rewrites import apply_rewrites
from aotc.tuner.space.assemble import SiteChoice, Tie
from aotc.tuner.space.knobs import Form
from aotc.tuner.space.sites import Site, number_buffers, rename_buffers, rename_group
from aotc.tuner.space.trial import Candidate, Point

if TYPE_CHECKING:
    from aotc.tuner.search.site_search import SiteSearch


@dataclass(frozen=True)
class _Moved:
    """A form in a site equal to the one it was made for: its rewrites and Program there, and the
    {buffer: buffer there}."""

    rewrites: tuple[Rewrite, ...]
    program: Program = field(repr=False)
    names: dict[str, str] = field(repr=False)


class Copies:
    """The sites of a model.  searches: {key: SiteSearch of the first site with it}, whose forms and
    candidates are those of all: only names differ."""

    def __init__(self, sites: Iterable[Site], searches: Mapping[str, "SiteSearch"]) -> None:
        self.searches = searches
        self.moved: dict[tuple[str, str], _Moved | None] = {}
        self.sites: dict[str, list[Site]] = {}
        for s in sites:
            self.sites.setdefault(s.key, []).append(s)

    def names(self, key: str) -> list[str]:
        """Names of the sites with a key, in order."""
        return [s.name for s in self.sites[key]]

    def choices(self, key: str, point: Point, tie: Tie, why: str = "",
                names: Collection[str] | None = None) -> dict[str, SiteChoice]:
        """{site name: Choice} of the sites with a key (those called ``names``) at a point; {} if
        it is not legal."""
        search, chosen = self.searches[key], {}
        found = search.candidate(point)
        if found is None:
            return {}
        found = replace(found, groups=tuple(replace(g, why=why) for g in found.groups))
        for site in self.sites[key]:
            if names is None or site.name in names:
                chosen[site.name] = self._choice(search, search.forms[point[0]], found, site, tie)
        return {name: c for name, c in chosen.items() if c is not None}

    def _choice(self, search: "SiteSearch", form: Form, found: Candidate, site: Site,
                tie: Tie) -> SiteChoice | None:
        if site is search.site:
            return SiteChoice(site, found, form.rewrites, tie)
        key = site.name, form.name
        if key not in self.moved:
            self.moved[key] = _moved(form, search.site, site)
        there = self.moved[key]
        if there is None:
            return None
        groups = tuple(replace(rename_group(g, there.names, g.name), why=g.why)
                       for g in found.groups)
        layouts = {there.names[b]: x for b, x in found.layouts.items() if b in there.names}
        return SiteChoice(site, replace(found, program=there.program, groups=groups,
                                        layouts=layouts),
                          there.rewrites, tie)


def _moved(form: Form, site: Site, other: Site) -> _Moved | None:
    """The _Moved of a form of ``site`` in an equal one; None if its Program comes out otherwise
    there."""
    names = dict(zip(number_buffers(site.piece, ""), number_buffers(other.piece, "")))
    rewrites = tuple((rule, names[compute], p) for rule, compute, p in form.rewrites)
    program = apply_rewrites(other.piece, rewrites)
    here, there = number_buffers(form.program, "$"), number_buffers(program, "$")
    if len(here) != len(there) or str(rename_buffers(form.program, here)) != str(
            rename_buffers(program, there)):
        return None
    return _Moved(rewrites, program, dict(zip(here, there)))


__all__ = ["Copies"]

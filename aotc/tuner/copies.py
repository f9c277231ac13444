"""What a point of one site means for all sites equal to it."""

from dataclasses import replace

from aotc.tuner.assemble import Choice
from aotc.tuner.site_search import SiteSearch


class Copies:
    """The sites of a model; forms of each are made once."""

    def __init__(self, sites, target):
        self.sites, self.target, self.searches = sites, target, {}

    def choices(self, key, point, tie, why=""):
        """{site name: Choice} of all sites with a key at a point; of those where it is legal."""
        chosen = {}
        for site in (s for s in self.sites if s.key == key):
            if site.name not in self.searches:
                self.searches[site.name] = SiteSearch(site, 1, 0.0, self.target, None, None)
            own = self.searches[site.name]
            found = own.candidate(point)
            if found is not None:
                found = replace(found, groups=tuple(replace(g, why=why) for g in found.groups))
                chosen[site.name] = Choice(site, found, own.forms[point[0]].rewrites, tie)
        return chosen


__all__ = ["Copies"]

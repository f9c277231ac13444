"""One run as stages with shares of its time, and a file that holds what each has found so far."""

import json
import time
import traceback
from pathlib import Path


class Stages:
    """``results`` of stages by name, kept in the file OUT/cuda.json.  ``seconds``: of the whole
    run, from now on."""

    def __init__(self, out, seconds, about, clock=time.monotonic):
        self.path, self.clock = Path(out) / "cuda.json", clock
        self.start, self.end = clock(), clock() + seconds
        self.results = {"about": about}
        self.stage_end = self.end
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.save()

    def run(self, name, seconds, stage):
        """``stage(self, rows)`` fills a dict, for so long at most, which it asks ``late`` about;
        what it raises is kept as text."""
        begun = self.clock()
        self.stage_end = min(self.end, begun + seconds)
        rows = self.results[name] = {}
        print(f"== {name}, {begun - self.start:.0f} s from the start", flush=True)
        try:
            if self.late():
                rows["skipped"] = "no time is left"
            else:
                stage(self, rows)
        except Exception as err:  # the stages behind it are worth having
            rows["failed"] = f"{type(err).__name__}: {err}".splitlines()[0]
            traceback.print_exc()
        rows["seconds"] = round(self.clock() - begun, 1)
        self.save()

    @property
    def left(self):
        """Seconds that the stage at work has left."""
        return self.stage_end - self.clock()

    def late(self):
        """True if the stage at work has no time left."""
        return self.left <= 0

    def note(self, rows, name, row):
        """A row of a stage is there: shown, and kept in the file."""
        rows[name] = row
        print(f"{name:40} " + ", ".join(f"{k} {_short(v)}" for k, v in row.items()), flush=True)
        self.save()

    def save(self):
        """Write the file anew; a run that is cut leaves the one before."""
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.results, indent=1) + "\n")
        new.replace(self.path)


def _short(value):
    return f"{value:.4g}" if isinstance(value, float) else value


__all__ = ["Stages"]

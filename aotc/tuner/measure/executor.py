"""Where candidates are built and timed.  One small interface, so that other machines can do it.

``LocalExecutor`` does it here, for candidates by themselves (``inside.py`` does it inside the whole
model): all candidates become one bundle, its files are compiled in parallel, and a process of its
own, which may crash or hang, builds and runs it.  If that fails, halves are tried, until the
candidate that breaks it is alone.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from subprocess import Popen
from typing import Any, Protocol

from aotc.tuner.measure.rigs import Rig
from aotc.tuner.space.trial import Candidate

BUILD_TIMEOUT = 300.0  # seconds for the C compiler over one batch
RUN_TIMEOUT = 60.0  # for running it
MAX_BATCHES = 12  # of one call: a failure that is everybody's must not be looked for in each


@dataclass(frozen=True)
class Result:
    """``seconds`` of one candidate's kernels together (None if it failed); ``error``: why;
    ``interval``: 95 % interval of its time over that of its site's first candidate, () if the
    executor does not tell."""

    seconds: float | None
    error: str = ""
    interval: tuple[float, ...] = ()


@dataclass(frozen=True)
class Job:
    """What a worker is told, pickled: candidates in the order in which they run, the Rig,
    Schedule.math, seconds of its clock to measure, calls to measure at least."""

    candidates: tuple[Candidate, ...]
    rig: Rig
    math: str
    seconds: float
    calls: int


class Executor(Protocol):
    """Who measures."""

    def build_and_measure(self, candidates: Sequence[Candidate]) -> list[Result]:
        """A Result per candidate, in order."""


class LocalExecutor:
    """Builds and times on this machine.

    rig: of the target; seconds: measured per batch; timeouts in seconds; calls: measured at
    least."""

    def __init__(self, rig: Rig, seconds: float = 0.8, math: str = "fast",
                 build_timeout: float = BUILD_TIMEOUT, run_timeout: float = RUN_TIMEOUT,
                 calls: int = 9) -> None:
        self.rig, self.seconds = rig, seconds
        self.math, self.timeout, self.calls = math, build_timeout + run_timeout, calls

    def build_and_measure(self, candidates: Sequence[Candidate]) -> list[Result]:
        """A Result per candidate.  Never raises for what a candidate does."""
        results: dict[int, Result] = {}
        todo, left = [order_in_turns([c.site
                                      for c in candidates])] if candidates else [], MAX_BATCHES
        while todo:
            numbers, left = todo.pop(), left - 1
            found = self._batch([candidates[n] for n in numbers])
            if isinstance(found, list):
                for n, (seconds, interval) in zip(numbers, found):
                    results[n] = Result(seconds, interval=tuple(interval))
            elif len(numbers) == 1 or left < len(todo) + 2:
                for n in numbers:
                    results[n] = Result(None, found)
            else:
                todo += [numbers[:len(numbers) // 2], numbers[len(numbers) // 2:]]
        return [results[n] for n in range(len(candidates))]

    def _batch(self, candidates: Sequence[Candidate]) -> list[Any] | str:
        """(seconds, interval) per candidate, or the text of what went wrong."""
        with tempfile.TemporaryDirectory(prefix="aotc-tune-") as scratch:
            folder = Path(scratch)
            job = Job(tuple(candidates), self.rig, self.math, self.seconds, self.calls)
            (folder / "job").write_bytes(pickle.dumps(job))
            error = finish(start("trial", folder), folder, self.timeout)
            return error or json.loads((folder / "times").read_text())


def order_in_turns(sites: Iterable[str]) -> list[int]:
    """Numbers 0.. of candidates in the order in which they run: those of one site as far apart as
    can be, for what others leave in the caches is what a model would."""
    by_site: dict[str, list[int]] = {}
    for n, site in enumerate(sites):
        by_site.setdefault(site, []).append(n)
    return [n for turn in zip_longest(*by_site.values()) for n in turn if n is not None]


def start(action: str, folder: Path) -> Popen[bytes]:
    """A worker process, in a group of its own."""
    root = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "aotc.tuner.measure.measure_worker", action, str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path})


def finish(process: Popen[bytes], folder: Path, timeout: float) -> str:
    """"" once the worker has done its work, else why not; its whole process group is gone then."""
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        return f"took longer than {timeout:.0f} s"
    except BaseException:
        stop(process)
        raise
    if code == 0:
        return ""
    what = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    text = (folder / "log").read_text(errors="replace").strip().splitlines()
    last = next((x for x in reversed(text) if "rror" in x), text[-1] if text else "")
    return f"{what}: {last[:300]}" if last else what


def stop(process: Popen[bytes]) -> None:
    """End a worker that has not, with all it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has just ended
    process.wait()


__all__ = ["Executor", "Job", "LocalExecutor", "Result", "finish", "order_in_turns", "start",
           "stop"]

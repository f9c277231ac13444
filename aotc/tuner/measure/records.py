"""What has been measured: one JSON object per line, appended and never rewritten.

A process may be killed at any moment: a line that was not finished is dropped, and cut off before
anything is appended.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from aotc.errors import AotcError
from aotc.json_text import read_json
from aotc.tuner.space.trial import Point

VERSION = 1


@dataclass(frozen=True)
class Record:
    """One candidate measured: ``site``: key of the site; ``target`` and ``machine`` it ran on;
    ``point``: (form, ((knob, choice), ...)); ``seconds`` (None: it failed, ``error`` says why) and
    ``base``: seconds of the untuned candidate beside it; ``analytic``: seconds predicted without
    correction; ``features``: numbers for the correction."""

    site: str
    target: str
    machine: str
    point: Point
    seconds: float | None
    base: float | None
    analytic: float
    features: tuple[float, ...]
    error: str = ""

    @property
    def ratio(self) -> float:
        """Time in units of the untuned candidate's; infinite for one that failed."""
        return self.seconds / self.base if self.seconds and self.base else float("inf")


class Records:
    """Records of a file (``path``; None: kept in memory only), those there first."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path if path is None else Path(path)
        self.all: list[Record] = []
        if self.path is not None and self.path.exists():
            self.all = _read(self.path)

    def add(self, records: Sequence[Record]) -> None:
        """Append: each line is written whole or, by a kill, cut short at the end of the file."""
        self.all += records
        if self.path is None or not records:
            return
        text = "".join(json.dumps({"v": VERSION, **asdict(r)}) + "\n" for r in records)
        with open(self.path, "ab") as f:
            f.write(text.encode())
            f.flush()
            os.fsync(f.fileno())


def _read(path: Path) -> list[Record]:
    data = path.read_bytes()
    whole = data[:data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with open(path, "r+b") as f:
            f.truncate(len(whole))
    return [_record(line, f"{path}, line {i}") for i, line in enumerate(whole.splitlines(), 1)]


def _record(line: bytes, where: str) -> Record:
    try:
        data = read_json(line)
        if data.pop("v") != VERSION:
            raise ValueError("another version's")
        form, values = data.pop("point")
        return Record(**data | {"point": (form, tuple((k, c) for k, c in values)),
                                "features": tuple(data["features"])})
    except (ValueError, KeyError, TypeError) as err:
        raise AotcError(f"records {where}: no record of aotc tune ({err}); give another file, or "
                        "remove the line") from None


__all__ = ["Record", "Records"]

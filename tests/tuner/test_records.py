"""Records survive whatever happens to the process that writes them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from aotc.errors import AotcError
from aotc.tuner.measure.records import Record, Records

ONE = Record("s1", "c", "here", ("", (("0.tile.n", 4), ("0.0.lanes", "n"))), 1e-3, 2e-3, 1e-4,
             (1.0, -2.5))
BAD = Record("s2", "c", "here", ("direct", ()), None, None, 1e-4, (0.0, 0.0), "crash")


def test_they_come_back_as_they_were(tmp_path):
    path = tmp_path / "r.jsonl"
    Records(path).add([ONE, BAD])
    more = Records(path)
    more.add([ONE])
    assert Records(path).all == [ONE, BAD, ONE]
    assert ONE.ratio == 0.5 and BAD.ratio == float("inf")


def test_without_a_file_they_are_kept_in_memory():
    kept = Records()
    kept.add([ONE])
    assert kept.all == [ONE]


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_an_unfinished_line_is_dropped_and_cut_off(tmp_path, cut):
    path = tmp_path / "r.jsonl"
    Records(path).add([ONE, BAD])
    path.write_bytes(path.read_bytes()[:-cut])
    again = Records(path)
    assert again.all == [ONE]
    again.add([BAD])
    assert Records(path).all == [ONE, BAD]


@pytest.mark.parametrize("line", [b"no json\n", b"{}\n", b"[1]\n", b'{"v": 99}\n', b"\n"])
def test_another_file_is_refused_with_the_line(tmp_path, line):
    path = tmp_path / "r.jsonl"
    Records(path).add([ONE])
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(AotcError, match="line 2"):
        Records(path)


WRITER = """
import sys
from aotc.tuner.measure.records import Record, Records
kept = Records(sys.argv[1])
print("ready", flush=True)
while True:
    kept.add([Record("s", "c", "here", ("", (("k", 1),)), 1.0, 1.0, 1.0, (0.5,) * 40)] * 50)
"""


def test_a_process_killed_while_it_writes_leaves_whole_records(tmp_path):
    path = tmp_path / "r.jsonl"
    for wait in (0.01, 0.05, 0.1):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)],
                                  stdout=subprocess.PIPE)
        writer.stdout.readline()
        while not path.exists() or not path.stat().st_size:
            time.sleep(0.001)
        time.sleep(wait)
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        before = len(Records(path).all)
        assert before and all(r == ONE or r.features == (0.5,) * 40 for r in Records(path).all)
        Records(path).add([ONE])
        assert len(Records(path).all) == before + 1

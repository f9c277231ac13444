"""The official suite: every case of passing.txt passes, and the list only grows.

A sample of the cases runs always; all of them with ``-m conformance``, a part of them with
AOTC_SHARD=K/N (every N-th from the K-th on)."""

import os
import subprocess

import pytest
import suite

import aotc.onnx_backend as backend

LISTED = suite.passing()
SAMPLE = 10  # cases that the default run tries


def known(names):
    """Those that the installed onnx package has: other releases have other cases."""
    return [n for n in names if n in suite.suite()]


def spread(names, count):
    """``count`` names at equal distances, from the middle of the first one on: the ends of the list
    take longest."""
    step = max(1, len(names) // count)
    return names[step // 2::step][:count]


@pytest.mark.parametrize("name", spread(LISTED, SAMPLE))
def test_a_sample_passes(name):
    if name not in suite.suite():
        pytest.skip("the installed onnx has no such case")
    assert suite.outcome(suite.suite()[name], backend) == ""


@pytest.mark.conformance
@pytest.mark.parametrize("name", suite.shard(LISTED, os.environ.get("AOTC_SHARD", "0/1")))
def test_every_listed_case_passes(name):
    if name not in suite.suite():
        pytest.skip("the installed onnx has no such case")
    assert suite.outcome(suite.suite()[name], backend) == ""


def test_the_list_is_sorted_and_of_this_suite():
    assert sorted(set(LISTED)) == LISTED
    assert len(known(LISTED)) > 0.9 * len(LISTED), "another suite's names"


def test_the_list_only_grows(repository):
    """No name of the last commit's list is gone."""
    before = subprocess.run(["git", "show", "HEAD:tests/conformance/passing.txt"], cwd=repository,
                            capture_output=True, text=True, timeout=60)
    if before.returncode:
        pytest.skip("no earlier list: not a git checkout, or a new file")
    assert set(before.stdout.split()) <= set(LISTED)


def test_a_wrong_answer_is_told():
    """The comparison fails where it should: another model's answers, another shape, no answer."""
    case = suite.suite()["node/test_relu"]

    class Wrong:
        def __init__(self, change):
            self.change = change

        def prepare(self, model):
            inner, change = backend.prepare(model), self.change

            class Rep:
                def run(self, inputs):
                    return [change(a) for a in inner.run(inputs)]
            return Rep()
    assert suite.outcome(case, Wrong(lambda a: a)) == ""
    assert "values" in suite.outcome(case, Wrong(lambda a: a + 0.01))
    assert "types" in suite.outcome(case, Wrong(lambda a: a[None]))
    assert "types" in suite.outcome(case, Wrong(lambda a: a.astype("f8")))

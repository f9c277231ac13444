"""Real architectures end to end: compile, build, run, compare with the reference."""

import json
import os

import pytest
import suite
from zoo_files import OTHERS, SMALL, SMALLEST, zoo_folder

from aotc.tools.verify import verify


def _matches(path):
    results = verify(path, target="native")
    assert results
    wrong = [f"{title}: {match}" for title, match in results if not match.ok]
    assert not wrong, "\n".join(wrong)
    return results


@pytest.mark.parametrize("name", [
    n if n in SMALLEST else pytest.param(n, marks=pytest.mark.zoo) for n in SMALL])
def test_small_model_matches_the_reference(zoo_model, name):
    _matches(zoo_model(name))


@pytest.mark.zoo
@pytest.mark.parametrize("name", OTHERS)
def test_model_matches_the_reference(zoo_model, name):
    _matches(zoo_model(name))


@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", suite.shard(SMALL + OTHERS, os.environ.get("AOTC_SHARD", "0/1")))
def test_model_matches_the_reference_on_the_simulated_accelerator(zoo_model, name):
    results = verify(zoo_model(name), target="dsa:stcp920")
    assert results and all(match.ok for _, match in results), results


def test_dynamic_model_runs_at_several_shapes_from_one_bundle(zoo_model):
    titles = {title for title, _ in _matches(zoo_model("dense_dynamic"))}
    assert len(titles) >= 3, titles


def test_every_model_of_the_zoo_is_in_a_list():
    if not zoo_folder().is_dir():
        pytest.skip("no zoo: set AOTC_ZOO to its folder")
    there = {json.loads(p.read_text())["name"] for p in zoo_folder().glob("*.json")}
    assert there == set(SMALL) | set(OTHERS)

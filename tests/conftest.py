"""Shared fixtures: the model zoo (materialised once per cache folder) and small models."""

import gc
import importlib.util
import json
import os
import shutil
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest
from bundle_plans import lookup_bundle
from quick_builds import QuickBuilds
from zoo_files import ROOT, zoo_folder, zoo_module

from aotc import pipeline
from aotc.emit.bundle.write import write_bundle
from aotc.runtime.loading import load

# what a run makes lives for long: looking through it all again and again finds little
gc.set_threshold(100_000, 50, 100)

# `make test` runs this: the makes of bundles under test must not believe they are its children
for _variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
    os.environ.pop(_variable, None)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true",
                     help="rewrite the golden files of tests/emit from what is generated now")


def pytest_configure(config):
    """The suites ``product`` and ``zoo`` build bundles as their users do, the others quicker."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return  # a worker has the environment of the process that started it
    chosen = config.getoption("markexpr").split()
    longer = not chosen or any(m in chosen and "not" not in chosen[:chosen.index(m)][-1:]
                               for m in ("product", "zoo"))
    config.add_cleanup(QuickBuilds(not longer).close)


def pytest_collection_modifyitems(config, items):
    """The tests of one zoo model run one after another, in one process: it is made once."""
    _keep_share(config, items)

    def model(item):
        at = getattr(item, "callspec", None)
        of_zoo = item.get_closest_marker("zoo") or item.path.parent.name == "zoo"
        return str(at.params.get("name", "")) if at and of_zoo else ""
    items.sort(key=model)  # stable: all others keep their order, and come first
    for item in items:
        if model(item):
            item.add_marker(pytest.mark.xdist_group(model(item)))


HALF = 2  # of the models of the zoo, which share what is made of one


def _keep_share(config, items):
    """With AOTC_SHARD=K/N, of each longer test with many parameters every N-th, from the K-th on,
    and one of those with few; of each test over the models of the zoo half."""
    first, parts = map(int, os.environ.get("AOTC_SHARD", "0/1").split("/"))
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("product") or item.get_closest_marker("zoo"):
            tests[item.path, getattr(item, "originalname", item.name)].append(item)
    left = set()
    for (_, name), own in tests.items():
        n = min(len(own), parts if not own[0].get_closest_marker("zoo") else min(parts, HALF))
        left |= {x for i, x in enumerate(own) if i % n != (first + crc32(name.encode())) % n}
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=[*left])


@pytest.fixture(scope="module", autouse=True)
def _settled():
    """What a module leaves behind stays until the end, mostly in caches: the collector is not to
    look through it again at every test that asks for it."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def update_golden(request):
    """True where golden files are to be rewritten."""
    return request.config.getoption("--update-golden")


@pytest.fixture(scope="session")
def repository():
    """Root folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def zoo_model(request, tmp_path_factory):
    """``zoo_model(name) -> path`` of a runnable model; skips where there is no zoo.

    Stubs are filled into AOTC_ZOO_CACHE if set, else into a folder of this session, one model
    at a time: all of them together take 3 GB."""
    cache = Path(os.environ.get("AOTC_ZOO_CACHE") or tmp_path_factory.mktemp("zoo"))
    cache.mkdir(parents=True, exist_ok=True)
    made = []

    def get(name):
        stub = zoo_folder() / f"{name}.stub.onnx"
        if not stub.exists():
            pytest.skip(f"no zoo model {name}: set AOTC_ZOO to the folder with its stub")
        path = cache / f"{name}.onnx"
        if not path.exists():
            for old in made:
                old.unlink()
            made[:] = [] if os.environ.get("AOTC_ZOO_CACHE") else [path]
            partial = path.with_suffix(".partial")
            zoo_module("materialize").materialize(str(stub), str(partial))
            partial.rename(path)
        return path
    return get


@pytest.fixture(scope="session")
def zoo_inputs():
    """``zoo_inputs(name, seed, dims) -> feeds`` by the zoo's own recipe."""
    def get(name, seed=0, dims=None):
        meta = json.loads((zoo_folder() / f"{name}.json").read_text())
        return zoo_module("reference").make_inputs(meta, seed, dims)
    return get


@pytest.fixture(scope="session")
def digits_model(tmp_path_factory):
    """(path of digits.onnx, fitted classifier, test images, labels), trained once per session."""
    spec = importlib.util.spec_from_file_location("digits_train",
                                                  ROOT / "examples" / "digits" / "train.py")
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    path = tmp_path_factory.mktemp("digits") / "digits.onnx"
    return (path, *train.write_model(path))


@pytest.fixture(scope="session")
def lookup_folder(tmp_path_factory):
    """Folder of the lookup bundle; tests that change files take ``lookup_copy``."""
    return write_bundle(lookup_bundle(), tmp_path_factory.mktemp("bundles") / "lookup")


@pytest.fixture
def lookup_copy(lookup_folder, tmp_path):
    """A folder of one's own with the lookup bundle, built if the shared one is."""
    return shutil.copytree(lookup_folder, tmp_path / "lookup")


@pytest.fixture(scope="session")
def lookup(lookup_folder):
    """The lookup bundle, loaded for one thread."""
    return load(lookup_folder)


@pytest.fixture(autouse=True, scope="session")
def decided_otherwise():
    """No test is right because a decision that was refused has been made again: such an error is
    the test's.  The function that makes them again, for tests of it."""
    found = pipeline._decided_otherwise

    def refused(work, proved, err):
        raise err

    pipeline._decided_otherwise = refused
    yield found
    pipeline._decided_otherwise = found

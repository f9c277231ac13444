"""Bundles written and built once per session."""

import shutil

import pytest
from bundle_plans import lookup_bundle

from aotc.emit.write import write_bundle
from aotc.runtime.model import load


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

"""Compiled bundles, made once per session."""

import shutil

import pytest
from product_models import MODELS, VARIANTS

import aotc


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """``bundle(name, target="native", weights="file", as_name=None)`` -> Path of a bundle of
    product_models; shared, so tests that change files take ``bundle_copy``."""
    made = {}

    def get(name, target="native", weights="file", as_name=None):
        key = (name, target, weights, as_name)
        if key not in made:
            model, dims = MODELS[name]
            folder = tmp_path_factory.mktemp("bundles") / name
            made[key] = aotc.compile(model(), folder, target=target, weights=weights,
                                     name=as_name or name, dims=dims,
                                     variants=VARIANTS.get(name)).path
        return made[key]
    return get


@pytest.fixture
def bundle_copy(bundle, tmp_path):
    """As ``bundle``, but a folder of one's own."""
    def get(*args, **options):
        return shutil.copytree(bundle(*args, **options), tmp_path / "copy")
    return get

"""Counts of n-grams against ONNX Runtime, on random pools: by the library kernel that walks a tree
and by comparing all of them; what a bundle counts, too."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, one_node, program_of, run, same

import aotc
from aotc.errors import ModelError, UnsupportedError
from aotc.ir.library import HOSTED

MODES = ("TF", "IDF", "TFIDF")


def _case(seed, shape, dtype=np.int64, texts=False, shared=False, **attrs):
    """(model, feeds) of a pool of 1-, 2- and 3-grams of few tokens, their outputs in any order."""
    rng = np.random.default_rng(seed)
    grams = [sorted({tuple(map(int, g)) for g in rng.integers(0, 6, (8, n))}) for n in (1, 2, 3)]
    flat = [t for row in grams for g in row for t in g]
    starts = np.cumsum([0] + [n * len(row) for n, row in enumerate(grams, 1)])[:3].tolist()
    total = sum(map(len, grams))
    outs = rng.permutation(total) // (2 if shared else 1)
    x = rng.integers(0, 7, shape).astype(dtype)
    pool = {"pool_strings": [f"w{t}" for t in flat]} if texts else {"pool_int64s": flat}
    if texts:
        x = np.array([f"w{t}" for t in x.reshape(-1)], object).reshape(shape)
    attrs = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0,
             "weights": rng.random(total).astype(np.float32).tolist(), **attrs}
    return one_node("TfIdfVectorizer", [x], dict(
        ngram_counts=starts, ngram_indexes=outs.tolist(), **pool, **attrs))


@pytest.mark.parametrize("library", (HOSTED, ()), ids=("library", "expressions"))
@pytest.mark.parametrize("seed,shape,attrs", [
    (0, 9, {}), (1, (3, 5), dict(mode="IDF", max_skip_count=2)),
    (2, (2, 8), dict(mode="TFIDF", max_skip_count=100, min_gram_length=2)),
    (3, 2, dict(mode="TFIDF", max_gram_length=2)), (4, 12, dict(min_gram_length=3)),
    (5, (1, 7), dict(mode="TFIDF", shared=True)), (6, 1, dict(max_skip_count=3)),
])
def test_counts_and_weights_of_n_grams(seed, shape, attrs, library):
    model, feeds = _case(seed, shape, np.int32 if seed % 2 else np.int64, **attrs)
    same(run(program_of(model, library=library), feeds), by_onnxruntime(model, feeds))


@pytest.mark.parametrize("texts", (False, True))
def test_bundles_count_rows_of_any_length(texts, tmp_path):
    model, feeds = _case(7, (2, 6), texts=texts, mode="TFIDF", max_skip_count=1)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    bundle = aotc.compile(model, out=tmp_path / "b", target="c", dims={"n": (1, 9)})
    same(list(bundle.load().run(feeds).values()), by_onnxruntime(model, feeds))


def test_what_a_pool_cannot_be_is_refused():
    model, _ = _case(8, 5, mode="IDF", shared=True)
    with pytest.raises(UnsupportedError, match="IDF where n-grams share an output; give each"):
        program_of(model)
    model, _ = one_node("TfIdfVectorizer", [np.arange(3)], dict(
        mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
        ngram_indexes=[0, 1], pool_int64s=[4, 4]))
    with pytest.raises(ModelError, match="the pool has an n-gram twice, as number 0 and 1"):
        program_of(model)

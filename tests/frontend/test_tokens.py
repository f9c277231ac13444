"""Texts cut into tokens, and what counts them, against ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import aotc
from aotc.errors import UnsupportedError

MICROSOFT = "com.microsoft"
TEXTS = ["a bb  ccc", "Dd;a,\u00e9\u00e9 x", "", "--a---b-- c_1--", "one two two\nthree", " , ;"]
KINDS = {"spaces": dict(separators=[" "]), "long": dict(separators=[" ", ","], mincharnum=2),
         "marked": dict(separators=[" ", ",", ";"], mark=1), "dashes": dict(separators=["--", " "]),
         "letters": dict(separators=[""], mark=1, pad_value="<pad>"),
         "any": dict(tokenexp="."), "words": dict(tokenexp="[a-zA-Z0-9_]+", mincharnum=2),
         "ascii": dict(tokenexp="\\w+")}


def model_of(nodes, outputs, shape=("n",)):
    graph = helper.make_graph(
        nodes, "tokens", [helper.make_tensor_value_info("x", TensorProto.STRING, list(shape))],
        [helper.make_tensor_value_info(o, t, None) for o, t in outputs.items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)])


def tokenizer(x, y, **attrs):
    return helper.make_node("Tokenizer", [x], [y], domain=MICROSOFT,
                            **dict(mark=0, mincharnum=1, pad_value="#") | attrs)


@pytest.mark.parametrize("names", [
    ("marked", "dashes", "words"), pytest.param(KINDS, marks=pytest.mark.product)])
def test_every_way_to_cut(names, tmp_path):
    model = model_of([tokenizer("x", n, **KINDS[n]) for n in names],
                     dict.fromkeys(names, TensorProto.STRING))
    net = aotc.compile(model, tmp_path / "b", target="c", name="net").load(threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for texts in (TEXTS, TEXTS[2:3], TEXTS[:1], ["", " "]):
        x = np.array(texts, object)
        got = net.run({"x": x})
        for name, want in zip(names, session.run(None, {"x": x})):
            assert got[name].tolist() == want.tolist(), (name, texts)


def test_counted_behind_what_moves_and_changes_texts(tmp_path):
    """As skl2onnx writes a TfidfVectorizer: texts as a column, in small letters, n-grams of one and
    two tokens."""
    grams = dict(mode="TFIDF", min_gram_length=1, max_gram_length=2, max_skip_count=0,
                 ngram_counts=[0, 3], ngram_indexes=[2, 0, 1, 3, 4],
                 pool_strings=["a", "bb", "two", "two", "two", "a", "bb"],
                 weights=[1.0, 2.0, 0.5, 1.5, 3.0])
    nodes = [helper.make_node("Constant", [], ["flat"], value_ints=[-1]),
             helper.make_node("Reshape", ["x", "flat"], ["row"]),
             helper.make_node("StringNormalizer", ["row"], ["small"], case_change_action="LOWER",
                              locale="C"),
             tokenizer("small", "cut", tokenexp="[a-zA-Z0-9_]+"),
             helper.make_node("Flatten", ["cut"], ["tokens"]),
             helper.make_node("TfIdfVectorizer", ["tokens"], ["y"], **grams)]
    model = model_of(nodes, {"y": TensorProto.FLOAT}, ("n", 1))
    net = aotc.compile(model, tmp_path / "b", target="c", name="net").load(threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for texts in (TEXTS, ["A BB a bb TWO two"], ["", ""]):
        x = np.array(texts, object).reshape(-1, 1)
        np.testing.assert_allclose(net.run({"x": x})["y"], session.run(None, {"x": x})[0])


@pytest.mark.parametrize("attrs, words", [
    (dict(tokenexp="a|bc"), "tokens by the expression 'a|bc'; write it as a class"),
    (dict(separators=["ab", "bc"]), "may overlap in a text")])
def test_what_is_not_cut(attrs, words, tmp_path):
    with pytest.raises(UnsupportedError, match=f"Tokenizer.*{words}".replace("|", "[|]")):
        aotc.compile(model_of([tokenizer("x", "y", **attrs)], {"y": TensorProto.STRING}),
                     tmp_path / "b", target="c")

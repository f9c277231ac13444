"""Operators that make strings: as Python makes them, on texts of any length."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aotc
from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.ops.tensors.regex import Unread, automaton

TEXT, I64, BOOL = TensorProto.STRING, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
LETTERS = "aabc-- \t.XyZ\u00e9\u00c9\u20ac\U0001f600"
PATTERN = r"(\W|^)[\w.\-]{0,5}@?(a|b\b)+\.?x*"


def texts(rng, *shape, most=9):
    flat = ["".join(rng.choice(list(LETTERS), rng.integers(0, most)))
            for _ in range(int(np.prod(shape)))]
    return np.array(flat, object).reshape(shape)


def model_of(nodes, inputs, outputs, tensors=()):
    infos = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in part.items()]
             for part in (inputs, outputs)]
    return helper.make_model(helper.make_graph(nodes, "texts", *infos, list(tensors)),
                             ir_version=10, opset_imports=[helper.make_opsetid("", 20),
                                                           helper.make_opsetid("ai.onnx.ml", 3)])


SPLITS = {"dash": {"delimiter": "-"}, "pair": {"delimiter": "--"}, "word": {},
          "two": {"delimiter": "a", "maxsplit": 1}, "rest": {"maxsplit": 2}}
SHORT = ("pair", "word")  # of other targets than the first


def everything(splits):
    """Each operator, on a free number of strings of free lengths."""
    nodes = [node("StringConcat", ["x", "y"], ["both"]),
             node("RegexFullMatch", ["x"], ["match"], pattern=PATTERN),
             node("Equal", ["x", "both"], ["same"]),
             node("StringConcat", ["x", "suffix"], ["long"]),
             node("LabelEncoder", ["long"], ["code"], domain="ai.onnx.ml",
                  keys_strings=["ab!", "!", "\u00e9!"], values_int64s=[4, 5, 6], default_int64=-7),
             *(node("StringSplit", ["x"], [name, f"{name}_n"], **SPLITS[name])
               for name in splits)]
    suffix = helper.make_tensor("suffix", TEXT, [], [b"!"])
    outputs = {"both": (TEXT, [2, "n"]), "match": (BOOL, ["n"]), "same": (BOOL, [2, "n"]),
               "code": (I64, ["n"])}
    for name in splits:
        outputs |= {name: (TEXT, ["n", None]), f"{name}_n": (I64, ["n"])}
    return model_of(nodes, {"x": (TEXT, ["n"]), "y": (TEXT, [2, 1])}, outputs, [suffix])


def expected(x, y, splits):
    codes = {"ab!": 4, "!": 5, "\u00e9!": 6}
    out = {"both": x + y, "same": (x + y) == x, "code": [codes.get(t + "!", -7) for t in x],
           "match": [re.fullmatch(PATTERN, t, re.ASCII) is not None for t in x]}
    for name in splits:
        kind = SPLITS[name]
        rows = [t.split(kind.get("delimiter"), kind.get("maxsplit", -1)) for t in x]
        most = max(map(len, rows), default=0)
        out[name] = np.array([r + [""] * (most - len(r)) for r in rows], object).reshape(
            len(x), most)
        out[f"{name}_n"] = [len(r) for r in rows]
    return out


@pytest.mark.parametrize("target, splits", [("c", SPLITS), ("native", SHORT)])
def test_strings_as_python_makes_them(target, splits, tmp_path):
    model = aotc.compile(everything(splits), tmp_path / "b", target=target).load(2)
    rng = np.random.default_rng()
    for n in (1, 7, 40):
        x, y = texts(rng, n), texts(rng, 2, 1)
        x[:3] = ["ab", "", "\u00e9"][:n]
        got = model.run({"x": x, "y": y})
        for name, want in expected(x, y, splits).items():
            assert got[name].tolist() == np.asarray(want).tolist(), (name, x.tolist())
    with pytest.raises(ValueError, match="input x: a string has a zero character"):
        model.run({"x": np.array(["a\0b"], object), "y": texts(rng, 2, 1)})


@pytest.mark.parametrize("action, exact", [
    ("LOWER", 0), ("UPPER", 1), *(pytest.param(*p, marks=pytest.mark.product) for p in (
        ("NONE", 0), ("NONE", 1), ("LOWER", 1), ("UPPER", 0)))])
def test_words_are_left_out(action, exact, tmp_path):
    attrs = {"stopwords": ["ab", "Xy", "\u00e9"], "case_change_action": action,
             "is_case_sensitive": exact}
    model = model_of([node("StringNormalizer", ["x"], ["y"], **attrs),
                      node("StringNormalizer", ["z"], ["w"], **attrs)],
                     {"x": (TEXT, ["n"]), "z": (TEXT, [1, 3])},
                     {"y": (TEXT, [None]), "w": (TEXT, [1, None])})
    bundle, rng = aotc.compile(model, tmp_path / "b", target="c").load(), np.random.default_rng()

    def low(t):
        return "".join(c.lower() if c < "\x80" else c for c in t)

    def left(row):
        stops = attrs["stopwords"] if exact else list(map(low, attrs["stopwords"]))
        kept = [t for t in row if (t if exact else low(t)) not in stops]
        return [getattr(t, action.lower(), lambda t=t: t)() for t in kept] or [""]
    for n in (1, 5, 50):
        x = texts(rng, n, most=4)
        x[-1] = "AB" if n > 1 else "ab"
        z = np.array([["Xy", "ab", "ab"] if n == 1 else texts(rng, 3)], object)
        got = bundle.run({"x": x, "z": z})
        assert got["y"].tolist() == left(x), x
        assert got["w"].tolist() == [left(z[0])], z


@pytest.mark.parametrize("pattern", [
    "", "a*b+?c{2,3}", "[^a-z]+|\u00e9.\u20ac", ".", r"[\u0100-\uffff]x", "^a|b$", "(a$|b)c?",
    "(ab)*", r"\d+(\.\d*)?", r"(a|\b)*x", r".*\Bc", r"\bab?\b.*", r"[\W\d]*", r"\S+\s?", "a{3,}",
    "[\U0001f000-\U0001ffff]*.?"])
def test_patterns(pattern):
    found, rng = automaton(pattern), np.random.default_rng()
    letters, reader = list("abcxy0 .\n\u00e9\u20ac\ud7ff\U0001f600"), re.compile(pattern, re.ASCII)
    for _ in range(500):
        text, state = "".join(rng.choice(letters, rng.integers(0, 6))), 0
        for byte in text.encode():
            state = found.step[state, found.kind[byte]]
        if not ("$" in pattern and text.endswith("\n")):  # the end is the end
            assert found.accepts[state] == (reader.fullmatch(text) is not None), text


@pytest.mark.parametrize("pattern, text", [
    (r"(a)\1", "groupref"), ("(?=a)b", "assert"), ("(?i)a", "sets flags"), ("[", "is not read"),
    ("((a|b)*a(a|b){12})*", "more than 2048 states"),
    ("(((a{9}){99}){99}){9}", "repeats too much")])
def test_patterns_that_are_refused(pattern, text, tmp_path):
    with pytest.raises(Unread, match=text):
        automaton(pattern)
    model = model_of([node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], {"x": (TEXT, [2])},
                     {"y": (BOOL, [2])})
    with pytest.raises(UnsupportedError, match="RegexFullMatch.*a pattern that is not compiled"):
        aotc.compile(model, tmp_path / "never", target="c")


@pytest.mark.parametrize("nodes, error, text", [
    ([node("Concat", ["x", "x"], ["r"], axis=0), node("StringConcat", ["x", "x"], ["y"])],
     UnsupportedError, "Concat.*made, compared"),
    ([node("LabelEncoder", ["i"], ["s"], domain="ai.onnx.ml", keys_int64s=[1],
           values_strings=["a"]),
      node("StringConcat", ["s", "x"], ["y"])], UnsupportedError, "placed or looked up"),
    ([node("StringConcat", ["i", "x"], ["y"])], ModelError, "must be strings")])
def test_strings_that_are_lost(nodes, error, text, tmp_path):
    outputs = {"y": (TEXT, [2])} | ({"r": (TEXT, [4])} if nodes[0].op_type == "Concat" else {})
    model = model_of(nodes, {"x": (TEXT, [2]), "i": (I64, [2])}, outputs)
    with pytest.raises(error, match=text):
        aotc.compile(model, tmp_path / "never", target="c")


def test_one_tensor_of_them_is_moved(tmp_path):
    """Before it is looked into, and when it is made; numbers outside stay inside of it."""
    nodes = [node("Reshape", ["x", "shape"], ["rows"]), node("StringConcat", ["rows", "y"], ["s"]),
             node("Transpose", ["s"], ["turned"], perm=[1, 0]),
             node("Gather", ["turned", "i"], ["picked"], axis=0)]
    model = model_of(nodes, {"x": (TEXT, [6]), "y": (TEXT, [2, 3]), "i": (I64, [2])},
                     {"turned": (TEXT, [3, 2]), "picked": (TEXT, [2, 2])},
                     [onnx.numpy_helper.from_array(np.array([2, 3]), "shape")])
    net = aotc.compile(model, tmp_path / "b", target="c").load(1)
    x = np.array(["a", "", "\u00e9", "bcd", "e", "f"], object)
    y = np.array([list("pqr")] * 2, object)
    got, want = net.run({"x": x, "y": y, "i": np.array([2, 0])}), (x.reshape(2, 3) + y).T
    assert got["turned"].tolist() == want.tolist()
    assert got["picked"].tolist() == want[[2, 0]].tolist()


def test_in_c_they_are_bytes(tmp_path):
    model = model_of([node("StringConcat", ["x", "x"], ["y"])], {"x": (TEXT, [2])},
                     {"y": (TEXT, [2])})
    bundle = aotc.compile(model, tmp_path / "b", target="c", name="net", dims={"x_bytes": 4})
    head = (tmp_path / "b" / "net.h").read_text()
    assert "in  x: chars in u8[2, 4]" in head and "out y: chars in u8[2, 8]" in head
    loaded = bundle.load()
    assert loaded.run([np.array(["ab", "\u20ac"])])["y"].tolist() == ["abab", "\u20ac\u20ac"]
    with pytest.raises(ValueError, match="a string has 5 bytes, the bundle is for 4"):
        loaded.run([np.array(["abcde", ""])])

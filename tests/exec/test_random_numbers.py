"""Random operators: distributed as they say, the same for a seed whatever runs them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import ModelError

stats = pytest.importorskip("scipy.stats")
node = helper.make_node
F32, F64, I64, BOOL = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL)
N = 30000
SURE = 1e-6  # a right generator fails a test as rarely


def model_of(nodes, inputs, outputs, **initializers):
    infos = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in part.items()]
             for part in (inputs, outputs)]
    return helper.make_model(helper.make_graph(
        nodes, "draws", *infos, [numpy_helper.from_array(a, n) for n, a in initializers.items()]),
        opset_imports=[helper.make_opsetid("", 22)])


def everything():
    """Each operator on x [n]; the weights w [1, 3] are logarithms."""
    nodes = [node("RandomUniformLike", ["x"], ["u"], low=-1.0, high=3.0),
             node("RandomNormalLike", ["x"], ["g"], mean=2.0, scale=0.5, dtype=F64),
             node("RandomNormal", [], ["fixed"], shape=[500], seed=7.0),
             node("RandomUniform", [], ["other"], shape=[500], seed=7.0),
             node("Bernoulli", ["p"], ["b"], dtype=BOOL), node("Mul", ["x", "third"], ["p"]),
             node("Multinomial", ["w"], ["m"], sample_size=N, dtype=I64),
             node("Dropout", ["x", "quarter", "on"], ["d", "kept"])]
    outputs = {"u": (F32, ["n"]), "g": (F64, ["n"]), "fixed": (F32, [500]), "other": (F32, [500]),
               "b": (BOOL, ["n"]), "m": (I64, [1, N]), "d": (F32, ["n"]), "kept": (BOOL, ["n"])}
    return model_of(nodes, {"x": (F32, ["n"]), "w": (F32, [1, 3]), "on": (BOOL, [])}, outputs,
                    third=np.float32([0.3]), quarter=np.float32(0.25))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return aotc.compile(everything(), tmp_path_factory.mktemp("draws") / "b", target="native")


def feeds(seed, n=N, on=True):
    return {"x": np.ones(n, np.float32), "w": np.log(np.float32([[1, 2, 5]])),
            "on": np.array(on), "random_seed": np.array(seed)}


def test_distributions(bundle):
    got = bundle.load().run(feeds(12345))
    assert stats.kstest(got["u"], stats.uniform(-1, 4).cdf).pvalue > SURE
    assert got["u"].min() >= -1 and got["u"].max() < 3
    assert stats.kstest(got["g"], stats.norm(2, 0.5).cdf).pvalue > SURE
    assert stats.kstest(got["fixed"], stats.norm.cdf).pvalue > SURE
    assert stats.binomtest(int(got["b"].sum()), N, 0.3).pvalue > SURE
    counts = np.bincount(got["m"][0], minlength=3)
    assert stats.chisquare(counts, N * np.array([1, 2, 5]) / 8).pvalue > SURE
    assert stats.binomtest(int(got["kept"].sum()), N, 0.75).pvalue > SURE
    np.testing.assert_allclose(got["d"], np.where(got["kept"], np.float32(4 / 3), 0), rtol=1e-6)
    # neighbours, operators and seeds have nothing to do with each other
    others = bundle.load().run(feeds(12346))
    for one, two in ((got["u"][1:], got["u"][:-1]), (got["u"], got["g"]), (got["u"], others["u"]),
                     (got["u"][:500], got["other"]), (got["kept"], got["b"])):
        assert stats.pearsonr(one.astype(float), two.astype(float)).pvalue > SURE


def test_the_seed_alone_decides(bundle, tmp_path):
    one = bundle.load(1).run(feeds(5))
    for other in (bundle.load(3).run(feeds(5)), bundle.load(2).run(feeds(5))):
        for name, array in one.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)
    few = bundle.load(2).run(feeds(5, 1000))  # the first ones do not depend on how many there are
    np.testing.assert_array_equal(few["u"], one["u"][:1000])
    plain = aotc.compile(everything(), tmp_path / "c", target="c").load().run(feeds(5))
    for name in ("u", "b", "kept", "m"):
        np.testing.assert_array_equal(plain[name], one[name], err_msg=name)
    for name in ("g", "fixed"):
        np.testing.assert_allclose(plain[name], one[name], atol=1e-5, err_msg=name)
    off = feeds(5, on=False)
    off.pop("random_seed")  # its default is 0
    found = bundle.load().run(off)
    np.testing.assert_array_equal(found["d"], off["x"])
    assert found["kept"].all() and not np.array_equal(found["u"], one["u"])
    np.testing.assert_array_equal(found["u"], bundle.load().run(feeds(0))["u"])


@pytest.mark.parametrize("rounds", [3, 200])
def test_rounds_of_a_loop_draw_others(rounds, tmp_path):
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("RandomUniformLike", ["x"], ["r"], seed=1.0), node("Identity", ["c"], ["c2"])], "b",
        [info("i", I64, []), info("c", BOOL, [])], [info("c2", BOOL, []), info("r", F32, [4])])
    model = model_of([node("Loop", ["n", ""], ["y"], body=body)], {"x": (F32, [4])},
                     {"y": (F32, [rounds, 4])}, n=np.array(rounds))
    got = aotc.compile(model, tmp_path / "b", target="c").load().run([np.ones(4, np.float32)])["y"]
    assert len(np.unique(got)) > 4 * rounds - 3
    assert stats.kstest(got.reshape(-1), "uniform").pvalue > SURE


def test_a_model_for_inference_asks_for_no_seed(tmp_path):
    model = model_of([node("Dropout", ["x", "", "off"], ["y"])], {"x": (F32, [4])},
                     {"y": (F32, [4])}, off=np.array(False))
    made = aotc.compile(model, tmp_path / "b", target="c")
    assert [i["onnx"] for i in made.manifest["inputs"]] == ["x"]
    wrong = model_of([node("Multinomial", ["x"], ["y"])], {"x": (F32, [4])}, {"y": (6, [4, 1])})
    with pytest.raises(ModelError, match="Multinomial.*weights .batch, classes. expected"):
        aotc.compile(wrong, tmp_path / "never", target="c")


def test_weights_that_are_none_give_classes_that_there_are(tmp_path):
    """NaN and infinities as weights, and chances beyond 0..1."""
    model = model_of([node("Multinomial", ["w"], ["m"], sample_size=40),
                      node("Bernoulli", ["p"], ["b"])], {"w": (F32, [5, 7]), "p": (F32, [8])},
                     {"m": (TensorProto.INT32, [5, 40]), "b": (F32, [8])})
    weights = np.zeros((5, 7), np.float32)
    weights[0], weights[1], weights[2] = np.nan, np.inf, -np.inf
    weights[3, 3], weights[4, 2] = np.nan, np.inf
    chances = np.float32([0, 1, np.nan, np.inf, -np.inf, -1, 2, 0.5])
    got = aotc.compile(model, tmp_path / "b", target="c").load().run(
        {"w": weights, "p": chances})
    assert got["m"].min() >= 0 and got["m"].max() <= 6 and (got["m"][4] == 2).all()
    np.testing.assert_array_equal(got["b"][[0, 1, 3, 4, 5, 6]], [0, 1, 1, 0, 0, 1])
    assert set(got["b"]) <= {0, 1}

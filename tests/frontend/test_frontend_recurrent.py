"""Options of recurrent layers: against ONNX Runtime, batch-first layouts against the plain ones."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, one_node, program_of, rand, run, same

from aotc.errors import ModelError

STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def arrays(op, ways, bias=True, state=True):
    """X, W, R, B, sequence_lens, initial states, peepholes, by position."""
    n = GATES[op] * HIDDEN
    out = [rand(STEPS, BATCH, INPUT), rand(ways, n, INPUT, seed=1), rand(ways, n, HIDDEN, seed=2),
           rand(ways, 2 * n, seed=3) if bias else None, None,
           rand(ways, BATCH, HIDDEN, seed=4) if state else None]
    if op == "LSTM":
        out += [rand(ways, BATCH, HIDDEN, seed=5) if state else None, None]
    return out


def case(op, given, attrs):
    outputs = 3 if op == "LSTM" else 2
    consts = tuple(k for k in (1, 2, 3) if given[k] is not None)
    return one_node(op, given, dict(hidden_size=HIDDEN, **attrs), consts, outputs, 14)


def compared(op, given, attrs):
    model, feeds = case(op, given, attrs)
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction,ways", [("forward", 1), ("reverse", 1), ("bidirectional", 2)])
def test_lengths_that_are_data(op, direction, ways):
    given = arrays(op, ways)
    given[4] = np.array([2, 5, 1], np.int32)
    compared(op, given, dict(direction=direction))


@pytest.mark.parametrize("op", GATES)
def test_clipped_activations(op):
    compared(op, arrays(op, 1), dict(clip=0.4))


@pytest.mark.parametrize("ways", (1, 2))
def test_peepholes(ways):
    given = arrays("LSTM", ways)
    given[7] = rand(ways, 3 * HIDDEN, seed=7)
    compared("LSTM", given, dict(direction="forward" if ways == 1 else "bidirectional"))


def test_coupled_gates():
    compared("LSTM", arrays("LSTM", 1), dict(input_forget=1))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("state", (True, False))
def test_batch_first(op, state):
    given, outputs = arrays(op, 2, state=state), 3 if op == "LSTM" else 2
    attrs = dict(hidden_size=HIDDEN, direction="bidirectional")
    model, feeds = one_node(op, given, attrs, (1, 2, 3), outputs, 14)
    y, *last = run(program_of(model), feeds)
    swapped = [a if a is None or k not in (0, 5, 6) else np.swapaxes(a, 0, 1).copy()
               for k, a in enumerate(given)]
    model, feeds = one_node(op, swapped, dict(attrs, layout=1), (1, 2, 3), outputs, 14)
    got = run(program_of(model), feeds)
    same(got, [y.transpose(2, 0, 1, 3), *(a.swapaxes(0, 1) for a in last)])

# activations that take numbers, in another case than the standard writes them, and what is left of
# each list when the first direction has taken its own
ACTIVATIONS = {
    "RNN": (["hardsigmoid", "LEAKYRELU"], [0.3, 0.2], [0.4]),
    "GRU": (["HardSigmoid", "Affine", "Sigmoid", "ScaledTanh"], [0.3, 0.7, 0.9], [0.4, 0.1, 1.2]),
    "LSTM": (["HardSigmoid", "softplus", "Softsign", "sigmoid", "ThresholdedRelu", "elu"],
             [0.25, 0.1, 1.5], [0.45])}


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("said", ("both", "alpha", "beta", "few", "none"))
def test_activations_take_their_numbers_in_order(op, said):
    names, alphas, betas = ACTIVATIONS[op]
    attrs = dict(direction="bidirectional", activations=names)
    if said in ("both", "alpha"):
        attrs["activation_alpha"] = alphas
    if said == "few":
        attrs["activation_alpha"] = alphas[:1]
    if said in ("both", "beta"):
        attrs["activation_beta"] = betas
    if op == "RNN":  # ONNX Runtime has the names of an RNN as the standard writes them only
        written = {"hardsigmoid": "HardSigmoid", "LEAKYRELU": "LeakyRelu"}
        model, feeds = case(op, arrays(op, 2), attrs)
        plain, _ = case(op, arrays(op, 2), attrs | dict(activations=[written[n] for n in names]))
        same(run(program_of(model), feeds), by_onnxruntime(plain, feeds))
    else:
        compared(op, arrays(op, 2), attrs)


@pytest.mark.parametrize("names", (["Tanh", "Swish"], ["Tanh"], ["Tanh"] * 3))
def test_other_activations_are_refused(names):
    model, _ = case("RNN", arrays("RNN", 2), dict(direction="bidirectional", activations=names))
    with pytest.raises(ModelError, match="activations .* 2 of Sigmoid, Tanh"):
        program_of(model)


@pytest.mark.parametrize("op", GATES)
def test_states_are_zero_rather_than_tiny(op):
    """Gates that are all but closed: what they leave is no subnormal number, which products of the
    next round would be slow with, and nothing else differs.  Hidden states and cells."""
    given = arrays(op, 1)
    given[0] *= 20
    given[1] *= np.linspace(0.1, 8, given[1].shape[1], dtype=np.float32)[None, :, None]
    given[5] *= np.float32(1e-33)
    if op == "RNN":  # bounded by nothing, and as small as what it reads
        given[0][:, 1], given[3] = np.float32(1e-40), np.zeros_like(given[3])
    model, feeds = case(op, given, {"activations": ["Relu"]} if op == "RNN" else {})
    got = run(program_of(model), feeds)
    same(got, by_onnxruntime(model, feeds))
    for found in got:
        assert not np.any((found != 0) & (np.abs(found) < 2.0 ** -100))

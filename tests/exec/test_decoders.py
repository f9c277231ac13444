"""Decoders with a cache that grows in place, against onnxruntime, which is handed copies."""

import numpy as np
import onnxruntime
import pytest

import aotc
from aotc.errors import AotcError
from aotc.ir.schedule import Schedule
from benchmarks import decoders
from benchmarks.decoder_models import Sizes, call_feeds, gpt2, llama, stepwise

ROOM = 300
PAIRS = {"past_key_values.*": "present.*"}


class Decoder:
    """A model's bundle and its reference."""

    def __init__(self, name, model, folder, **options):
        bundle = aotc.compile(model, folder / name, name=name, alias=PAIRS, **options)
        self.folder, self.bundle = bundle.path, bundle.load(threads=2)
        self.reference = onnxruntime.InferenceSession(model.SerializeToString())
        self.names = [i.name for i in self.bundle.inputs]

    def caches(self, batch, room=ROOM):
        """Buffers that hold nothing."""
        return {i.name: np.full((batch, i.shape[1], room, i.shape[3]), np.nan, np.float32)
                for i in self.bundle.inputs if i.alias >= 0}

    def generate(self, caches, ids, lengths):
        """Logits of calls over so many tokens each, one after the other."""
        found, at = [], 0
        for n in lengths:
            outs = self.bundle.run(call_feeds(self.names, ids, at, n) | caches, {"past": at})
            found.append(outs["logits"])
            at += n
        return np.concatenate(found, 1)

    def check(self, lengths, batch=1, seed=0):
        ids = np.random.default_rng(seed).integers(0, 41, (batch, sum(lengths)))
        want, theirs = stepwise(self.reference, {"input_ids": ids}, lengths)
        caches = self.caches(batch)
        np.testing.assert_allclose(self.generate(caches, ids, lengths), want, atol=2e-5)
        for name, cache in caches.items():
            np.testing.assert_allclose(cache[:, :, :ids.shape[1]],
                                       theirs[name.partition(".")[2]], atol=2e-5)
            assert np.isnan(cache[:, :, ids.shape[1]:]).all(), name


@pytest.fixture(scope="module", params=[
    "llama", pytest.param("gpt2", marks=pytest.mark.product)])
def decoder(request, tmp_path_factory):
    """A Decoder, one of the two with kernels of their own for single tokens."""
    folder = tmp_path_factory.mktemp("decoders")
    if request.param == "gpt2":
        return Decoder("gpt2", gpt2(Sizes(shared=4, layers=1)), folder)
    sizes = Sizes(layers=1, width=64, heads=4, shared=2)  # heads that fill vectors
    return Decoder("llama", llama(sizes), folder, variants={"seq": [(1, 1)]})


def test_one_bundle_serves_prefill_and_single_tokens(decoder):
    for n in (1, 2, 31, 256):
        decoder.check([n, 1, 1], seed=n)
    decoder.check([3] + [1] * 256)


def test_batches_and_calls_of_several_tokens(decoder):
    decoder.check([5, 1, 17, 1, 1, 32], batch=3)


def test_more_than_there_is_room_for_is_told_and_nothing_is_written(decoder):
    caches = decoder.caches(1, room=8)
    ids = np.zeros((1, 9), np.int64)
    with pytest.raises(AotcError, match=r"past \+ seq entries must fit into a capacity of capacity"
                                        r".*past=0, capacity=8"):
        decoder.generate(caches, ids, [9])
    assert all(np.isnan(c).all() for c in caches.values())
    decoder.generate(caches, ids, [7, 1])
    with pytest.raises(AotcError, match="must fit into a capacity"):
        decoder.bundle.run(call_feeds(decoder.names, ids, 8, 1) | caches, {"past": 8})


def test_what_is_there_after_a_call_is_the_array_that_was_given(decoder):
    caches, ids = decoder.caches(2), np.zeros((2, 4), np.int64)
    outs = decoder.bundle.run(call_feeds(decoder.names, ids, 0, 4) | caches, {"past": 0})
    for name, cache in caches.items():
        assert outs[name.replace("past_key_values", "present")] is cache


def test_wrong_calls_are_told_before_anything_runs(decoder):
    caches, ids = decoder.caches(1), np.zeros((1, 4), np.int64)
    feeds = call_feeds(decoder.names, ids, 0, 4)
    with pytest.raises(ValueError, match="give the dimensions .* with dims=: past"):
        decoder.bundle.run(feeds | caches)
    with pytest.raises(ValueError, match="dims=: past"):
        decoder.bundle.run(feeds | caches, {"past": 0, "seq": 4})
    for wrong in ({n: c.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2)
                   for n, c in caches.items()}, {n: _frozen(c) for n, c in caches.items()}):
        with pytest.raises(ValueError, match="written in place"):
            decoder.bundle.run(feeds | wrong, {"past": 0})
    first = next(iter(caches))
    uneven = caches | {first: caches[first][:, :, :20].copy()}
    with pytest.raises(ValueError, match="capacity"):
        decoder.bundle.run(feeds | uneven, {"past": 0})


def _frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def test_a_single_query_reads_keys_where_they_lie(decoder):
    """Nothing is packed for one row: its products with the keys run along the sum."""
    schedule = Schedule.from_json((decoder.folder / "schedule.json").read_text())
    for variant in schedule.variants:
        packed = [stage for g in variant.schedule.groups for stage, how in g.choices.items()
                  if how.b == "packed"]
        along = [row for g in variant.schedule.groups for stage, row in g.rows.items()
                 if row.startswith("window") and g.choices[stage].said == {"lanes": "k"}]
        assert not packed and len(along) == 1


def test_c_callers_hand_one_pointer(decoder):
    text = (decoder.folder / f"{decoder.bundle.name}.h").read_text()
    run = text.partition(f"aotc_status {decoder.bundle.name}_run(")[2].partition(";")[0]
    assert "int64_t past,\n    int64_t capacity," in run
    assert "    float *past_key_values_0_key " in run and "present" not in run
    assert "past entries of axis 2 are read, the next\n * seq written" in text
    assert "Tensors that grow from call to call lie in one buffer each" in text


@pytest.mark.product
def test_the_benchmark_runs(capsys):
    decoders.main(["llama", "--width", "64", "--layers", "1", "--runs", "1"])
    lines = [x for x in capsys.readouterr().out.splitlines() if " new " in x]
    assert len(lines) == 6 and all("reading once" in line for line in lines[:2])

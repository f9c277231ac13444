"""Every operator under the sanitizers with values out of range, least and largest integers, NaN and
infinities, with empty axes and extents at both ends of their range: it computes or says a fault."""

import numpy as np
import pytest
from hostile import FLAGS, run
from hostile_parts import TARGET, all_cases, batches, operator_parts, random_parts, write_parts
from sanitizers import supported
from te_programs import Maker, ax

from aotc.frontend.building.registry import OPS
from aotc.runtime.compile_bundle import build

# what no case here can show: their inputs are no tensors, or they are the whole of a model, or
# their cases are of texts, or random
ELSEWHERE = {"Optional", "OptionalGetElement", "OptionalHasElement", "CategoryMapper", "ZipMap",
             "DictVectorizer", "CastMap", "SequenceMap", "StringConcat", "StringSplit",
             "StringNormalizer", "RegexFullMatch", "Tokenizer",
             "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
             "Bernoulli", "Multinomial"}
PIECES = 7  # of all parts, which the longer suite may run one of each of



def _holds(parts, folder, monkeypatch, target=TARGET):
    monkeypatch.setenv("CFLAGS", FLAGS)
    write_parts(parts, folder, target)
    build(folder / "b")
    monkeypatch.delenv("CFLAGS")
    status, text = run(folder)
    assert status == 0, text


@pytest.mark.parametrize("step, seeds, target, piece", [(48, 4, TARGET, slice(None)), *(
    pytest.param(1, seeds, target, slice(k, None, PIECES), id=f"all-{seeds}-{target}-{k}",
                 marks=pytest.mark.product)
    for seeds, target in ((120, TARGET), (60, "native")) for k in range(PIECES))])
def test_hostile_values_and_extents(step, seeds, target, piece, tmp_path, monkeypatch):
    """A few operators and random graphs, or all and many."""
    if not supported("address,undefined", tmp_path):
        pytest.skip("the C compiler has no sanitizers")
    for k, parts in enumerate(batches(
            [*operator_parts(step), *random_parts(range(seeds))][piece])):
        (tmp_path / str(k)).mkdir()
        _holds(parts, tmp_path / str(k), monkeypatch, target)


def test_what_is_read_outside_is_found(tmp_path, monkeypatch):
    """The sanitizers watch the tensors that Python gives."""
    if not supported("address,undefined", tmp_path):
        pytest.skip("the C compiler has no sanitizers")
    m, i = Maker(), ax("i", 4)
    m.input("x", 8)
    m.step("y", (i,), m.ref("x", i + m.ref(m.input("n", 1, dtype="i64"), 0)))
    part = ("planted", m.done("y"), {"x": np.ones(8, np.float32), "n": np.zeros(1, np.int64)},
            {"x": (8,), "n": (1,)})
    with pytest.raises(AssertionError, match="(?s)at planted.*(AddressSanitizer|runtime error)"):
        _holds([part], tmp_path, monkeypatch)


@pytest.mark.product
def test_every_operator_has_a_case():
    known = {op for _, op, _, _ in all_cases()} | {
        n.op_type for _, _, m, _ in all_cases() for n in m.graph.node}
    assert {op for _, op in OPS} - known <= ELSEWHERE

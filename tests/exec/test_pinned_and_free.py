"""Every operator's cases with pinned extents and with free ones: one model has one answer."""

import re
import warnings

import numpy as np
import pytest
from free_cases import fed, free_cases, told
from harness import RUNNABLE, Case, build_cases, differences

from aotc.errors import AotcError, FaultError
from aotc.oracle.evaluate import evaluate

OWN = 5  # every so many of the tables' rows by default
TOLERANCE = 1e-5  # of the largest magnitude of an output
BATCH = 25  # cases that share a bundle, whose arena nests as many largest numbers
# calls that are faults where extents are free, because they decide what an input means
MEANINGS = {
    "ms_attention_ends": "a mask of one dimension has a number per row",
    "ms_attention_packed": "a mask of one dimension has a number per row",
    "ms_attention_no_mask": "the mask must have a column for every key",
    "ms_attention_mask_row": "the mask must have a column for every key",
    "ms_nhwc_taps": "must be in 5..5",
}
# operators that sizes are fed to, and the fault where they ask for more than any input has
SIZED = ("AffineGrid", "CenterCropPad", "Expand", "Pad", "Resize")
ROOM = re.compile(r"unless more is said .*their number is (\d+)")


PIECES = 7  # of all cases, which the longer suite may run one of


@pytest.fixture(scope="module", params=("own", *(
    pytest.param(k, id=f"all{k}", marks=pytest.mark.product) for k in range(PIECES))))
def collected(request):
    """[(case, its outputs with pinned extents)]."""
    k = request.param
    found = free_cases(OWN) if k == "own" else free_cases(1, 1, slice(k, None, PIECES))
    return [(c, told(c.pinned, _evaluated(c.pinned, c.given))) for c in found]


def _evaluated(program, given):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluate(program, fed(program, given))


def test_free_extents_change_nothing(collected):
    wrong = {}
    for c, want in collected:
        try:
            got = told(c.program, _evaluated(c.program, c.given))
        except (FaultError, ValueError) as err:
            wrong[c.name] = str(err)
            continue
        wrong[c.name] = "\n".join(differences(got, want, TOLERANCE))
    for name, text in MEANINGS.items():
        assert text in wrong.pop(name, text), name
    for c, _ in collected:
        asked = ROOM.search(wrong.get(c.name, "")) if c.op in SIZED else None
        if asked is not None:
            assert int(asked[1]) > max(d for a in c.given.values() for d in np.shape(a)), c.name
            del wrong[c.name]
    assert not {name: text for name, text in wrong.items() if text}
    assert len(collected) > 80


def test_compiled_free_extents_change_nothing(collected, request, tmp_path):
    target, wrong = RUNNABLE[-1], {}
    step = 8 if request.node.callspec.params["collected"] == "own" else 1
    own = [(c, w) for c, w in collected if c.name not in MEANINGS
           and not c.name.startswith("test_")]  # the standard's have the same operators
    some = own[::step]
    for k in range(0, len(some), BATCH):
        wrong.update(_compiled(some[k:k + BATCH], target, tmp_path / str(k)))
    assert not {name: texts for name, texts in wrong.items() if texts}


def _compiled(part, target, folder):
    """{case: differences}; where all of them cannot be made, the message of the one that cannot."""
    try:
        built = build_cases([Case(c.name, c.program) for c, _ in part], target, folder)
    except (AotcError, AssertionError) as err:
        if len(part) == 1:
            return {part[0][0].name: [f"{type(err).__name__}: {err}"]}
        half = len(part) // 2
        return {**_compiled(part[:half], target, folder / "a"),
                **_compiled(part[half:], target, folder / "b")}
    outputs = built.run([c.feeds for c, _ in part])
    return {c.name: differences(told(c.program, got), want, TOLERANCE)
            for (c, want), got in zip(part, outputs)}

"""What windows fetch ahead: every line of a stream once, nothing where it does not pay."""

import re

import pytest
from te_programs import Maker, ax

from aotc.emit.variants import EMITTERS
from aotc.sched import decide, lower
from aotc.target import get_target


def depthwise(channels, stride, width=26):
    """y[oh, ow, c]: 3x3 sums of a channels-last image, times a weight per channel."""
    m = Maker("depthwise")
    m.input("x", 9, width, channels)
    m.input("w", 3, 3, channels)
    oh, ow, c = ax("oh", (9 - 3) // stride + 1), ax("ow", (width - 3) // stride + 1), ax(
        "c", channels)
    i, j = ax("i", 3), ax("j", 3)
    m.step("y", (oh, ow, c), m.ref("x", oh * stride + i, ow * stride + j, c)
           * m.ref("w", i, j, c), (i, j), "sum")
    return m.done("y")


def text_of(program, target):
    plan = lower(program, decide(program, target), target)
    return "\n".join(EMITTERS[target.emitter](plan, target).values())


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("channels, stride", [(64, 1), (64, 2), (192, 1)])
def test_a_window_fetches_every_line_once(channels, stride, target):
    lanes = get_target(target).lanes
    text = text_of(depthwise(channels, stride), get_target(target))
    found = re.findall(r"AOTC_PREFETCH_FAR\(t_x, (.*)\);", text)
    block = int(re.search(r"\bow \+ (\d+) <= ", text)[1])
    assert found
    lines = [eval(x, {"oh": 1, "ow": ow, "c": c}) for ow in range(0, 2 * block, block)
             for c in range(0, channels, lanes) for x in found]
    assert len(set(lines)) == len(lines)
    first = min(lines)  # of the lowest row's part a page behind this block
    assert first == ((1 * stride + 2) * 26) * channels + 1024
    assert sorted(lines) == list(range(first, first + 2 * block * stride * channels, 16))


@pytest.mark.parametrize("target", ["c", "riscv64"])
def test_vectors_of_one_lane_or_of_any_length_fetch_nothing(target):
    assert "AOTC_PREFETCH_FAR(" not in text_of(depthwise(64, 1), get_target(target))

"""What the simulated accelerator refuses: each mistake by name, and nothing without one."""

import ctypes
import subprocess

import numpy as np
import pytest

from aotc.emit.dsa.device_text import device_lines
from aotc.installed import runtime_c
from aotc.target import get_target

REFUSALS = {
    1: "buffer y begins at byte 100 of LB, which is unaligned",
    2: "buffer y ends at byte 65600 of LB, which has 65536",
    3: "fills 4 bytes at byte 2 of LB, which is unaligned",
    4: "reads byte 60 of x, which was never written",
    5: "reads byte 0 of x, before the wait for its DMA",
    6: "reads byte 0 of x, before the wait for its DMA",
    7: "reads byte 65536 of LB, which has 65536",
    8: "reads byte 0 of the LB of core 0 of cluster 0",
    9: "sends byte 0 of y, before the wait for its DMA",
    10: "sends byte 192 of LB, which is free",
    11: "writes byte 0 of y, before the wait for its DMA",
    12: "ends before the wait for token 1",
    13: "writes DDR at a place that is in LB",
    14: "starts a transfer of 1 dimensions at an address in DDR that is unaligned",
    15: "reads byte 0 of x, which is free",
}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory, pytestconfig):
    folder = tmp_path_factory.mktemp("refusals")
    source, dsa = pytestconfig.rootpath / "tests/dsa/refusals.c", runtime_c() / "dsa"
    (folder / "device.h").write_text(device_lines(get_target("dsa:stcp920")))
    subprocess.run(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fPIC",
                    "-shared", "-include", folder / "device.h", "-I", dsa, source,
                    dsa / "aotc_dsa_sim.c", "-o", folder / "refusals.so"], check=True)
    return ctypes.CDLL(folder / "refusals.so")


def run(simulator, bug):
    """(outputs, expected ones, text of the refusal)."""
    x = np.random.default_rng().random(16, np.float32)
    y, text = np.zeros_like(x), ctypes.create_string_buffer(256)
    assert simulator.run(bug, x.ctypes.data_as(ctypes.c_void_p),
                         y.ctypes.data_as(ctypes.c_void_p), text)
    return y, 2 * x, text.value.decode()


def test_without_a_mistake_nothing_is_refused(simulator):
    got, want, text = run(simulator, 0)
    assert text == "" and np.array_equal(got, want)


@pytest.mark.parametrize("bug", REFUSALS)
def test_a_mistake_is_refused_by_name(simulator, bug):
    _, _, text = run(simulator, bug)
    assert text == f"twice, work item 5 on core 5 of cluster 0: {REFUSALS[bug]}"

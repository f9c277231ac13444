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
    20: None,  # an address that no test knows
    21: "multiplies 4 bytes at byte 2 of LB, which is unaligned",
    22: "multiplies byte 65536 of LB, which has 65536",
    24: "multiplies 17 rows by 2 columns; the engine has 16 by 16",
    25: "multiplies byte 64 of LB, which is free",
    26: "multiplies byte 0 of x, before the wait for its DMA",
    27: "multiplies byte 64 of LB, which is free",
    28: "reads byte 64 of LB, which is free",
    29: "writes byte 192 of LB, which is free",
    30: "writes byte 0 of y, before the wait for its DMA",
    31: "reads byte 16 of y, which was never written",
}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory, pytestconfig):
    folder = tmp_path_factory.mktemp("refusals")
    source, dsa = pytestconfig.rootpath / "tests/dsa/refusals.c", runtime_c() / "dsa"
    (folder / "device.h").write_text(device_lines(get_target("dsa:stcp920")))
    subprocess.run(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fPIC",
                    "-shared", "-include", folder / "device.h", "-I", dsa, "-I", dsa.parent,
                    source, dsa / "aotc_dsa_sim.c", dsa / "aotc_dsa_units.c",
                    dsa / "aotc_dsa_kept.c", "-lm", "-o",
                    folder / "refusals.so"], check=True)
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
    what = "twice" if bug < 20 else "times"
    assert text.startswith(f"{what}, work item 5 on core 5 of cluster 0: {REFUSALS[bug] or ''}")
    assert REFUSALS[bug] or text.endswith("of LB, which has 65536")


@pytest.mark.parametrize("bug", [32, 23])  # none, and a row of zeros
def test_the_matrix_engine_multiplies(simulator, bug):
    x = np.random.default_rng().random(16, np.float32)
    y, text = np.zeros_like(x), ctypes.create_string_buffer(256)
    assert simulator.run(bug, x.ctypes.data_as(ctypes.c_void_p),
                         y.ctypes.data_as(ctypes.c_void_p), text)
    rows = x[:8].reshape(2, 4) * ([[1], [0]] if bug == 23 else 1)
    np.testing.assert_allclose(y[:4].reshape(2, 2), rows @ x[:8].reshape(4, 2), rtol=1e-5)
    assert text.value == b"" and y[4] == x[0]

"""Each planted mistake is reported with kernel, block and thread, and the same kernel without it
is not; afterwards the device works as before."""

import ctypes

import numpy as np
import pytest
from cusim_build import ORDERS, build_device, needs_cxx

F32 = np.float32
pytestmark = needs_cxx
# kernel -> (blocks, bytes of dynamic shared memory, what the report says)
BUGS = {
    "missing_barrier": (1, 0, "race: reads shared memory .* has written|no thread .* has written"),
    "missing_second_barrier": (1, 0, "race: (reads|writes) shared memory .*aotc_syncthreads"),
    "missing_warp_barrier": (1, 0, "race: reads shared memory|no thread of the block has written"),
    "missing_wait": (1, 0, "cp.async of thread .* aotc_cp_wait is missing"),
    "wait_for_the_wrong_group": (1, 0, "cp.async of thread .* aotc_cp_wait is missing"),
    "overlapping_copies": (1, 0, "writes shared .* cp.async of thread .* has still to write"),
    "uninitialised_read": (1, 0, r"thread \(63,0,0\): reads .* no thread of the block has written"),
    "left_by_another_block": (2, 256, r"block \(1,0,0\).*no thread of the block has written"),
    "divergent_barrier": (1, 0, r"aotc_syncthreads \(planted_bugs.cu:\d+\) is not reached by all "
                          r"threads of the block: thread .* has ended"),
    "two_barriers": (1, 0, r"aotc_syncthreads \(planted_bugs.cu:\d+\) is not reached by all "
                     r"threads of the block: thread .* is at aotc_syncthreads"),
    "out_of_bounds": (1, 512, r"thread \(63,0,0\): out of bounds: element 64 of a shared buffer of "
                      "64 elements of 4 bytes"),
    "misaligned_vector": (1, 0, "shared access of 16 bytes is not aligned"),
    "missing_lanes": (1, 0, r"aotc_shfl_xor \(planted_bugs.cu:\d+\) is not reached by all lanes of "
                      "the warp: thread .* has ended"),
    "early_exit": (1, 0, r"aotc_ballot .* is not reached by all lanes of the warp: "
                   r"thread \(40,0,0\) has ended"),
    "past_the_end": (1, 0, "behind the end of device memory of 4000 bytes"),
    "null_pointer": (1, 0, "memory that is not mapped"),
    "division_by_zero": (1, 0, r"thread \(5,0,0\): an integer division by zero"),
}


@pytest.fixture(scope="module", params=[
    "", pytest.param("ucontext", marks=pytest.mark.product)])
def device(request, tmp_path_factory):
    flags = ("-DAOTC_CUSIM_UCONTEXT",) if request.param else ()
    return build_device(tmp_path_factory.mktemp("bugs"), "planted_bugs.cu", arch="sm_80",
                        flags=flags)


def run(device, name, bug, blocks=1, smem_bytes=0, threads=64):
    x, y = np.random.default_rng().random(1000, F32) + F32(1), np.empty(threads, F32)
    return device.call("run", name.encode(), int(bug), blocks, threads,
                       ctypes.c_size_t(smem_bytes), x, y, out=6)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_reported(device, name, order):
    blocks, smem_bytes, report = BUGS[name]
    device.order(order)
    with pytest.raises(RuntimeError, match=report) as failure:
        run(device, name, True, blocks, smem_bytes)
    assert str(failure.value).startswith(f"{name}<true>, block (")
    assert np.isfinite(run(device, name, False, blocks, smem_bytes)).all()


@pytest.mark.parametrize("threads, blocks, smem_bytes, report", [
    (1056, 1, 256, "1 to 1024 threads"), (48, 1, 256, "multiple of 32"), (64, 0, 256, "grid"),
    (64, 1, (48 << 10) + 4, "more dynamic shared memory")])
def test_launches_a_gpu_refuses(device, threads, blocks, smem_bytes, report):
    with pytest.raises(RuntimeError, match=report):
        run(device, "left_by_another_block", False, blocks, smem_bytes, threads)


def test_more_shared_memory_must_be_asked_for(device):
    device._check(device.lib.allow_smem(ctypes.c_size_t(100 << 10)))
    assert np.isfinite(run(device, "left_by_another_block", False, 2, 100 << 10)).all()
    with pytest.raises(RuntimeError, match="more shared memory than a block can have"):
        device._check(device.lib.allow_smem(ctypes.c_size_t(164 << 10)))  # sm_80 has 163 KB


def test_copies_stay_inside_an_allocation(device):
    p, host = device.lib.device_alloc(ctypes.c_size_t(100)), np.zeros(200, np.uint8)
    address = host.ctypes.data_as(ctypes.c_void_p)
    for bytes_, start in ((101, p), (1, p + 100), (1, address.value)):
        with pytest.raises(RuntimeError, match="not inside device memory"):
            device._check(device.lib.copy_in(ctypes.c_void_p(start), address,
                                             ctypes.c_size_t(bytes_)))
    device._check(device.lib.copy_in(ctypes.c_void_p(p), address, ctypes.c_size_t(100)))
    device._check(device.lib.device_free(ctypes.c_void_p(p)))
    with pytest.raises(RuntimeError):
        device._check(device.lib.device_free(ctypes.c_void_p(p)))

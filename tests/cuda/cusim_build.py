"""Kernels written by hand, compiled against the simulator and called with numpy arrays."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aotc.runtime.simulate import SOURCES, compile_command, cuda_folder, find_cxx

HERE = Path(__file__).resolve().parent
STRICT = ("-Wall", "-Wextra", "-Werror")
ORDERS = ("forward", "reverse", "random:1", "random:2")
needs_cxx = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))),
                               reason="the simulator needs a C++ compiler: install g++")


class Device:
    """A library of kernels with the helpers of device.cu."""

    def __init__(self, path):
        self.path = str(path)
        self.lib = ctypes.CDLL(self.path)
        self.lib.device_alloc.restype = ctypes.c_void_p
        self.lib.error_text.restype = ctypes.c_char_p

    def order(self, order):
        """Set the order in which blocks and threads take turns: one of ORDERS."""
        self.lib.aotc_cusim_set_order(order.encode())

    def call(self, function, *args, out):
        """Call ``function`` with scalars and arrays (copied to device memory that ends right behind
        them); returns the device's copy of the argument ``out`` (an index).  RuntimeError with the
        device's text if the status is not 0."""
        buffers, values = {}, []
        for k, arg in enumerate(args):
            if isinstance(arg, np.ndarray):
                buffers[k] = self.lib.device_alloc(ctypes.c_size_t(arg.nbytes))
                self._check(self.lib.copy_in(ctypes.c_void_p(buffers[k]), _address(arg),
                                             ctypes.c_size_t(arg.nbytes)))
                values.append(ctypes.c_void_p(buffers[k]))
            else:
                values.append(arg)
        try:
            self._check(getattr(self.lib, function)(*values))
            result = np.empty_like(args[out])
            self._check(self.lib.copy_out(_address(result), ctypes.c_void_p(buffers[out]),
                                          ctypes.c_size_t(result.nbytes)))
            return result
        finally:
            for p in buffers.values():
                self.lib.device_free(ctypes.c_void_p(p))

    def _check(self, status):
        if status:
            self.lib.last_error()
            raise RuntimeError(self.lib.error_text(status).decode())


def _address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def build_device(folder, *sources, arch="", flags=()):
    """Device of these .cu files of this folder, simulated."""
    cxx = find_cxx()
    files = [HERE / s for s in (*sources, "device.cu")]
    files += [cuda_folder() / "sim" / s for s in SOURCES]
    running, objects = [], []
    for file in files:
        objects.append(str(folder / f"{file.name}.o"))
        command = [*compile_command(cxx, arch), *STRICT, *flags, "-c", str(file), "-o",
                   objects[-1]]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for process in running:
        text = process.communicate(timeout=300)[1]
        assert process.returncode == 0, text
    library = folder / "kernels.so"
    subprocess.run([*cxx, "-shared", "-Wl,-Bsymbolic", "-pthread", "-o", str(library), *objects],
                   check=True, timeout=300)
    return Device(library)

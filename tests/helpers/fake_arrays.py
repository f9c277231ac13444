"""Arrays as other libraries have them in device memory, of the simulator: with ``__dlpack__`` or
``__cuda_array_interface__``, and what makes them wrong."""

import numpy as np

from aotc.runtime.dlpack import CPU, CUDA, export_tensor


class ByInterface:
    """As of Numba.  ``strides`` in bytes; stream: the producer's."""

    def __init__(self, twins, array, read_only=False, strides=None, stream=None):
        self.at = twins.upload(array)
        self.pointer = int(twins.ffi.cast("uintptr_t", self.at))
        self.shape, self.dtype = array.shape, array.dtype
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (self.pointer, read_only),
            "strides": strides, "version": 3, "stream": stream}


class ByDlpack:
    """As of torch and CuPy.  ``streams``: for which it was asked."""

    def __init__(self, twins, array, device=0, versioned=True, kind=CUDA):
        self.at = twins.upload(array)
        self.pointer = int(twins.ffi.cast("uintptr_t", self.at))
        self.shape, self.dtype = array.shape, array.dtype
        self.device, self.versioned, self.kind, self.streams = device, versioned, kind, []

    def __dlpack_device__(self):
        return self.kind, self.device

    def __dlpack__(self, *, stream=None, **more):
        if more and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return export_tensor(self, self.pointer, self.shape, self.dtype, self.device,
                             self.versioned)


class OnHost:
    """Of a library whose arrays numpy reads by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, **more):
        return self.array.__dlpack__(**more)


def values(twins, array, dtype=np.float32):
    """What lies in the memory of a fake array, or of an output."""
    return twins.download(twins.ffi.cast("void *", array.pointer), array.shape, dtype)

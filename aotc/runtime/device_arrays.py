"""Arrays in the memory of a GPU: those of any library that go into a call, and what comes out."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from aotc.ir.dtypes import Array
from aotc.runtime.dlpack import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, export_tensor, read_tensor
from aotc.runtime.shared_library import Library
from aotc.runtime.status import WrongDeviceError

_ON_HOST, _ON_GPU = (CPU, CUDA_HOST), (CUDA, CUDA_MANAGED)
_LEGACY = 1  # cudaStreamLegacy: what the protocols call the default stream


@dataclass(frozen=True)
class DeviceView:
    """A caller's array in device memory: what a call asks of it.  ``holder`` keeps the memory."""

    pointer: int
    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"
    read_only: bool
    holder: Any

    @property
    def ndim(self) -> int:
        """As of numpy."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """As of numpy."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def flags(self) -> SimpleNamespace:
        """As of numpy: views of other arrays are not made."""
        return SimpleNamespace(c_contiguous=True, aligned=True, writeable=not self.read_only)


def is_on_device(array: Any) -> bool:
    """True for an array of any library that lies in the memory of a GPU.  ValueError for one of
    another kind of device."""
    if isinstance(array, np.ndarray):
        return False
    if hasattr(array, "__dlpack_device__"):
        kind = int(array.__dlpack_device__()[0])
        if kind not in _ON_HOST + _ON_GPU:
            raise ValueError(f"an array on a device of type {kind} (DLPack); those of CUDA GPUs "
                             "and of the CPU are read: copy it to one of them")
        return kind in _ON_GPU
    return hasattr(array, "__cuda_array_interface__")


class ViewReader:
    """Reads callers' arrays for a model on a GPU.  ``device``: its number; ``library``: the
    model's."""

    def __init__(self, library: Library, device: int) -> None:
        self._library, self.device = library, device

    def view(self, where: str, array: Any, stream: int) -> DeviceView:
        """The DeviceView of an array that lies in device memory, for work on a stream, which waits
        for what the array's producer still does.  WrongDeviceError, or ValueError for one that is
        not contiguous or whose elements have no type of numpy's; ``where`` names it in both."""
        if isinstance(array, DeviceArray):
            self._require_device(where, array.device)
            self._wait(array.stream or _LEGACY, stream)
            return DeviceView(array.pointer, array.shape, array.dtype, False, array)
        if hasattr(array, "__dlpack_device__"):
            self._require_device(where, int(array.__dlpack_device__()[1]))
            found = read_tensor(array, stream or _LEGACY)
            strides, dtype, holder = found.strides, found.dtype, (array, found.holder)
            pointer, shape, read_only = found.pointer, found.shape, found.read_only
        else:
            about = array.__cuda_array_interface__
            pointer, read_only = about["data"]
            shape, dtype, holder = tuple(about["shape"]), np.dtype(about["typestr"]), array
            strides = about.get("strides")
            if strides is not None:
                strides = tuple(s // dtype.itemsize if s % dtype.itemsize == 0 else -1
                                for s in strides)
            self._require_device(where, self._device_of(where, pointer, shape))
            self._wait(about.get("stream"), stream)
        if dtype is None:
            raise ValueError(f"{where}: elements of a type that numpy does not have")
        if not _is_row_major(shape, strides):
            raise ValueError(f"{where} is not contiguous (strides {list(strides or ())} of shape "
                             f"{list(shape)}); make it so first, in torch with .contiguous()")
        return DeviceView(int(pointer or 0), shape, dtype, bool(read_only), holder)

    def _require_device(self, where: str, device: int) -> None:
        if device != self.device:
            raise WrongDeviceError("AOTC_WRONG_DEVICE", f"{where} is on GPU {device}, the model on "
                                   f"GPU {self.device}; copy it there, or load the model with "
                                   f"device={device}")

    def _device_of(self, where: str, pointer: int, shape: tuple[int, ...]) -> int:
        """The device of a pointer, as CUDA knows it."""
        if 0 in shape:
            return self.device
        ffi, library = self._library.ffi, self._library
        device = ffi.new("int *")
        library.call("pointer_device", ffi.cast("void *", pointer), device, detail=where)
        if device[0] < 0:
            raise ValueError(f"{where}: its pointer, which __cuda_array_interface__ gives, is not "
                             "to device memory")
        return int(device[0])

    def _wait(self, producer: int | None, stream: int) -> None:
        """Let a stream wait for what a producer's was given (None: nothing to wait for)."""
        if producer is not None and producer != (stream or _LEGACY):
            cast = self._library.ffi.cast
            self._library.call("wait_for", cast("void *", stream), cast("void *", producer))


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    if strides is None or 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def stream_of(stream: Any, device: int) -> int:
    """A stream as a number: of an int, of an object with ``__cuda_stream__``, ``cuda_stream``
    (torch) or ``ptr`` (CuPy), None: the default one.  TypeError for anything else,
    WrongDeviceError for an object that tells another device."""
    if stream is None:
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    own = getattr(stream, "device_id", getattr(getattr(stream, "device", None), "index", None))
    if isinstance(own, int) and own >= 0 and own != device:
        raise WrongDeviceError("AOTC_WRONG_DEVICE", f"stream: {stream} is of GPU {own}, the model "
                               f"on GPU {device}; give one of that")
    told = getattr(stream, "__cuda_stream__", None)
    if told is not None:
        return int((told() if callable(told) else told)[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(f"stream: {type(stream).__name__} is none; give a cudaStream_t as an int, or "
                    "an object with __cuda_stream__, cuda_stream or ptr")


def device_of(device: Any) -> int:
    """The number of a GPU: of an int, a text ("cuda", "cuda:1") or an object with ``index`` (torch)
    or ``id`` (CuPy); None: the first one.  TypeError for anything else."""
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        device = device.partition(":")[2] or 0
        return int(device)
    found = getattr(device, "index", getattr(device, "id", device))
    if isinstance(found, int) and not callable(found):
        return found
    if device is None or found is None:
        return 0
    raise TypeError(f"device: {device!r} is none; give its number, \"cuda:1\", or an object with "
                    "index or id")


def _free(library: Library, function: str, pointer: Any, pid: int) -> None:
    # what a device knows belongs to the process that asked for it
    if os.getpid() == pid:
        library.function(function)(pointer)


class DeviceMemory:
    """So many bytes of device memory, freed with this object.  RunError if there are not."""

    def __init__(self, library: Library, nbytes: int) -> None:
        pointer = library.ffi.new("void **")
        library.call("device_alloc", pointer, max(nbytes, 1), detail=f"{nbytes} bytes of device "
                     "memory")
        self.pointer, self.nbytes = pointer[0], nbytes
        weakref.finalize(self, _free, library, "device_free", self.pointer, os.getpid())


class PinnedMemory:
    """So many bytes of host memory that a device copies from and to by itself, as ``array``."""

    def __init__(self, library: Library, nbytes: int) -> None:
        pointer = library.ffi.new("void **")
        library.call("host_alloc", pointer, max(nbytes, 1), detail=f"{nbytes} bytes of pinned "
                     "memory")
        self.pointer = pointer[0]
        self.array = np.frombuffer(library.ffi.buffer(self.pointer, max(nbytes, 1)),
                                   np.uint8)[:nbytes]
        weakref.finalize(self, _free, library, "host_free", self.pointer, os.getpid())


class DeviceArray:
    """An output in device memory, row-major.  Any library takes it without a copy, by
    ``__dlpack__`` or ``__cuda_array_interface__``; ``numpy()`` copies it to the host.  ``stream``:
    on which its values are computed, as a number; readers on others wait for it."""

    def __init__(self, library: Library, memory: DeviceMemory, shape: tuple[int, ...],
                 dtype: "np.dtype[Any]", device: int, stream: int,
                 to_host: Callable[["DeviceArray"], Array]) -> None:
        self._library, self._memory, self._to_host = library, memory, to_host
        self.shape, self.dtype, self.device, self.stream = shape, dtype, device, stream

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return int(self._library.ffi.cast("uintptr_t", self._memory.pointer))

    @property
    def nbytes(self) -> int:
        """Of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on GPU {self.device})"

    def numpy(self) -> Array:
        """A copy on the host, once the values are there."""
        return self._to_host(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a GPU is copied to be one of numpy's")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("an output on a GPU is exported there and without a copy")
        if stream != -1 and (stream or _LEGACY) != (self.stream or _LEGACY):
            cast = self._library.ffi.cast
            self._library.call("wait_for", cast("void *", stream or 0), cast("void *", self.stream))
        return export_tensor(self, self.pointer, self.shape, self.dtype, self.device,
                             max_version is not None and max_version[0] >= 1)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind not in "biuf":
            raise AttributeError(f"__cuda_array_interface__ has no elements of type {self.dtype}")
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False),
                "strides": None, "version": 3, "stream": self.stream or _LEGACY}

"""CUDA bundles in Python: numpy arrays in and out, device memory in between."""

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cffi

from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import Array
from aotc.runtime.feeds import Syms
from aotc.runtime.model import Model, Sizes, make_contiguous
from aotc.runtime.shared_library import Library
from aotc.runtime.status import DeviceError

_DRIVER = "libcuda.so.1"
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


def devices() -> tuple[tuple[str, str], ...]:
    """(name, compute capability as "sm_90") of each GPU, asked of the driver; () without one."""
    ffi = cffi.FFI()
    ffi.cdef("int cuInit(unsigned); int cuDeviceGetCount(int *); int cuDeviceGet(int *, int);"
             "int cuDeviceGetName(char *, int, int); int cuDeviceGetAttribute(int *, int, int);")
    try:
        driver = ffi.dlopen(_DRIVER)
    except OSError:
        return ()
    count, device, value = ffi.new("int *"), ffi.new("int *"), ffi.new("int *")
    if driver.cuInit(0) or driver.cuDeviceGetCount(count):
        return ()
    found, name = [], ffi.new("char[]", 256)
    for i in range(count[0]):
        digits = []
        driver.cuDeviceGet(device, i)
        driver.cuDeviceGetName(name, len(name), device[0])
        for attribute in _CAPABILITY:
            driver.cuDeviceGetAttribute(value, attribute, device[0])
            digits.append(value[0])
        found.append((ffi.string(name).decode(errors="replace"), "sm_{}{}".format(*digits)))
    return tuple(found)


def require_device(name: str) -> None:
    """DeviceError unless this machine has a GPU; ``name``: what is to run on it."""
    if not devices():
        raise DeviceError(f"{name} is for CUDA and this machine has no GPU (no device behind "
                          f"{_DRIVER}); run it on one that has, or check the same sources on the "
                          "CPU with `aotc verify --simulate` (load(..., simulate=True))")


class DeviceMemory:
    """So many bytes of device memory, freed with this object.  RunError if there are not."""

    def __init__(self, library: Library, nbytes: int) -> None:
        pointer = library.ffi.new("void **")
        library.call("device_alloc", pointer, max(nbytes, 1), detail=f"{nbytes} bytes of device "
                     "memory")
        self.pointer, self.nbytes = pointer[0], nbytes
        weakref.finalize(self, _free, library, self.pointer, os.getpid())


# of a call's inputs (None: one that is left out) and of its outputs
Tensors = tuple[Sequence[DeviceMemory | None], Sequence[DeviceMemory]]


def _destroy(library: Library, context: Any, pid: int) -> None:
    if os.getpid() == pid:
        library.function("destroy")(context)


def _free(library: Library, pointer: Any, pid: int) -> None:
    # memory of a device belongs to the process that asked for it
    if os.getpid() == pid:
        library.function("device_free")(pointer)


class CudaModel(Model):
    """A CUDA bundle on the first GPU, or on the simulator; its use is that of any Model.

    ``simulate``: False, True, or the order in which simulated threads take turns: "forward",
    "reverse", "random:SEED".  Everything runs on the default stream; ``run`` returns when the
    outputs are here.  Every simulated run has an arena of its own, just large enough and filled
    with NaN."""

    def __init__(self, folder: Path, manifest: Manifest, library: Library,
                 variant: str | None = None, simulate: bool | str = False) -> None:
        self._describe(manifest, library, variant)
        self.simulated, self._order = bool(simulate), simulate if isinstance(simulate, str) else ""
        if self._order:
            self._ffi.cdef("void aotc_cusim_set_order(const char *);")
        self._context = self._ffi.new(f"{self.name}_context *")
        self._weights = self._upload_weights(folder)
        if manifest.get("profile"):  # whose contexts have events
            weakref.finalize(self, _destroy, library, self._context, os.getpid())
        self._device_arena: DeviceMemory | None = None
        self._tensors: Tensors | None = None  # of the last run

    def _upload_weights(self, folder: Path) -> DeviceMemory:
        """DeviceMemory with the weights; the host's copy is closed again."""
        library, null = self._library, self._ffi.NULL
        weights = self._ffi.new("aotc_weights *")
        self._open_weights(folder, weights)
        try:
            memory = DeviceMemory(library, library.function("weights_device_bytes")())
            library.call("weights_upload", weights, memory.pointer, memory.nbytes, null)
            library.call("synchronize", null)
        finally:
            library.function("weights_close")(weights)
        return memory

    @property
    def variant(self) -> str:
        """The target whose kernels run."""
        return str(self.manifest["variants"][0]["target"])

    @property
    def threads(self) -> int:
        """Threads of the host that a call uses."""
        return 1

    def synchronize(self) -> None:
        """Wait for everything started so far; raises what failed in it, as ``run`` does."""
        self._checked(self._library.function("check")(self._context, self._ffi.NULL))

    def _checked(self, status: int) -> None:
        if status:
            raise self._library.error(status, self._library.detail(self._context))

    def _called(self, arrays: Sequence[Array | None], dims: Syms = None) -> dict[str, Array]:
        """As of ``Model``.  The device memory of the tensors is kept for the next run with the
        same shapes."""
        sizes = self._check(arrays, dims)
        arrays = [make_contiguous(a) for a in arrays]
        with self._lock:
            outputs = self._results(arrays, sizes)
            nbytes = [None if a is None else a.nbytes for a in (*arrays, *outputs)]
            kept = None if self._tensors is None else [
                m and m.nbytes for of in self._tensors for m in of]
            if self._tensors is None or kept != nbytes:
                self._tensors = None  # freed before the new ones are asked for
                self._tensors = self._memory(arrays, outputs)
            return CudaBound(self, arrays, outputs, sizes.syms, self._tensors).call_locked()

    def _prepare(self, arrays: Sequence[Array | None], sizes: Sizes) -> "CudaBound":
        with self._lock:
            outputs = self._results(arrays, sizes)
            return CudaBound(self, arrays, outputs, sizes.syms, self._memory(arrays, outputs))

    def _memory(self, arrays: Sequence[Array | None], outputs: Sequence[Array]) -> Tensors:
        """Device memory for arrays of these sizes; an output that lies where an input does has no
        memory of its own."""
        ins = [a if a is None else DeviceMemory(self._library, a.nbytes) for a in arrays]
        shared = [ins[info.alias] if info.alias >= 0 else None for info in self.outputs]
        return ins, [m or DeviceMemory(self._library, a.nbytes)
                     for m, a in zip(shared, outputs)]

    def _start(self, syms: Any, ins: Any, outs: Any, stream: int = 0) -> None:
        """Start the kernels on device memory, in an arena that is large enough."""
        function, null = self._library.function, self._ffi.NULL
        need = function("arena_size_of")(syms)
        arena = self._device_arena
        if self.simulated or arena is None or arena.nbytes < need:
            self._device_arena = None  # freed before the new one is asked for
            arena = DeviceMemory(self._library, need)
            function("destroy")(self._context)
            self._checked(function("init")(self._context, self._weights.pointer,
                                           arena.pointer, arena.nbytes, null))
            self._device_arena = arena
        if self._order:
            self._library.lib.aotc_cusim_set_order(self._order.encode())
        self._checked(function("run_buffers")(self._context, syms, ins, outs,
                                              self._ffi.cast("void *", stream)))


class CudaBound:
    """``bound()`` copies ``bound.inputs`` to the device, runs the model and returns
    ``bound.outputs``, copied back; ``upload``, ``launch`` and ``download`` are its three steps, of
    which ``launch`` alone does not wait."""

    def __init__(self, model: CudaModel, arrays: Sequence[Array | None], outputs: Sequence[Array],
                 syms: Any, memory: Tensors) -> None:
        ffi = model._ffi
        self.inputs = {info.name: a for info, a in zip(model.inputs, arrays) if a is not None}
        self.outputs = {info.name: a for info, a in zip(model.outputs, outputs)}
        self._model, self._arrays, self._syms = model, arrays, syms
        self._results = outputs
        self._ins, self._outs = memory
        self._in_pointers = ffi.new("const void *[]", [ffi.NULL if m is None else m.pointer
                                                       for m in self._ins] or 1)
        self._out_pointers = ffi.new("void *[]", [m.pointer for m in self._outs] or 1)

    def __call__(self) -> dict[str, Array]:
        with self._model._lock:
            return self.call_locked()

    def call_locked(self) -> dict[str, Array]:
        """The whole call, by who holds the model's lock."""
        self.upload()
        self.launch()
        self._model.synchronize()
        self.download()
        return self.outputs

    def upload(self) -> None:
        """The inputs, to the device."""
        given = [(m, a) for m, a in zip(self._ins, self._arrays)
                 if m is not None and a is not None]
        self._copy("copy_in", [(m.pointer, _address(self._model, a)) for m, a in given],
                   [a for _, a in given])

    def launch(self, stream: int = 0) -> None:
        """Start the kernels on what ``upload`` has copied, on a stream (a ``cudaStream_t`` as a
        number; 0: the default one).  On one that is captured, behind a launch that was not."""
        self._model._start(self._syms, self._in_pointers, self._out_pointers, stream)

    def synchronize(self) -> None:
        """Wait for what was launched; raises what failed in it."""
        self._model.synchronize()

    def download(self) -> None:
        """The outputs, from the device."""
        self._copy("copy_out", [(_address(self._model, a), m.pointer)
                                for m, a in zip(self._outs, self._results)], self._results)
        self._model._library.call("synchronize", self._model._ffi.NULL)

    def _copy(self, function: str, pointers: Sequence[tuple[Any, Any]],
              arrays: Sequence[Array]) -> None:
        library, null = self._model._library, self._model._ffi.NULL
        for (to, source), array in zip(pointers, arrays):
            library.call(function, to, source, array.nbytes, null)


def _address(model: CudaModel, array: Array) -> Any:
    return model._ffi.cast("void *", array.__array_interface__["data"][0])

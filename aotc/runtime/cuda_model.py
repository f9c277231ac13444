"""CUDA bundles in Python: arrays of a GPU as they lie there, numpy's by way of device memory."""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cffi

from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import Array
from aotc.runtime.cuda_bound import CallPlace, CudaBound
from aotc.runtime.device_arrays import (
    DeviceArray,
    DeviceMemory,
    DeviceView,
    ViewReader,
    is_on_device,
    stream_of,
)
from aotc.runtime.feeds import Given, Syms, call_run, feeds_in_order
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


def _destroy(library: Library, context: Any, pid: int) -> None:
    # what a device knows belongs to the process that asked for it
    if os.getpid() == pid:
        library.function("destroy")(context)


class CudaModel(Model):
    """A CUDA bundle on a GPU, or on the simulator; its use is that of any Model, and arrays of any
    library that lie on the GPU go in and come out without copies.

    ``device``: the GPU's number.  ``simulate``: False, True, or the order in which simulated
    threads take turns: "forward", "reverse", "random:SEED".  Every simulated run on the default
    stream has an arena of its own, just large enough and filled with NaN."""

    def __init__(self, folder: Path, manifest: Manifest, library: Library,
                 variant: str | None = None, simulate: bool | str = False,
                 device: int = 0) -> None:
        self._describe(manifest, library, variant)
        self.simulated, self._order = bool(simulate), simulate if isinstance(simulate, str) else ""
        if self._order:
            self._ffi.cdef("void aotc_cusim_set_order(const char *);")
        self.device = self._checked_device(device)
        self._reader = ViewReader(library, device)
        self._context = self._ffi.new(f"{self.name}_context *")
        with self.on_device():
            self._weights = self._upload_weights(folder)
        weakref.finalize(self, _destroy, library, self._context, os.getpid())
        self._device_arena: DeviceMemory | None = None
        self._kept: Sequence[CallPlace] = ()  # of the last run over arrays of the host

    def _checked_device(self, device: int) -> int:
        count = self._ffi.new("int *")
        self._library.call("device_count", count)
        if not 0 <= device < count[0]:
            raise DeviceError(f"{self.name}: device={device}: this machine has {count[0]} GPUs, "
                              "counted from 0")
        return device

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

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """With the model's GPU as the current one of this thread."""
        before = self._ffi.new("int *")
        self._library.call("get_device", before)
        if before[0] == self.device:
            yield
            return
        self._library.call("set_device", self.device)
        try:
            yield
        finally:
            self._library.call("set_device", before[0])

    def synchronize(self, stream: Any = None) -> None:
        """Wait for everything started on a stream; raises what failed in it, as ``run`` does."""
        with self.on_device():
            self._checked(self._library.function("check")(
                self._context, self._ffi.cast("void *", stream_of(stream, self.device))))

    def _checked(self, status: int) -> None:
        """Raise the error of a status that is not ok, with the context's words."""
        if status:
            busy = self._library.statuses.get(status) == "AOTC_CONTEXT_BUSY"
            detail = self._library.detail(self._context)
            raise self._library.error(status, detail or "another thread runs it" * busy)

    def run(self, feeds: Given, dims: Syms = None, *, outputs: Given | None = None,
            stream: Any = None) -> dict[str, Any]:
        """As of ``Model``, over arrays of the host.  Where an input lies on the model's GPU
        (anything with ``__dlpack__`` or ``__cuda_array_interface__``), it is read there, the call
        is started on ``stream`` (an int, or an object with ``__cuda_stream__``, ``cuda_stream`` or
        ``ptr``; default: the default stream) and returns at once, as ``bind`` and a call would;
        ``outputs``, by name or in order, are arrays to write to, else results are DeviceArrays.
        What fails on the GPU ``synchronize`` raises.

        ValueError for an array that is not contiguous, read-only but written to, or on the host
        where it should be on the GPU; WrongDeviceError for one of another GPU, or such a stream;
        ContextBusyError while a call on another stream has not ended."""
        handle = stream_of(stream, self.device)
        with self.on_device():
            arrays = self._arrays(feeds, handle)
            if outputs is None and not any(isinstance(a, DeviceView) for a in arrays):
                return call_run(self.inputs, self.outputs, self.manifest, self._texts, arrays,
                                lambda found: self._called(found, dims, handle))
            bound = self._bound(arrays, self._check(arrays, dims), outputs, handle, True)
        return bound()

    def bind(self, feeds: Given, dims: Syms = None, *, outputs: Given | None = None,
             stream: Any = None) -> CudaBound:
        """As of ``Model``, with arrays and streams as of ``run``: a callable over the same memory,
        and over that of ``outputs``; its ``graph()`` replays the call as a CUDA graph."""
        handle = stream_of(stream, self.device)
        with self.on_device():
            arrays = self._arrays(feeds, handle)
            for info, array in zip(self.inputs, arrays):
                self._require_bindable(info.name, array)
            return self._bound(arrays, self._check(arrays, dims), outputs, handle)

    def _arrays(self, feeds: Given, stream: int) -> list[Any]:
        """Arrays in order, those on the GPU as DeviceViews."""
        def viewed(name: Any, array: Any) -> Any:
            return self._reader.view(f"{self.name}: input {name}", array, stream) if is_on_device(
                array) else array
        if isinstance(feeds, Mapping):
            feeds = {n: viewed(n, a) for n, a in feeds.items()}
        elif isinstance(feeds, (list, tuple)):
            names = [t.name for t in self.inputs]
            feeds = [viewed(names[i] if i < len(names) else i, a) for i, a in enumerate(feeds)]
        return list(feeds_in_order(self.name, self.inputs, feeds, self.manifest))

    def _bound(self, arrays: Sequence[Any], sizes: Sizes, outputs: Given | None,
               stream: int, once: bool = False) -> CudaBound:
        """A CudaBound over (checked) arrays.  ``once``: for one call, which need not be prepared
        for the next."""
        outputs = self._outputs_by_name(outputs)
        on_gpu = any(isinstance(a, DeviceView) for a in arrays) or any(
            map(is_on_device, outputs.values()))
        if on_gpu:
            for i in self._in_place:
                if arrays[i] is not None and not isinstance(arrays[i], DeviceView):
                    raise ValueError(f"{self.name}: input {self.inputs[i].name} is written in "
                                     "place and lies on the host, others lie on the GPU: copy it "
                                     "there")
        given = [self._given_output(k, outputs[info.name], sizes.outputs[k], on_gpu, stream)
                 if outputs.get(info.name) is not None else None
                 for k, info in enumerate(self.outputs)]
        if once:
            arrays = [a if isinstance(a, DeviceView) else make_contiguous(a) for a in arrays]
        places = [None if a is None else self._place(a, once and on_gpu) for a in arrays]
        results: list[CallPlace] = []
        for k, info in enumerate(self.outputs):
            place = places[info.alias] if info.alias >= 0 else None
            place = given[k] if place is None else place
            results.append(place or self._empty_place(info.dtype, sizes.outputs[k], on_gpu, stream))
        return CudaBound(self, places, results, sizes.syms, stream)

    def _place(self, array: Any, pageable: bool = False) -> CallPlace:
        """Where the GPU finds an array: there, or in memory of its own."""
        if isinstance(array, DeviceView):
            shown = array.holder[0] if isinstance(array.holder, tuple) else array.holder
            return CallPlace(self._ffi.cast("void *", array.pointer), shown, array)
        return CallPlace.of_host(self._library, array, pageable)

    def _empty_place(self, dtype: Any, shape: tuple[int, ...], on_gpu: bool,
                     stream: int) -> CallPlace:
        """Where an output lies that the caller gives no array for."""
        if not on_gpu:
            return self._place(self._empty(shape, dtype))
        array = DeviceArray(self._library, DeviceMemory(self._library, _nbytes(dtype, shape)),
                            shape, dtype, self.device, stream, self._to_host)
        return CallPlace(self._ffi.cast("void *", array.pointer), array, array)

    def _to_host(self, array: DeviceArray) -> Array:
        """The values of an output, once they are there."""
        out = self._empty(array.shape, array.dtype)
        cast = self._ffi.cast
        with self.on_device():
            stream = cast("void *", array.stream)
            self._library.call("copy_out", self._ffi.from_buffer(out) if out.nbytes else
                               self._ffi.NULL, cast("void *", array.pointer), out.nbytes, stream)
            self._library.call("synchronize", stream)
        return out

    def _outputs_by_name(self, outputs: Given | None) -> Mapping[str, Any]:
        """The arrays that a caller gives for outputs.  ValueError for names the model lacks."""
        names = [t.name for t in self.outputs]
        if outputs is None:
            return {}
        if not isinstance(outputs, Mapping):
            if len(outputs) != len(names):
                raise ValueError(f"{self.name}: {len(outputs)} outputs given, it has "
                                 f"{len(names)}: {', '.join(names)}")
            return dict(zip(names, outputs))
        unknown = [str(n) for n in outputs if n not in names]
        if unknown:
            raise ValueError(f"{self.name}: outputs unknown: {', '.join(unknown)}; it has: "
                             + ", ".join(names))
        return outputs

    def _given_output(self, k: int, array: Any, shape: tuple[int, ...], on_gpu: bool,
                      stream: int) -> CallPlace:
        info = self.outputs[k]
        where = f"{self.name}: output {info.name}"
        if info.alias >= 0:
            raise ValueError(f"{where} lies in the array of input "
                             f"{self.inputs[info.alias].name}: give none for it")
        if is_on_device(array):
            array = self._reader.view(where, array, stream)
        elif on_gpu:
            raise ValueError(f"{where}: its array lies on the host, others lie on the GPU: give "
                             "one there, or none")
        elif not hasattr(array, "__array_interface__"):
            raise ValueError(f"{where}: {type(array).__name__} is no array to write to; give one "
                             "of numpy's or one on the GPU")
        if array.dtype != info.dtype or tuple(array.shape) != shape:
            raise ValueError(f"{where}: its array is {array.dtype}{list(array.shape)}, expected "
                             f"{info.dtype}{list(shape)}")
        if not array.flags.writeable:
            raise ValueError(f"{where}: its array is read-only")
        if not (array.flags.c_contiguous and array.flags.aligned):
            raise ValueError(f"{where} is not contiguous")
        return self._place(array)

    def _called(self, arrays: Sequence[Array | None], dims: Syms = None,
                stream: int = 0) -> dict[str, Array]:
        """As of ``Model``.  The device memory of the tensors is kept for the next run with the
        same shapes."""
        sizes = self._check(arrays, dims)
        arrays = [make_contiguous(a) for a in arrays]
        with self._lock:
            outputs = self._results(arrays, sizes)
            mine = [a for a, info in zip(outputs, self.outputs) if info.alias < 0]
            given = [a for a in (*arrays, *mine) if a is not None]
            if [p.array.nbytes for p in self._kept] != [a.nbytes for a in given]:
                self._kept = ()  # freed before the new ones are asked for
                self._kept = [self._place(a) for a in given]
            places = iter([p.holding(a) for p, a in zip(self._kept, given)])
            ins = [None if a is None else next(places) for a in arrays]
            outs = [ins[info.alias] if info.alias >= 0 else None for info in self.outputs]
            bound = CudaBound(self, ins, [p or next(places) for p in outs], sizes.syms, stream)
            return bound.call_locked()

    def start(self, function: str, first: Any, args: Sequence[Any], syms: Any,
              fresh: bool = False) -> None:
        """Call a function that starts the kernels, behind the context or a graph, in an arena that
        is large enough; of a simulated run ``fresh``: in a new one."""
        call, null = self._library.function, self._ffi.NULL
        need = call("arena_size_of")(syms)
        arena = self._device_arena
        if self.simulated and fresh or arena is None or arena.nbytes < need:
            self._device_arena = None  # freed before the new one is asked for
            arena = DeviceMemory(self._library, need)
            call("destroy")(self._context)
            self._checked(call("init")(self._context, self._weights.pointer, arena.pointer,
                                      arena.nbytes, null))
            self._device_arena = arena
        if self._order:
            self._library.lib.aotc_cusim_set_order(self._order.encode())
        self._checked(call(function)(first, *args))

    def run_buffers(self, syms: Any, ins: Any, outs: Any, stream: int) -> None:
        """Start the kernels on device memory."""
        self.start("run_buffers", self._context,
                   (syms, ins, outs, self._ffi.cast("void *", stream)), syms, stream == 0)


def _nbytes(dtype: Any, shape: tuple[int, ...]) -> int:
    out = int(dtype.itemsize)
    for extent in shape:
        out *= extent
    return out

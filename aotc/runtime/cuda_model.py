"""CUDA bundles in Python: numpy arrays in and out, device memory in between."""

import os
import weakref

import cffi
import numpy as np

from aotc.runtime.feeds import feeds_in_order
from aotc.runtime.model import Model
from aotc.runtime.status import DeviceError

_DRIVER = "libcuda.so.1"
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


def devices():
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


def require_device(name):
    """DeviceError unless this machine has a GPU; ``name``: what is to run on it."""
    if not devices():
        raise DeviceError(f"{name} is for CUDA and this machine has no GPU (no device behind "
                          f"{_DRIVER}); run it on one that has, or check the same sources on the "
                          "CPU with `aotc verify --simulate` (load(..., simulate=True))")


class DeviceMemory:
    """So many bytes of device memory, freed with this object.  RunError if there are not."""

    def __init__(self, library, nbytes):
        pointer = library.ffi.new("void **")
        library.call("device_alloc", pointer, max(nbytes, 1), detail=f"{nbytes} bytes of device "
                     "memory")
        self.pointer, self.nbytes = pointer[0], nbytes
        weakref.finalize(self, _free, library, self.pointer, os.getpid())


def _free(library, pointer, pid):
    # memory of a device belongs to the process that asked for it
    if os.getpid() == pid:
        library.function("device_free")(pointer)


class CudaModel(Model):
    """A CUDA bundle on the first GPU, or on the simulator; its use is that of any Model.

    ``simulate``: False, True, or the order in which simulated threads take turns: "forward",
    "reverse", "random:SEED".  Everything runs on the default stream; ``run`` returns when the
    outputs are here.  Every simulated run has an arena of its own, just large enough and filled
    with NaN."""

    def __init__(self, folder, manifest, library, variant=None, simulate=False):
        self._describe(manifest, library, variant)
        self.simulated, self._order = bool(simulate), simulate if isinstance(simulate, str) else ""
        if self._order:
            self._ffi.cdef("void aotc_cusim_set_order(const char *);")
        self._context = self._ffi.new(f"{self.name}_context *")
        self._weights = self._upload_weights(folder)
        self._arena = None
        self._tensors = None  # device memory of the last run's inputs and outputs

    def _upload_weights(self, folder):
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
    def variant(self):
        """The target whose kernels run."""
        return self.manifest["variants"][0]["target"]

    @property
    def threads(self):
        """Threads of the host that a call uses."""
        return 1

    def synchronize(self):
        """Wait for everything started so far; raises what failed in it, as ``run`` does."""
        self._checked(self._library.function("check")(self._context, self._ffi.NULL))

    def _checked(self, status):
        if status:
            raise self._library.error(status, self._library.detail(self._context))

    def run(self, feeds):
        """As ``Model.run``.  The device memory of the tensors is kept for the next run with the
        same shapes."""
        arrays = feeds_in_order(self.name, self.inputs, feeds, self.manifest)
        syms = self._check(arrays)
        arrays = [a if a is None else np.require(a, requirements="CA") for a in arrays]
        with self._lock:
            outputs = self._outputs_of(syms)
            sizes = [None if a is None else a.nbytes for a in (*arrays, *outputs)]
            if self._tensors is None or [m and m.nbytes for m in self._tensors] != sizes:
                self._tensors = None  # freed before the new ones are asked for
                self._tensors = [n if n is None else DeviceMemory(self._library, n)
                                 for n in sizes]
            return CudaBound(self, arrays, outputs, syms, self._tensors).call_locked()

    def _prepare(self, arrays, syms):
        with self._lock:
            outputs = self._outputs_of(syms)
            memory = [a if a is None else DeviceMemory(self._library, a.nbytes)
                      for a in (*arrays, *outputs)]
            return CudaBound(self, arrays, outputs, syms, memory)

    def _start(self, syms, ins, outs):
        """Start the kernels on device memory, in an arena that is large enough."""
        function, null = self._library.function, self._ffi.NULL
        need = function("arena_size_of")(syms)
        if self.simulated or self._arena is None or self._arena.nbytes < need:
            self._arena = DeviceMemory(self._library, need)
            self._checked(function("init")(self._context, self._weights.pointer,
                                           self._arena.pointer, self._arena.nbytes, null))
        if self._order:
            self._library.lib.aotc_cusim_set_order(self._order.encode())
        self._checked(function("run_buffers")(self._context, syms, ins, outs, null))


class CudaBound:
    """``bound()`` copies ``bound.inputs`` to the device, runs the model and returns
    ``bound.outputs``, copied back; ``upload``, ``launch`` and ``download`` are its three steps, of
    which ``launch`` alone does not wait."""

    def __init__(self, model, arrays, outputs, syms, memory):
        ffi = model._ffi
        self.inputs = {info.name: a for info, a in zip(model.inputs, arrays) if a is not None}
        self.outputs = {info.name: a for info, a in zip(model.outputs, outputs)}
        self._model, self._arrays, self._syms = model, arrays, syms
        self._results = outputs
        self._ins, self._outs = memory[:len(arrays)], memory[len(arrays):]
        self._in_pointers = ffi.new("const void *[]", [ffi.NULL if m is None else m.pointer
                                                       for m in self._ins] or 1)
        self._out_pointers = ffi.new("void *[]", [m.pointer for m in self._outs] or 1)

    def __call__(self):
        with self._model._lock:
            return self.call_locked()

    def call_locked(self):
        """The whole call, by who holds the model's lock."""
        self.upload()
        self.launch()
        self._model.synchronize()
        self.download()
        return self.outputs

    def upload(self):
        """The inputs, to the device."""
        given = [(m, a) for m, a in zip(self._ins, self._arrays) if a is not None]
        self._copy("copy_in", [(m.pointer, _address(self._model, a)) for m, a in given],
                   [a for _, a in given])

    def launch(self):
        """Start the kernels on what ``upload`` has copied."""
        self._model._start(self._syms, self._in_pointers, self._out_pointers)

    def download(self):
        """The outputs, from the device."""
        self._copy("copy_out", [(_address(self._model, a), m.pointer)
                                for m, a in zip(self._outs, self._results)], self._results)
        self._model._library.call("synchronize", self._model._ffi.NULL)

    def _copy(self, function, pointers, arrays):
        library, null = self._model._library, self._model._ffi.NULL
        for (to, source), array in zip(pointers, arrays):
            library.call(function, to, source, array.nbytes, null)


def _address(model, array):
    return model._ffi.cast("void *", array.__array_interface__["data"][0])

"""The simulator's twins of CUDA's functions, called on the library of a simulated bundle."""

import numpy as np

NULL = 0
SUCCESS, INVALID_VALUE, NOT_READY, UNSUPPORTED, INVALIDATED, IMPLICIT = 0, 1, 600, 900, 901, 906
NON_BLOCKING, THREAD_LOCAL, RELAXED = 1, 1, 2
_TWINS = """
    int cudaMalloc(void **, size_t);
    int cudaFree(void *);
    int cudaMemcpy(void *, const void *, size_t, int);
    int cudaMemset(void *, int, size_t);
    int cudaSetDevice(int);
    int cudaGetDevice(int *);
    int cudaGetLastError(void);
    int cudaDeviceSynchronize(void);
    int cudaStreamCreateWithFlags(void **, unsigned);
    int cudaStreamDestroy(void *);
    int cudaStreamSynchronize(void *);
    int cudaStreamBeginCapture(void *, int);
    int cudaStreamEndCapture(void *, void **);
    int cudaStreamIsCapturing(void *, int *);
    int cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
    int cudaGraphLaunch(void *, void *);
    int cudaGraphDestroy(void *);
    int cudaGraphExecDestroy(void *);
    int cudaEventCreateWithFlags(void **, unsigned);
    int cudaEventDestroy(void *);
    int cudaEventQuery(void *);
    int cudaEventRecord(void *, void *);
    int cudaEventSynchronize(void *);
    void aotc_cusim_set_devices(int);
    void aotc_cusim_hold_stream(void *, int);
    int64_t aotc_cusim_refused_calls(void);
    int64_t aotc_cusim_captured(void);
    int64_t aotc_cusim_events(void);
"""
TO_DEVICE, TO_HOST = 1, 2


class Twins:
    """``twins.cudaFree(p)`` and so on; ``ok(status)`` asserts that it is none."""

    def __init__(self, model):
        self.ffi, self.lib = model._ffi, model._library.lib
        self.ffi.cdef(_TWINS, override=True)

    def __getattr__(self, name):
        return getattr(self.lib, name)

    def made(self, function, *args):
        """The object that a function makes."""
        at = self.ffi.new("void **")
        self.ok(getattr(self.lib, function)(at, *args))
        return at[0]

    @staticmethod
    def ok(status):
        assert status == SUCCESS, status

    def stream(self, flags=NON_BLOCKING):
        return self.made("cudaStreamCreateWithFlags", flags)

    def upload(self, array):
        """Device memory with an array."""
        at = self.made("cudaMalloc", max(array.nbytes, 1))
        if array.nbytes:
            self.ok(self.lib.cudaMemcpy(at, self.ffi.from_buffer(np.ascontiguousarray(array)),
                                        array.nbytes, TO_DEVICE))
        return at

    def download(self, at, shape, dtype=np.float32):
        array = np.empty(shape, dtype)
        self.ok(self.lib.cudaMemcpy(self.ffi.from_buffer(array), at, array.nbytes, TO_HOST))
        return array

    def capture(self, stream, mode=THREAD_LOCAL):
        self.ok(self.lib.cudaStreamBeginCapture(stream, mode))

    def end_capture(self, stream):
        """(status, graph)"""
        at = self.ffi.new("void **")
        return self.lib.cudaStreamEndCapture(stream, at), at[0]


class Caller:
    """A context of a simulated bundle over memory of its own, for calls as C makes them."""

    def __init__(self, bundle):
        self.model = bundle.load(simulate=True)
        self.twins = Twins(self.model)
        self.ffi, self.library = self.twins.ffi, self.model._library
        name = self.model.name
        self.context, weights = self.ffi.new(f"{name}_context *"), self.ffi.new("aotc_weights *")
        self.model._open_weights(bundle.path, weights)
        self.graph = self.ffi.new(f"{name}_graph *")
        assert self("create", self.context, weights) == "AOTC_OK", self.detail
        self.library.function("weights_close")(weights)

    def __call__(self, function, *args):
        """The name of a function's status."""
        return self.library.statuses[self.library.function(function)(*args)]

    @property
    def detail(self):
        return self.library.detail(self.context)

    def place(self, *arrays):
        """A C array of device memory with arrays, as run_buffers takes it."""
        return self.ffi.new("void *[]", [self.twins.upload(a) for a in arrays] or 1)

    def syms(self, *values):
        return self.ffi.new("int64_t[]", list(values) or 1)

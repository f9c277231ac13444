"""DLPack: what lies behind the capsules of ``__dlpack__``, and capsules of one's own."""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import cffi
import numpy as np

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_VERSION = (1, 0)
_READ_ONLY = 1  # of the flags of a versioned capsule
_NAME, _VERSIONED = b"dltensor", b"dltensor_versioned"
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_KINDS = {_INT: "i", _UINT: "u", _FLOAT: "f"}

_ffi = cffi.FFI()
_ffi.cdef("""
    typedef struct { int32_t device_type; int32_t device_id; } DLDevice;
    typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
    typedef struct {
        void *data;
        DLDevice device;
        int32_t ndim;
        DLDataType dtype;
        int64_t *shape;
        int64_t *strides;
        uint64_t byte_offset;
    } DLTensor;
    typedef struct DLManagedTensor {
        DLTensor dl_tensor;
        void *manager_ctx;
        void (*deleter)(struct DLManagedTensor *);
    } DLManagedTensor;
    typedef struct DLManagedTensorVersioned {
        uint32_t major;
        uint32_t minor;
        void *manager_ctx;
        void (*deleter)(struct DLManagedTensorVersioned *);
        uint64_t flags;
        DLTensor dl_tensor;
    } DLManagedTensorVersioned;
""")

# of CPython, whose objects' id() is their address
_python = ctypes.pythonapi
_is_valid, _pointer_of, _new = (ctypes.PYFUNCTYPE(r, *a)((f, _python)) for f, r, *a in (
    ("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p),
    ("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    ("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)))
_exported: dict[int, tuple[Any, ...]] = {}  # what lives until its deleter is called, by address


@dataclass(frozen=True)
class CapsuleTensor:
    """What a capsule says: address, shape, strides in elements (None: row-major), numpy dtype (None
    for a type that numpy and ml_dtypes lack), (type, number) of the device, whether it may not be
    written to; ``holder`` keeps the memory."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: "np.dtype[Any] | None"
    device: tuple[int, int]
    read_only: bool
    holder: Any


def read_tensor(array: Any, stream: int | None) -> CapsuleTensor:
    """The CapsuleTensor of an array with ``__dlpack__``, which makes ``stream`` wait for what its
    producer still does (None: it is no array of a GPU).  The capsule is not consumed: who holds it
    holds the array."""
    more = {} if stream is None else {"stream": stream}
    try:
        capsule = array.__dlpack__(max_version=_VERSION, **more)
    except TypeError:  # one from before versions
        capsule = array.__dlpack__(**more)
    versioned = bool(_is_valid(id(capsule), _VERSIONED))
    at = _ffi.cast("void *", _pointer_of(id(capsule), _VERSIONED if versioned else _NAME))
    managed = _ffi.cast("DLManagedTensorVersioned *" if versioned else "DLManagedTensor *", at)
    t = managed.dl_tensor
    return CapsuleTensor(
        int(_ffi.cast("uintptr_t", t.data)) + t.byte_offset,
        tuple(t.shape[0:t.ndim]) if t.ndim else (),
        tuple(t.strides[0:t.ndim]) if t.strides != _ffi.NULL else None,
        _dtype(t.dtype), (t.device.device_type, t.device.device_id),
        versioned and bool(managed.flags & _READ_ONLY), capsule)


def _dtype(given: Any) -> "np.dtype[Any] | None":
    if given.lanes != 1 or given.bits % 8:
        return None
    if given.code == _BOOL:
        return np.dtype(np.bool_) if given.bits == 8 else None
    if given.code == _BFLOAT:
        try:
            return np.dtype("bfloat16")  # known by name once ml_dtypes is there
        except TypeError:
            return None
    kind = _KINDS.get(given.code)
    try:
        return np.dtype(f"{kind}{given.bits // 8}") if kind else None
    except TypeError:
        return None


def _code(dtype: "np.dtype[Any]") -> int:
    if dtype.name == "bfloat16":
        return _BFLOAT
    codes = {"b": _BOOL, "i": _INT, "u": _UINT, "f": _FLOAT}
    if dtype.kind not in codes:
        raise BufferError(f"DLPack has no elements of type {dtype}")
    return codes[dtype.kind]


def export_tensor(owner: Any, pointer: int, shape: tuple[int, ...], dtype: "np.dtype[Any]",
                  device: int, versioned: bool) -> Any:
    """A capsule of a row-major array of a GPU, which holds ``owner`` until who reads it lets go."""
    kind = "DLManagedTensorVersioned" if versioned else "DLManagedTensor"
    managed, extents = _ffi.new(f"{kind} *"), _ffi.new("int64_t[]", [*shape] or 1)
    t = managed.dl_tensor
    t.data, t.ndim, t.shape = _ffi.cast("void *", pointer), len(shape), extents
    steps = [int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(len(shape))]
    strides = _ffi.new("int64_t[]", steps or 1)
    t.strides = strides
    t.device.device_type, t.device.device_id = CUDA, device
    t.dtype.code, t.dtype.bits, t.dtype.lanes = _code(dtype), 8 * dtype.itemsize, 1
    managed.deleter = _deleter(kind)
    if versioned:
        managed.major, managed.minor = _VERSION
    at = int(_ffi.cast("uintptr_t", managed))
    _exported[at] = (managed, extents, strides, owner)
    return _new(at, _VERSIONED if versioned else _NAME, _dropped)


@cache
def _deleter(kind: str) -> Any:
    def let_go(managed: Any) -> None:
        _exported.pop(int(_ffi.cast("uintptr_t", managed)), None)
    return _ffi.callback(f"void({kind} *)", let_go)


def _destructor(capsule: int) -> None:
    """Of a capsule that nobody has read: who reads one renames it."""
    for name in (_NAME, _VERSIONED):
        if _is_valid(capsule, name):
            _exported.pop(_pointer_of(capsule, name), None)


_called = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destructor)
_dropped = ctypes.cast(_called, ctypes.c_void_p)

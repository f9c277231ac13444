"""A bundle as a Python object, numpy arrays in and out (``loading.load`` opens one)."""

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from aotc.errors import AotcError
from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import Array
from aotc.runtime.feeds import (
    Given,
    Syms,
    call_run,
    dims_of,
    feeds_in_order,
    symbol_values,
    texts_of,
)
from aotc.runtime.shared_library import Library
from aotc.runtime.tensor_info import Extent, TensorInfo, tensor_infos

_ALIGNMENT = 64
_CALLS_KEPT = 64
ABOUT_EXTENTS = ("AOTC_BAD_DIMENSION", "AOTC_BAD_SHAPE")


def _variant_index(manifest: Manifest, variant: str | None) -> int:
    names = [v["target"] for v in manifest["variants"]]
    if variant is not None and variant not in names:
        raise AotcError(f"{manifest['name']}: no kernels for {variant!r}; the bundle has "
                        + ", ".join(names))
    return -1 if variant is None else names.index(variant)


@dataclass(frozen=True)
class KernelCost:
    """Sums over ``calls`` of one kernel: seconds, floating-point operations, bytes it must move.
    ``kernel``: its C function; ``rows``: micro-kernel rows of its stages; ``nodes``: ONNX names;
    ``plain``: the part of its time (0 to 1) that stages on plain loops are estimated to take."""

    kernel: str
    rows: tuple[str, ...]
    nodes: tuple[str, ...]
    calls: int
    seconds: float
    flops: float
    bytes: float
    plain: float = 0.0


@dataclass(frozen=True)
class Sizes:
    """What the shapes of a call decide: the values of the symbols (a C array) and the shapes of
    the outputs, in the model's order.  Dimensions that break a rule may ask for a negative extent,
    which is 0 here: the call says so."""

    syms: Any
    outputs: tuple[tuple[int, ...], ...]


class Binding(Protocol):
    """What ``bind`` returns: called, it runs the model over ``inputs`` and returns ``outputs``."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]

    def __call__(self) -> dict[str, Array]: ...


class Model:
    """A loaded bundle.  ``inputs`` and ``outputs`` describe its tensors in the model's order.

    One Model may be used from several threads; its calls take turns.
    """

    def __init__(self, folder: Path, manifest: Manifest, library: Library, threads: int = 1,
                 variant: str | None = None) -> None:
        self._describe(manifest, library, variant)
        self._arena = np.empty(0, np.uint8)
        self._weights = self._ffi.new("aotc_weights *")
        self._context = self._ffi.new("aotc_context *")
        self._pool = self._ffi.new("aotc_pool *")
        self._open_weights(folder, self._weights)
        weakref.finalize(self, _close, library, self._weights, self._pool, os.getpid())
        library.call("pool_create", self._pool, threads, detail=f"threads={threads}")
        self._run_buffers = library.function("run_buffers")
        self._arena_size = library.function("arena_size_of")
        self._ins_type = self._ffi.typeof("const void *[]")
        self._outs_type = self._ffi.typeof("void *[]")

    def _describe(self, manifest: Manifest, library: Library, variant: str | None) -> None:
        """What any Model knows from its manifest.  AotcError for what it cannot be called with."""
        self._variant = _variant_index(manifest, variant)
        self.name = manifest["name"]
        self.manifest = manifest
        self.inputs, self.outputs = tensor_infos(manifest)
        self._symbols = manifest["symbols"]
        known = {d.symbol for t in self.inputs for d in t.shape if isinstance(d, Extent)}
        unknown = [s["name"] for s in self._symbols if s["name"] not in known]
        self._told = set(unknown)  # by the caller: how much of a buffer there is
        if unknown and all(t.alias < 0 for t in self.inputs):
            raise AotcError(f"{self.name}: no input's shape tells {', '.join(unknown)}; "
                            "fix these dimensions when compiling")
        self._library, self._ffi = library, library.ffi
        self._lock = threading.Lock()
        self._texts = texts_of(self.inputs, self.outputs, manifest)
        self._in_place = [i for i, t in enumerate(self.inputs) if t.alias >= 0]
        self._sizes: dict[Any, Sizes] = {}  # of the last few shapes

    def _open_weights(self, folder: Path, weights: Any) -> None:
        if self.manifest["weights"] == "embed":
            self._library.call("weights_embedded", weights)
            return
        path = folder / f"{self.name}_weights.bin"
        self._library.call("weights_open", weights, os.fsencode(path), detail=str(path))

    @property
    def variant(self) -> str:
        """The target whose kernels run: the one asked for, else the widest this CPU can run (known
        after the first call)."""
        return str(self.manifest["variants"][self._context.variant]["target"])

    @property
    def threads(self) -> int:
        """Workers of the pool, the calling thread included."""
        return int(self._pool.workers)

    def run(self, feeds: Given, dims: Syms = None) -> dict[str, Any]:
        """Outputs as {ONNX name: array} in the model's order.

        ``feeds``: {ONNX input name: array} or a sequence of arrays in order.  ``dims``: {dimension:
        extent} of those that no shape tells, such as the length of what lies in a buffer with room
        for more; that array is written in place and is the output, too.  ValueError for
        wrong names, dtypes, ranks or extents, before anything runs; RunError (an AotcError) for
        what only running shows, e.g. IndexFault for an index outside its table.  Strings are
        arrays of str; what is bound (``bind``) are their places in ``manifest["texts"]``.
        Sequences are lists of arrays, None is an optional that is not there.
        """
        arrays = feeds_in_order(self.name, self.inputs, feeds, self.manifest)
        return call_run(self.inputs, self.outputs, self.manifest, self._texts, arrays,
                        lambda found: self._called(found, dims))

    def _called(self, arrays: Sequence[Array | None], dims: Syms = None) -> dict[str, Array]:
        """Outputs of a call with these arrays, in order, which it checks."""
        sizes = self._check(arrays, dims)
        arrays = [make_contiguous(a) for a in arrays]
        outputs = self._results(arrays, sizes)
        ins, outs = self._pointers(arrays, outputs)
        with self._lock:
            self._grow(self._arena_size(sizes.syms, self._pool.workers))
            self._start(sizes.syms, ins, outs)
        return {info.name: a for info, a in zip(self.outputs, outputs)}

    def _pointers(self, arrays: Sequence[Array | None],
                  outputs: Sequence[Array]) -> tuple[Any, Any]:
        """The addresses of inputs and outputs as C arrays; who holds them holds the arrays."""
        new, at, null = self._ffi.new, self._ffi.from_buffer, self._ffi.NULL
        return (new(self._ins_type, [null if a is None else at(a) for a in arrays] or 1),
                new(self._outs_type, [at(a) for a in outputs] or 1))

    def _start(self, syms: Any, ins: Any, outs: Any) -> None:
        """Run over these addresses, by who holds the lock."""
        status = self._run_buffers(self._context, syms, ins, outs)
        if status:
            detail = self._library.detail(self._context)
            raise self._library.error(status, detail + self._extents(status, syms))

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """``model(x, y)``, ``model(x=x, y=y)`` or ``model({"x": x, "y": y})``: as ``run``."""
        if len(args) == 1 and not kwargs and isinstance(args[0], (Mapping, list, tuple)):
            return self.run(args[0])
        if args and kwargs:
            raise ValueError(f"{self.name}: give inputs by position or by name, not both")
        return self.run(kwargs or list(args))

    def bind(self, feeds: Given, dims: Syms = None) -> Binding:
        """A callable for repeated runs over the same memory: write into the arrays of ``feeds``
        (they are not copied), call it, read the arrays of the dict it returns, the same dict
        every time (an output of which data says how many elements there are in its whole room,
        with the count as one more).  ValueError as in ``run``, and for arrays that are not
        contiguous."""
        arrays = feeds_in_order(self.name, self.inputs, feeds, self.manifest)
        for info, array in zip(self.inputs, arrays):
            self._require_bindable(info.name, array)
        return self._prepare(arrays, self._check(arrays, dims))

    def _require_bindable(self, name: str, array: Array | None) -> None:
        if array is not None and not (array.flags.c_contiguous and array.flags.aligned):
            raise ValueError(f"{self.name}: input {name} is not contiguous, binding would copy "
                             "it; use np.ascontiguousarray first")

    def profile(self, reset: bool = False) -> list[KernelCost]:
        """What every kernel has cost in the calls since the arena was made or the last reset: a
        list of KernelCost in call order.  AotcError if the bundle was compiled without
        ``profile=True``."""
        if not self.manifest.get("profile"):
            raise AotcError(f"{self.name}: it counts nothing; compile it with profile=True "
                            "(--profile)")
        count = self._ffi.new("int *")
        with self._lock:
            costs = self._library.function("profile")(self._context, count)
            why = "" if costs else self._library.detail(self._context)
            if why:  # what is counted on a device may have failed there
                raise AotcError(f"{self.name}: its kernels could not be timed: {why}")
            rows = [k for k in self.manifest["kernels"] if k["target"] == self.variant]
            out = [KernelCost(k["c"], tuple(k["rows"]), tuple(k["onnx"]), costs[i].calls,
                              costs[i].nanoseconds * 1e-9, costs[i].flops, costs[i].bytes,
                              k.get("plain", 0.0))
                   for i, k in enumerate(rows[:count[0]])]
            if reset:
                self._library.function("profile_reset")(self._context)
        return out

    def _check(self, arrays: Sequence[Array | None], dims: Syms = None) -> Sizes:
        """What the arrays' shapes decide, those that were seen of late from memory; checks
        everything."""
        given = dims_of(dims)
        key = (*[a if a is None else (a.shape, a.dtype) for a in arrays], *given.items())
        sizes = self._sizes.get(key)
        if sizes is None:
            sizes = self._checked_sizes(arrays, given)
            if len(self._sizes) >= _CALLS_KEPT:
                self._sizes.clear()
            self._sizes[key] = sizes
        for i in self._in_place:
            array = arrays[i]
            if array is not None and not (array.flags.c_contiguous and array.flags.aligned
                                          and array.flags.writeable):
                raise ValueError(f"{self.name}: input {self.inputs[i].name} is written in place, "
                                 "it must be a contiguous array that may be written to")
        return sizes

    def _checked_sizes(self, arrays: Sequence[Array | None], dims: Mapping[str, int]) -> Sizes:
        if set(dims) != self._told:
            raise ValueError(f"{self.name}: give the dimensions that no input's shape tells with "
                             f"dims=: {', '.join(sorted(self._told)) or 'there is none'}")
        values = symbol_values(self.name, self.inputs, arrays, dims)
        syms = self._ffi.new("int64_t[]", [values[s["name"]] for s in self._symbols] or 1)
        for i, (info, array) in enumerate(zip(self.inputs, arrays)):
            shape = self._shape("input_shape", i, info, syms)
            if array is not None and shape != array.shape:
                raise ValueError(f"{self.name}: input {info.name}: shape is "
                                 f"{list(array.shape)}, expected {list(shape)} "
                                 f"({list(info.shape)}) with {values}")
        shapes = [self._shape("output_shape", i, info, syms)
                  for i, info in enumerate(self.outputs)]
        return Sizes(syms, tuple(tuple(0 if info.alias >= 0 else max(d, 0) for d in shape)
                                 for shape, info in zip(shapes, self.outputs)))

    def _shape(self, function: str, index: int, info: TensorInfo, syms: Any) -> tuple[int, ...]:
        shape = self._ffi.new("int64_t[]", max(len(info.shape), 1))
        self._library.call(function, index, syms, shape, detail=info.name)
        return tuple(shape)[:len(info.shape)]

    def _prepare(self, arrays: Sequence[Array | None], sizes: Sizes) -> Binding:
        """A Bound over these (checked, contiguous) arrays."""
        outputs = self._results(arrays, sizes)
        with self._lock:
            self._grow(self._arena_size(sizes.syms, self._pool.workers))
        return Bound(self, arrays, outputs, sizes.syms)

    def _results(self, arrays: Sequence[Array | None], sizes: Sizes) -> list[Array]:
        """Where the outputs lie, in the model's order: in the arrays of inputs, or in empty ones
        of their own; a tensor that is listed twice has two."""
        shared = [arrays[info.alias] if info.alias >= 0 else None for info in self.outputs]
        return [self._empty(shape, info.dtype) if array is None else array
                for array, info, shape in zip(shared, self.outputs, sizes.outputs)]

    @staticmethod
    def _empty(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        return np.empty(shape, dtype)

    def _extents(self, status: int, syms: Any) -> str:
        """The dimensions of a call, for the message of a status about them."""
        names = [s["name"] for s in self._symbols]
        if self._library.statuses.get(status) not in ABOUT_EXTENTS or not names:
            return ""
        return f" (here {', '.join(f'{n}={v}' for n, v in zip(names, syms))})"

    def _grow(self, need: int) -> None:
        if self._arena.nbytes >= need + _ALIGNMENT:
            return
        self._arena = np.empty(need + _ALIGNMENT, np.uint8)
        address = self._arena.__array_interface__["data"][0]
        start = -(-address // _ALIGNMENT) * _ALIGNMENT
        status = self._library.function("init_variant")(
            self._context, self._weights, self._ffi.cast("void *", start),
            self._arena.nbytes - (start - address), self._pool, self._variant)
        if status:
            self._arena = np.empty(0, np.uint8)
            raise self._library.error(status, self._library.detail(self._context))


class Bound:
    """``bound()`` runs the model over ``bound.inputs`` and returns ``bound.outputs``."""

    def __init__(self, model: Model, arrays: Sequence[Array | None], outputs: Sequence[Array],
                 syms: Any) -> None:
        self.inputs = {info.name: a for info, a in zip(model.inputs, arrays) if a is not None}
        self.outputs = {info.name: a for info, a in zip(model.outputs, outputs)}
        self._model, self._syms, self._arrays = model, syms, (arrays, outputs)
        self._ins, self._outs = model._pointers(arrays, outputs)

    def __call__(self) -> dict[str, Array]:
        with self._model._lock:
            self._model._start(self._syms, self._ins, self._outs)
        return self.outputs


def make_contiguous(array: Array | None) -> Array | None:
    """Elements in order and aligned, copied where they are not."""
    if array is None or array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, requirements=("C", "A"))


def _close(library: Library, weights: Any, pool: Any, pid: int) -> None:
    # the pool's threads exist only in the process that made them
    if os.getpid() == pid:
        library.function("pool_destroy")(pool)
    library.function("weights_close")(weights)

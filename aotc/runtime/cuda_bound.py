"""Calls of a CUDA bundle over the same memory again, as launches or as a CUDA graph."""

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.ir.dtypes import Array
from aotc.runtime.device_arrays import DeviceMemory, PinnedMemory, stream_of
from aotc.runtime.feeds import dims_of
from aotc.runtime.shared_library import Library
from aotc.runtime.status import GraphError

if TYPE_CHECKING:
    from aotc.runtime.cuda_model import CudaModel

_MOST_PINNED = 64 << 20  # bytes: pinned memory is taken from what the machine has for others


@dataclass(frozen=True)
class CallPlace:
    """Where a tensor of a call lies on the GPU: ``pointer``; ``array``: what the caller has of it;
    ``holder`` keeps the memory.  ``on_host``: the array lies there, and is copied to and from the
    GPU, by way of ``pinned`` memory if there is any."""

    pointer: Any
    array: Any
    holder: Any
    on_host: bool = False
    pinned: PinnedMemory | None = None

    @staticmethod
    def of_host(library: Library, array: Array, pageable: bool = False) -> "CallPlace":
        """Of an array on the host.  ``pageable``: without pinned memory, so that the array may be
        written to as soon as a copy has been asked for."""
        memory = DeviceMemory(library, array.nbytes)
        pinned = None if pageable or array.nbytes > _MOST_PINNED else PinnedMemory(
            library, array.nbytes)
        return CallPlace(memory.pointer, array, memory, True, pinned)

    def holding(self, array: Array) -> "CallPlace":
        """The place for another array of as many bytes."""
        return replace(self, array=array)


class CudaBound:
    """``bound()`` copies those of ``bound.inputs`` that lie on the host to the GPU, runs the model
    and returns ``bound.outputs``: on the host, copied back, or on the GPU, where they are once the
    stream has passed.  ``upload``, ``launch`` and ``download`` are its three steps, of which
    ``launch`` alone never waits; ``graph`` gives the launch as a CUDA graph."""

    def __init__(self, model: "CudaModel", ins: Sequence[CallPlace | None],
                 outs: Sequence[CallPlace], syms: Any, stream: int) -> None:
        ffi = model._ffi
        self.inputs = {info.name: p.array for info, p in zip(model.inputs, ins) if p is not None}
        self.outputs = {info.name: p.array for info, p in zip(model.outputs, outs)}
        self.stream = stream
        self._model, self._ins, self._outs, self._syms = model, ins, outs, syms
        self._in_pointers = ffi.new("const void *[]", [ffi.NULL if p is None else p.pointer
                                                       for p in ins] or 1)
        self._out_pointers = ffi.new("void *[]", [p.pointer for p in outs] or 1)
        self._copying = False  # pinned memory may still be read

    def __call__(self) -> dict[str, Any]:
        with self._model._lock:
            return self.call_locked()

    def call_locked(self) -> dict[str, Any]:
        """The whole call, by who holds the model's lock."""
        self.upload()
        self.launch()
        return self.finish()

    def finish(self) -> dict[str, Any]:
        """The outputs; those on the host once they are there."""
        if any(p.on_host for p in self._outs):
            self.synchronize()
            self.download()
        return self.outputs

    def upload(self) -> None:
        """The inputs that lie on the host, to the GPU."""
        given = [p for p in self._ins if p is not None and p.on_host]
        with self._model.on_device():
            if self._copying:
                self._wait()
            for p in given:
                source = p.array if p.pinned is None else p.pinned.array
                if p.pinned is not None:
                    p.pinned.array[...] = p.array.reshape(-1).view(np.uint8)
                self._copy("copy_in", p.pointer, self._address(source), p.array.nbytes)
            self._copying = any(p.pinned is not None for p in given)

    def launch(self, stream: Any = None) -> None:
        """Start the kernels on what ``upload`` has copied, on a stream (as of ``bind``, whose
        stream is the default).  On one that is captured, behind a launch that was not."""
        handle = self.stream if stream is None else stream_of(stream, self._model.device)
        with self._model.on_device():
            self._model.run_buffers(self._syms, self._in_pointers, self._out_pointers, handle)

    def graph(self) -> "CudaGraph":
        """The call as a CUDA graph, captured when it is first replayed.  CaptureError for a model
        whose loops or branches data decides."""
        with self._model._lock, self._model.on_device():
            return CudaGraph(self._model, self)

    def synchronize(self) -> None:
        """Wait for what was started on the stream; raises what failed in it."""
        self._model.synchronize(self.stream)
        self._copying = False

    def download(self) -> None:
        """The outputs that lie on the host, from the GPU."""
        given = [p for p in self._outs if p.on_host]
        with self._model.on_device():
            for p in given:
                to = p.array if p.pinned is None else p.pinned.array
                self._copy("copy_out", self._address(to), p.pointer, p.array.nbytes)
            self._wait()
        for p in given:
            if p.pinned is not None:
                p.array.reshape(-1).view(np.uint8)[...] = p.pinned.array

    def _wait(self) -> None:
        self._model._library.call("synchronize", self._handle())

    def _handle(self) -> Any:
        return self._model._ffi.cast("void *", self.stream)

    def _copy(self, function: str, to: Any, source: Any, nbytes: int) -> None:
        library, device = self._model._library, self._model.device
        status = library.function(function)(to, source, nbytes, self._handle())
        if status:
            wrong = library.statuses.get(status) == "AOTC_WRONG_DEVICE"
            raise library.error(status, f"stream: it is none of device {device}" if wrong
                                else f"a copy of {nbytes} bytes")

    def _address(self, array: Array) -> Any:
        return self._model._ffi.cast("void *", array.__array_interface__["data"][0])


def _drop(library: Library, graph: Any, pid: int) -> None:
    if os.getpid() == pid:
        library.function("graph_destroy")(graph)


class CudaGraph:
    """``graph()`` is the call that it was made of, the launches as one CUDA graph.  ``captures``:
    how often they were captured."""

    def __init__(self, model: "CudaModel", bound: CudaBound) -> None:
        self._model, self._bound = model, bound
        self._graph = model._ffi.new(f"{model.name}_graph *")
        model.start("graph_create", self._graph, (model._context,), bound._syms)
        weakref.finalize(self, _drop, model._library, self._graph, os.getpid())

    @property
    def captures(self) -> int:
        """Once, and again when the model's arena has moved."""
        return int(self._graph.captures)

    def __call__(self) -> dict[str, Any]:
        with self._model._lock:
            self._bound.upload()
            self.replay()
            return self._bound.finish()

    def replay(self, stream: Any = None, dims: Mapping[str, int] | None = None) -> None:
        """Start the kernels as ``launch`` does.  ``dims``: {dimension: extent} that the caller has
        now; GraphError if the graph is for others."""
        model, bound = self._model, self._bound
        handle = bound.stream if stream is None else stream_of(stream, model.device)
        at = model._ffi.cast("void *", handle)
        with model.on_device():
            if dims is not None:
                asked = self._asked(dims_of(dims))
                if self.captures:
                    model._checked(model._library.function("graph_replay")(self._graph, asked, at))
                    return
            model.start("graph_launch", self._graph,
                        (bound._syms, bound._in_pointers, bound._out_pointers, at), bound._syms)

    def _asked(self, dims: Mapping[str, int]) -> Any:
        """The values of all symbols, as a C array, with those that a caller names.  ValueError for
        names that the model lacks; GraphError if nothing was captured yet, and not for these."""
        model, syms = self._model, self._bound._syms
        names = [s["name"] for s in model._symbols]
        unknown = [n for n in dims if n not in names]
        if unknown:
            raise ValueError(f"{model.name}: dimensions unknown: {', '.join(unknown)}; it has: "
                             f"{', '.join(names) or 'none'}")
        for n, own in zip(names, syms):
            if not self.captures and dims.get(n, own) != own:
                raise GraphError("AOTC_GRAPH_MISMATCH", f"{model.name}: the graph is of a call "
                                 f"with {n} = {own}, not {dims[n]}; bind another one")
        return model._ffi.new("int64_t[]", [dims.get(n, own) for n, own in zip(names, syms)] or 1)

"""``onnx.backend.base.Backend`` on top of aotc, for tools and test suites that speak it.

    import aotc.onnx_backend as backend
    outputs = backend.run_model(model, [x])
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from aotc.api import compile as compile_model
from aotc.errors import UnsupportedError

if TYPE_CHECKING:
    from aotc.api import OpenModel


class AotcBackendRep(BackendRep):
    """A compiled and loaded model.  ``run(inputs)`` takes a list in graph order or a dict by
    name and returns the outputs as a tuple that also knows their names."""

    def __init__(self, model: "OpenModel",
                 folder: tempfile.TemporaryDirectory[str]) -> None:
        self._model = model
        self._folder = folder  # kept alive: the library is mapped from it

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        outputs = self._model.run(inputs if isinstance(inputs, dict) else list(inputs))
        parts = self._model.manifest.get("lists", {}).get("outputs", ())
        names = [n for n, _ in parts] or [  # a tensor may be listed twice
            o.name for o in self._model.outputs if not o.counts]
        return namedtupledict("Outputs", names)(*(outputs[n] for n in names))


class AnyLists(BackendRep):
    """A model with inputs that are sequences or optionals: compiled for every number of tensors
    and their shapes that ``run`` is called with, when it is."""

    def __init__(self, model: onnx.ModelProto, prepare: Callable[..., AotcBackendRep]) -> None:
        self._names = [i.name for i in model.graph.input
                       if i.name not in {t.name for t in model.graph.initializer}]
        self._listed = {i.name for i in model.graph.input if _is_list(i.type)}
        self._prepare = prepare
        self._compiled: dict[str, AotcBackendRep] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        feeds = inputs if isinstance(inputs, dict) else dict(zip(self._names, inputs))
        lists = {n: _held(feeds.get(n)) for n in self._names if n in self._listed}
        key = repr(lists)
        if key not in self._compiled:
            self._compiled[key] = self._prepare(lists=lists)
        return self._compiled[key].run(feeds)


def _is_list(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") in ("sequence_type", "optional_type")


def _held(value: Any) -> list[list[int]] | None:
    """What a list holds: the shapes of its tensors."""
    if value is None:
        return None
    return [list(np.shape(v)) for v in (value if isinstance(value, (list, tuple)) else [value])]


class AotcBackend(Backend):
    """Compiles with ``aotc.compile`` for the target named by the environment variable
    AOTC_TARGET (native without it) into a temporary folder."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True if the model compiles for ``device``."""
        if not cls.supports_device(device):
            return False
        with tempfile.TemporaryDirectory(prefix="aotc-backend-") as folder:
            try:
                compile_model(model, out=Path(folder) / "bundle", target=_target(), **kwargs)
            except UnsupportedError:
                return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", threads: int = 1,
                **kwargs: Any) -> BackendRep:
        """Compile, build and load; ``kwargs`` go to ``aotc.compile``.  A model with sequences among
        its inputs is compiled when it is run, unless ``lists`` says how long they are.  Raises
        UnsupportedError (a NotImplementedError) for what aotc does not compile."""
        if not cls.supports_device(device):
            raise UnsupportedError(f"device {device!r}: aotc bundles run on CPU")
        super().prepare(model, device)
        if "lists" not in kwargs and any(_is_list(i.type) for i in model.graph.input):
            return AnyLists(model, partial(cls._prepared, model, threads, **kwargs))
        return cls._prepared(model, threads, **kwargs)

    @classmethod
    def _prepared(cls, model: onnx.ModelProto, threads: int, **kwargs: Any) -> AotcBackendRep:
        folder = tempfile.TemporaryDirectory(prefix="aotc-backend-")
        bundle = compile_model(model, out=Path(folder.name) / "bundle", target=_target(),
                               name=kwargs.pop("name", "model"), **kwargs)
        return AotcBackendRep(bundle.load(threads), folder)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU",
                  **kwargs: Any) -> tuple[Any, ...]:
        """Outputs of a ModelProto for ``inputs``; as ``prepare`` then ``run``."""
        outputs: tuple[Any, ...] = cls.prepare(model, device, **kwargs).run(inputs)
        return outputs

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU",
                 outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        """Outputs of one node.  inputs: list of arrays.  outputs_info: ((dtype, shape), ...) as
        ONNX defines it; without it the types come from ONNX's own shape inference."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        feeds = dict(zip((n for n in node.input if n), map(np.asarray, inputs)))
        model = _node_model(node, feeds, outputs_info, opset)
        return cls.run_model(model, feeds, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for "CPU"."""
        return device.partition(":")[0] == "CPU"


def _node_model(node: onnx.NodeProto, feeds: Mapping[str, np.ndarray[Any, Any]],
                outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None,
                opset: int) -> onnx.ModelProto:
    """ModelProto around one node whose inputs look like the arrays of ``feeds``."""
    value = onnx.helper.make_tensor_value_info
    to_type = onnx.helper.np_dtype_to_tensor_dtype
    ins = [value(n, to_type(a.dtype), a.shape) for n, a in feeds.items()]
    names = [n for n in node.output if n]
    known = {}
    if outputs_info is not None:
        known = {n: value(n, to_type(np.dtype(dtype)), shape)
                 for n, (dtype, shape) in zip(names, outputs_info)}
    opsets = [onnx.helper.make_opsetid(node.domain, opset)]

    def model(outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        graph = onnx.helper.make_graph([node], "node", ins, outputs)
        return onnx.helper.make_model(graph, opset_imports=opsets)

    if not known:
        inferred = onnx.shape_inference.infer_shapes(model([]))
        known = {v.name: v for v in inferred.graph.value_info}
    return model([known[n] for n in names if n in known])


def _target() -> str:
    return os.environ.get("AOTC_TARGET", "native")


is_compatible = AotcBackend.is_compatible
prepare = AotcBackend.prepare
run = AotcBackend.run_model
run_model = AotcBackend.run_model
run_node = AotcBackend.run_node
supports_device = AotcBackend.supports_device

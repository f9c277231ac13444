"""Reading a model file.  What comes from outside is checked before anything trusts it."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import checker, external_data_helper

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.graph import shorten
from aotc.frontend.read.expand import Key, key_of
from aotc.frontend.read.mapped import stays_in_file, without_weights
from aotc.frontend.read.validate import NODES, check_message

CALLS = 90  # depth of calls of functions

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto


def load_model(source: Source, mapped: bool = False) -> onnx.ModelProto:
    """An ``onnx.ModelProto`` from a path, bytes or a ModelProto, with its tensors in memory.
    ``mapped``: those that can stay in files do, for ``mapped.array_of``.

    External tensors are read from the model's own folder and from nowhere else.  Raises ModelError
    for anything that is not an ONNX model, and for functions that never end.
    """
    folder = None
    if isinstance(source, onnx.ModelProto):
        model, what = source, "the given ModelProto"
    elif isinstance(source, (bytes, bytearray, memoryview)):
        what = "the given bytes"
        model = _parse(bytes(source), what)
    elif isinstance(source, (str, os.PathLike)):
        what = f"model {str(source)!r}"
        model, folder = _parse(_read(source, what, mapped), what), Path(source).resolve().parent
    else:
        raise ModelError(f"cannot load a model from {type(source).__name__}: "
                         "give a path, bytes or an onnx.ModelProto")
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{what} is not an ONNX model: it has no graph with outputs")
    check_message(model)
    _load_external(model, folder, what, mapped)
    if model.functions:
        _check_calls(model, what)
    return model


def model_digest(model: onnx.ModelProto) -> str:
    """Hex SHA-256 of a ModelProto's deterministic serialisation; of one beyond 2 GB, which protobuf
    cannot serialise, of that of its parts."""
    try:
        return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    except (EncodeError, ValueError):
        graph, digest = model.graph, hashlib.sha256()
        for part in (*model.opset_import, *model.functions, *graph.input, *graph.output,
                     *graph.value_info, *graph.node):
            digest.update(part.SerializeToString(deterministic=True))
        for tensor in graph.initializer:
            for field, value in tensor.ListFields():
                text = value if isinstance(value, bytes) else f"{field.name} {value}".encode()
                digest.update(text)
        return digest.hexdigest()


def _check_calls(model: onnx.ModelProto, what: str) -> None:
    """ModelError for functions that call themselves, UnsupportedError for calls that would make
    more nodes than any model has."""
    bodies = {key_of(f, f.name): f.node for f in model.functions}
    sizes = {}

    def size(nodes: Iterable[onnx.NodeProto], inside: frozenset[Key]) -> int:
        total = 0
        for n in nodes:
            key = key_of(n, n.op_type)
            if key in inside or len(inside) > CALLS:
                raise ModelError(f"{what}: function {shorten(n.op_type)!r} calls itself, or "
                                 f"functions call one another more than {CALLS} deep")
            if key in bodies and key not in sizes:
                sizes[key] = size(bodies[key], inside | {key})
            graphs = [g for a in n.attribute for g in (*([a.g] if a.HasField("g") else []),
                                                       *a.graphs)]
            total += sizes.get(key, 1) + sum(size(g.node, inside) for g in graphs)
        return total

    if size(model.graph.node, frozenset()) > NODES:
        raise UnsupportedError(f"{what}: its functions call one another until there are over "
                               f"{NODES} nodes; call them less often")


def _read(path: str | os.PathLike[str], what: str, mapped: bool) -> bytes:
    try:
        kind = Path(path).stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # reading may wait for ever
            raise ModelError(f"{what} is a pipe or a device: write the model to a file")
        found = without_weights(path) if mapped else None
        return Path(path).read_bytes() if found is None else found
    except OSError as err:
        raise ModelError(f"{what} cannot be read: {err.strerror or err}") from None
    except ValueError as err:  # a path with a null byte
        raise ModelError(f"{what} cannot be read: {err}") from None


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as err:
        raise ModelError(f"{what} is not an ONNX model: {err}") from None
    if not model.ir_version or not model.opset_import:
        raise ModelError(f"{what} is not an ONNX model: it states no IR version or no opset")
    return model


def _load_external(model: onnx.ModelProto, folder: Path | None, what: str, mapped: bool) -> None:
    external = [t for part in (model.graph, *model.functions) for t in all_tensors(part)
                if external_data_helper.uses_external_data(t)]
    for tensor in external:
        name = shorten(tensor.name)
        info = {e.key: e.value for e in tensor.external_data}
        if folder is None:
            raise ModelError(f"tensor {name!r} is stored in an external file, and {what} "
                             "has no folder to look in: load the model by its path")
        location = info.get("location", "")
        try:
            path = (folder / location).resolve()
            path.is_file()
        except (OSError, RuntimeError, ValueError) as err:  # too long, a loop of links, a null
            raise ModelError(f"tensor {name!r} is stored at {shorten(location)!r}, which is no "
                             f"path of a file: {getattr(err, 'strerror', None) or 'malformed'}"
                             ) from None
        if not location or os.path.isabs(location) or folder not in path.parents:
            raise ModelError(f"tensor {name!r} is stored at {location!r}, outside the folder of "
                             f"{what}: move the file next to the model")
        if not path.is_file():
            raise ModelError(f"tensor {name!r} is stored in {location!r}, which is missing next "
                             f"to {what}")
        _check_extent(path, info, name, location)
    for tensor in external:
        if mapped and stays_in_file(tensor):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = str((folder or Path()) / entry.value)
            continue
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except (checker.ValidationError, OSError, ValueError) as err:
            raise ModelError(f"tensor {shorten(tensor.name)!r}: its file is refused: "
                             f"{str(err).splitlines()[0][:300]}") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _check_extent(path: Path, info: Mapping[str, str], name: str, location: str) -> None:
    try:
        offset, length = int(info.get("offset", 0)), int(info.get("length", 0))
    except ValueError:
        raise ModelError(f"tensor {name!r}: offset or length in {location!r} is no "
                         "number") from None
    if offset < 0 or length < 0 or offset + length > path.stat().st_size:
        raise ModelError(f"tensor {name!r}: bytes {offset}..{offset + length} lie outside "
                         f"{location!r}, which has {path.stat().st_size} bytes")


def all_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Every tensor stored in a graph or a function: initializers, attributes, those of its
    sub-graphs."""
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("t"):
                yield a.t
            if a.HasField("sparse_tensor"):
                yield from (a.sparse_tensor.values, a.sparse_tensor.indices)
            yield from a.tensors
            for sub in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from all_tensors(sub)

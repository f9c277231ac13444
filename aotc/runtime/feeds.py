"""What may be fed to a model: the checks, and what a caller gets."""

import operator
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import Array
from aotc.runtime.list_arguments import array_of, parts_of, put_lists_together, take_lists_apart
from aotc.runtime.tensor_info import Extent, TensorInfo
from aotc.runtime.texts import Run, Texts

# by ONNX name, or in order; a sequence of the model is a list of arrays, a map a dict
Given = Mapping[str, Any] | Sequence[Any]
Syms = Mapping[str, int] | None  # values of symbols that no shape tells


def texts_of(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo],
             manifest: Manifest) -> Texts | None:
    """The strings of a bundle; None if no input or output holds any."""
    some = any(t.text or t.chars for t in (*inputs, *outputs))
    return Texts(manifest.get("texts", ())) if some else None


def call_run(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], manifest: Manifest,
             texts: Texts | None, arrays: Sequence[Array | None], run: Run) -> dict[str, Any]:
    """``run(arrays)``, its outputs by name as a caller wants them: with strings, of an output with
    room for more the elements that there are, sequences as lists."""
    found = run(arrays) if texts is None else texts.called(inputs, outputs, arrays, run)
    for info in outputs:
        if info.counts:
            count = int(found.pop(info.name))
            for name, axis in info.counts:
                found[name] = found[name][(slice(None),) * axis + (slice(0, count),)]
    return put_lists_together(parts_of(manifest, "outputs"), found)


def _check_extent(where: str, shape: tuple[int, ...], i: int, want: int | Extent, got: int) -> None:
    lo, hi = (want.lo, want.hi) if isinstance(want, Extent) else (want, want)
    if got < lo or hi is not None and got > hi:
        must = f"{want}"
        if isinstance(want, Extent):
            must = f"at least {lo} ({want.text})" if hi is None else f"{lo}..{hi} ({want.text})"
        raise ValueError(f"{where}: dimension {i} of shape {list(shape)} is {got}, "
                         f"must be {must}")


def machine() -> str:
    """The name of this machine's instruction set, as bundles call it."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def feeds_in_order(name: str, inputs: Sequence[TensorInfo], feeds: Given,
                   manifest: Manifest | None = None) -> list[Array | None]:
    """The arrays of ``feeds`` ({ONNX name: array} or a sequence) in the order of ``inputs``, None
    for those left out that have a default.  ValueError if some are missing or unknown; manifest:
    says which of the unknown ones the compiler has made constants."""
    feeds = take_lists_apart(name, parts_of(manifest, "inputs"), feeds)
    names = [t.name for t in inputs]
    needed = [t.name for t in inputs if not t.default]
    if isinstance(feeds, Mapping):
        missing = [n for n in needed if n not in feeds]
        extra = [str(n) for n in feeds if n not in names]
        if missing or extra:
            text = "; ".join(f"{what}: {', '.join(which)}" for what, which in
                             (("missing", missing), ("unknown", extra)) if which)
            raise ValueError(f"{name}: inputs {text}; it has: {', '.join(names)}"
                             + "".join(_constant(n, manifest or {}) for n in extra))
        return _arrays(inputs, feeds, manifest)
    if not isinstance(feeds, (list, tuple)):
        raise ValueError(f"{name}: expected a dict or a list of arrays, "
                         f"got {type(feeds).__name__}")
    if len(feeds) not in (len(names), len(needed)):
        raise ValueError(f"{name}: {len(feeds)} inputs given, it has {len(names)}: "
                         + ", ".join(names))
    return _arrays(inputs, dict(zip(names if len(feeds) == len(names) else needed, feeds)),
                   manifest)


def _arrays(inputs: Sequence[TensorInfo], feeds: Mapping[str, Any],
            manifest: Manifest | None) -> list[Array | None]:
    keys = (manifest or {}).get("keys", {})
    return [array_of(feeds[t.name], t.dtype, keys.get(t.name)) if t.name in feeds else None
            for t in inputs]


def _constant(name: str, manifest: Manifest) -> str:
    """Why a name that the model has is no input of the bundle, and what makes it one."""
    if name in manifest.get("fixed", {}):
        return (f"; {name} was fixed when compiling: compile without --fix {name} (fix=) to feed "
                "it")
    if name in manifest.get("held", ()):
        return (f"; {name} is an initializer that the bundle holds as a constant: compile with "
                f"--input-default {name} (input_default=[{name!r}]) to feed it")
    return ""


def dims_of(given: Syms) -> dict[str, int]:
    """What a caller says of dimensions, as integers; TypeError for what is none."""
    return {n: operator.index(v) for n, v in given.items()} if given else {}


def symbol_values(name: str, inputs: Sequence[TensorInfo], arrays: Sequence[Array | None],
                  given: Mapping[str, int] | None = None) -> dict[str, int]:
    """{symbol: value} from the arrays' shapes, beside those that are ``given``.  ValueError for a
    wrong dtype, rank or extent."""
    values = dims_of(given)
    origin = dict.fromkeys(values, "dims")
    for info, array in zip(inputs, arrays):
        if array is None:
            continue  # its default is used
        where = f"{name}: input {info.name}"
        if array.dtype != info.dtype:
            raise ValueError(f"{where}: dtype is {array.dtype}, expected {info.dtype}; "
                             f"convert with .astype({str(info.dtype)!r})")
        if array.ndim != len(info.shape):
            raise ValueError(f"{where}: shape is {list(array.shape)}, expected rank "
                             f"{len(info.shape)}: {list(info.shape)}")
        for i, (want, got) in enumerate(zip(info.shape, array.shape)):
            _check_extent(where, array.shape, i, want, got)
            symbol = getattr(want, "symbol", "")
            if symbol and values.setdefault(symbol, got) != got:
                raise ValueError(
                    f"{where}: dimension {i} ({symbol}) is {got}, but it is {values[symbol]} in "
                    f"input {origin[symbol]}; if the two may differ, compile with --dim "
                    f"{info.name}:{i}=LO..HI (dims={{'{info.name}:{i}': (lo, hi)}})")
            origin.setdefault(symbol, info.name)
    return values

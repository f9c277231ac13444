"""What may be fed to a model: its tensors as the manifest describes them, and the checks."""

import operator
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import CHARS, DTYPES, TEXT, Array
from aotc.runtime.list_arguments import array_of, parts_of, put_together, taken_apart

# by ONNX name, or in order; a sequence of the model is a list of arrays, a map a dict
Given = Mapping[str, Any] | Sequence[Any]
Syms = Mapping[str, int] | None  # values of symbols that no shape tells


@dataclass(frozen=True)
class Extent:
    """A symbolic extent: ``text`` as the compiler wrote it, ``symbol`` if it is one itself; hi is
    None without an upper bound."""

    text: str
    symbol: str
    lo: int
    hi: int | None

    def __repr__(self) -> str:
        return f"{self.text}={self.lo}..{'' if self.hi is None else self.hi}"


@dataclass(frozen=True)
class TensorInfo:
    """One input or output: its ONNX name, numpy dtype and shape (ints and Extents).  ``default``:
    it may be left out of a call; ``text``: it holds strings, as places in the bundle's table;
    ``chars``: strings, as bytes along the last dimension; ``counts``: it says how many elements
    there are of these (output, axis); ``alias``: of an input and an output that lie in one
    buffer, the place of the other; -1 for others."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | Extent, ...]
    default: bool = False
    text: bool = False
    counts: tuple[tuple[str, int], ...] = ()
    alias: int = -1
    chars: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def tensor_infos(manifest: Manifest) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """(inputs, outputs) of a manifest as tuples of TensorInfo."""
    return tuple(map(_info, manifest["inputs"])), tuple(map(_info, manifest["outputs"]))


def _info(entry: dict[str, Any]) -> TensorInfo:
    shape = tuple(d if isinstance(d, int) else Extent(d["text"], d["symbol"], d["lo"], d["hi"])
                  for d in entry["shape"])
    dtype = stored_dtype(entry.get("stored", "")) or DTYPES[entry["dtype"]].numpy
    return TensorInfo(entry["onnx"], dtype, shape, entry.get("default", False),
                      entry.get("stored") == TEXT,
                      tuple((o, a) for o, a in entry.get("counts", ())),
                      entry.get("alias", -1), entry.get("stored") == CHARS)


Run = Callable[[Sequence[Array | None]], dict[str, Array]]


def called(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], manifest: Manifest,
           arrays: Sequence[Array | None], run: Run) -> dict[str, Any]:
    """``run(arrays)``, its outputs by name as a caller wants them: with strings, of an output with
    room for more the elements that there are, sequences as lists."""
    found = _with_texts(inputs, outputs, manifest.get("texts", ()), arrays, run)
    for info in outputs:
        if info.counts:
            count = int(found.pop(info.name))
            for name, axis in info.counts:
                found[name] = found[name][(slice(None),) * axis + (slice(0, count),)]
    return put_together(parts_of(manifest, "outputs"), found)


def _with_texts(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], table: Sequence[str],
                arrays: Sequence[Array | None], run: Run) -> dict[str, Array]:
    """``run(arrays)``, its outputs by name: strings are given to it as their places in the table of
    texts (-1, -2, .. of those that are not in it), and places come back as strings ("" of a place
    that is none)."""
    arrays = [_bytes_of(i, a) for i, a in zip(inputs, arrays)]
    made = {t.name for t in outputs if t.chars}
    if made:
        found = _with_texts(inputs, [replace(t, chars=False) for t in outputs], table, arrays, run)
        return {n: strings_of(a) if n in made else a for n, a in found.items()}
    if not any(t.text for t in (*inputs, *outputs)):
        return run(arrays)
    places = _Places(zip(table, range(len(table))))

    def placed(info: TensorInfo, array: Array | None) -> Array | None:
        if array is None or not info.text or array.dtype.kind not in "UOST":
            return array
        flat = array.reshape(-1).tolist()
        if not {str}.issuperset(map(type, flat)):
            flat = [t.decode() if isinstance(t, bytes) else str(t) for t in flat]
        return np.fromiter(map(places.__getitem__, flat), np.int64, len(flat)).reshape(array.shape)
    found = run([placed(i, a) for i, a in zip(inputs, arrays)])
    named = {i.name for i in outputs if i.text}
    if not named:
        return found
    every = np.array([*table, "", *reversed(places.others)], object)
    return {n: np.asarray(every[np.where(a < -len(places.others), len(table), a)], object)
            if n in named else a for n, a in found.items()}


class _Places(dict[str, int]):
    """The places of strings: -1, -2, .. of ``others``, which are not in the table."""

    def __init__(self, table: Iterable[tuple[str, int]]) -> None:
        super().__init__(table)
        self.others: list[str] = []

    def __missing__(self, text: str) -> int:
        self.others.append(text)
        self[text] = -len(self.others)
        return self[text]


def _bytes_of(info: TensorInfo, array: Array | None) -> Array | None:
    """Strings as their bytes, as many of each as the longest one has."""
    if array is None or not info.chars or array.dtype.kind not in "UOST":
        return array
    codes = [t if isinstance(t, bytes) else str(t).encode() for t in array.reshape(-1).tolist()]
    if any(b"\0" in c for c in codes):
        raise ValueError(f"input {info.name}: a string has a zero character, which ends it in C")
    last = info.shape[-1]
    width = last if isinstance(last, int) else max([last.lo, *map(len, codes)])
    if any(len(c) > width for c in codes):
        raise ValueError(f"input {info.name}: a string has {max(map(len, codes))} bytes, the "
                         f"bundle is for {width}")
    held = b"".join(c.ljust(width, b"\0") for c in codes)
    return np.frombuffer(held, np.uint8).reshape(*array.shape, width)


def strings_of(array: Array) -> Array:
    """Bytes along the last dimension as strings."""
    flat = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    out = np.empty(len(flat), object)
    out[:] = [row.tobytes().split(b"\0", 1)[0].decode("utf-8", "replace") for row in flat]
    return out.reshape(array.shape[:-1])


# names of the package ml_dtypes; an element of its integers lies in the lowest bits of a byte
_NAMES = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz",
          "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu",
          "f4e2m1": "float4_e2m1fn", "i4": "int4", "u4": "uint4", "i2": "int2", "u2": "uint2"}


def stored_dtype(stored: str) -> np.dtype[Any] | None:
    """The numpy dtype of a type that is stored only; None where ml_dtypes, which the onnx package
    brings, does not have it: its tensors are then arrays of bits."""
    try:
        types = import_module("ml_dtypes")
    except ImportError:
        return None
    found = getattr(types, _NAMES.get(stored, ""), None)
    return None if found is None else np.dtype(found)


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
    feeds = taken_apart(name, parts_of(manifest, "inputs"), feeds)
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


def symbol_values(name: str, inputs: Sequence[TensorInfo], arrays: Sequence[Array | None],
                  given: Mapping[str, int] | None = None) -> dict[str, int]:
    """{symbol: value} from the arrays' shapes, beside those that are ``given``.  ValueError for a
    wrong dtype, rank or extent."""
    values = {n: operator.index(v) for n, v in (given or {}).items()}
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

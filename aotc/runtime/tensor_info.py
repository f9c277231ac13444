"""The tensors of a bundle, as its manifest describes them."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import CHARS, DTYPES, TEXT


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
    buffer, the place of the other; -1 for others; ``scale``, ``zero``: an element
    ``q`` of 8 bits stands for ``(q - zero) * scale``; None where elements are what they are."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | Extent, ...]
    default: bool = False
    text: bool = False
    counts: tuple[tuple[str, int], ...] = ()
    alias: int = -1
    chars: bool = False
    scale: float | None = None
    zero: int = 0

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
                      entry.get("alias", -1), entry.get("stored") == CHARS,
                      entry.get("scale"), entry.get("zero", 0))


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

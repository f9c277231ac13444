"""Strings of a call: a bundle computes with their places in its table of texts, or with their
bytes along a last dimension."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from aotc.ir.dtypes import Array
from aotc.runtime.tensor_info import TensorInfo

Run = Callable[[Sequence[Array | None]], dict[str, Array]]


class Texts:
    """The table of a bundle: ``texts`` in the order of their places, ``places`` of each."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts, self.places = tuple(texts), {t: i for i, t in enumerate(texts)}

    def called(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo],
               arrays: Sequence[Array | None], run: Run) -> dict[str, Array]:
        """``run(arrays)``, its outputs by name: strings are given to it as their places in the
        table (-1, -2, .. of those that are not in it), and places come back as strings ("" of a
        place that is none)."""
        if any(t.chars for t in inputs):
            arrays = [_bytes_of(i, a) for i, a in zip(inputs, arrays)]
        made = {t.name for t in outputs if t.chars}
        if made:
            plain = [replace(t, chars=False) for t in outputs]
            found = self.called(inputs, plain, arrays, run)
            return {n: strings_of(a) if n in made else a for n, a in found.items()}
        named = {t.name for t in outputs if t.text}
        others: dict[str, int] = {}  # texts that are not in the table, and their places
        found = run([self._placed(a, others) if i.text and a is not None else a
                     for i, a in zip(inputs, arrays)])
        if not named:
            return found
        every = np.array([*self.texts, "", *reversed(others)], object)
        return {n: np.asarray(every[np.where(a < -len(others), len(self.texts), a)], object)
                if n in named else a for n, a in found.items()}

    def _placed(self, array: Array, others: dict[str, int]) -> Array:
        """The places of strings; those that are not in the table join ``others``."""
        if array.dtype.kind not in "UOST":
            return array
        flat = array.reshape(-1).tolist()
        if not {str}.issuperset(map(type, flat)):
            flat = [t.decode() if isinstance(t, bytes) else str(t) for t in flat]
        try:
            found = np.fromiter(map(self.places.__getitem__, flat), np.int64, len(flat))
        except KeyError:
            found = np.array([p if (p := self.places.get(t)) is not None else
                              others.setdefault(t, -1 - len(others)) for t in flat], np.int64)
        return found.reshape(array.shape)


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

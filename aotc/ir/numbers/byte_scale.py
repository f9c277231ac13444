"""What the numbers of an 8-bit input or output stand for."""

from dataclasses import dataclass

import numpy as np

from aotc.ir.dtypes import DTYPES, Array


@dataclass(frozen=True)
class ByteScale:
    """``(q - zero) * scale`` of a number ``q`` of ``dtype`` (u8 or i8), which the model has as a
    float of the dtype ``real``."""

    dtype: str
    scale: float
    zero: int
    real: str

    def __str__(self) -> str:
        return f"{self.real} {self.factor} * (q - {self.zero})"

    @property
    def factor(self) -> str:
        """The scale in as many digits as an f32 has, with a point or an exponent."""
        return str(np.float32(self.scale))

    def to_floats(self, array: Array) -> Array:
        """What 8-bit numbers stand for, rounded as the model does."""
        real = DTYPES[self.real].numpy
        found: Array = (array.astype(np.int32) - self.zero).astype(real) * real.type(self.scale)
        return found

    def to_bytes(self, array: Array) -> Array:
        """Floats as 8-bit numbers, rounded and cut off as the model does."""
        dtype = DTYPES[self.dtype].numpy
        ends = np.iinfo(dtype)
        steps = np.rint(array.astype(np.float32) / np.float32(self.scale)) + np.float32(self.zero)
        found: Array = np.clip(steps, ends.min, ends.max).astype(dtype)
        return found

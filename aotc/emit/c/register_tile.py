"""What the templates of register tiles say of operands and places."""

from dataclasses import dataclass
from typing import Any

from aotc.ir.category import Dtypes
from aotc.ir.dtypes import DTYPES
from aotc.ir.tile_statements import dot_step
from aotc.target.micro_kernels import TILE_STEPS, operands

# what micro-kernels call the steps of a sum, by the neighbours that one takes
COUNTED = {1: "kc", 2: "pairs", 4: "fours"}
# of a matrix tile: rows, and columns; bytes of a column in a step of the sum; of a cache line
SIDE, STEP_BYTES, LINE = 16, 64, 64


@dataclass(frozen=True)
class Elements:
    """How the columns of a product are stored: their C type, the function that loads a vector, what
    the name of a micro-kernel ends in.  as_stored: they are multiplied as they are."""

    ctype: str
    load: str
    suffix: str = ""
    as_stored: bool = True

    @classmethod
    def of(cls, dtype: str) -> "Elements":
        """The Elements of a dtype, f32 or f16."""
        return cls("uint16_t", "aotc_half_load", "_half", False) if dtype == "f16" else cls(
            "float", "aotc_load")


@dataclass(frozen=True)
class Integers:
    """How a micro-kernel multiplies rows of integers by grouped weights: C types of their elements
    and of the numbers of columns, what the names of its functions begin with, the C function that
    expands columns; the factor that an element of ``a`` stands for, in words of C."""

    rows: str
    numbers: str
    call: str
    expand: str
    factor: str


# by the dtype of rows
INTEGERS = {
    "u8": Integers("uint8_t", "int8_t", "aotc_dot", "aotc_expand_bytes", "(a[i][k] - 128)"),
    "i16": Integers("int16_t", "int16_t", "aotc_words", "aotc_expand_words", "a[i][k]")}


@dataclass(frozen=True)
class RegisterTileText:
    """The sums of ``mr`` rows by ``nv`` vectors of ``lanes`` columns.  element: C text of that of
    row ``i`` at a step ``k0`` of the sum; rows: of the pointers that it calls ``a_rows``, inside
    the loop over taps; reread: vectors of columns, the last ones, for which no register is left:
    every multiplication reads them again."""

    mr: int
    nv: int
    lanes: int
    element: str = ""
    rows: tuple[str, ...] = ()
    reread: int = 0

    @property
    def held(self) -> int:
        """Vectors of columns that stand in registers."""
        return self.nv - self.reread


@dataclass(frozen=True)
class MatrixTiles:
    """A register tile on matrix tiles of 16 x 16: ``blocks`` of 16 rows; ``both``: two of them are
    multiplied at a time; ``sliced``: in slices of the sum of ``slice`` steps; elements of ``acc``
    where the ``sums`` of each matrix tile begin; bytes of a panel that are fetched ahead for every
    row (``ahead``), whose ``lines`` begin so many bytes apart."""

    blocks: int
    both: bool
    sliced: bool
    slice: int
    sums: tuple[int, ...]
    ahead: int
    lines: tuple[int, ...]

    @classmethod
    def of(cls, mr: int, nr: int) -> "MatrixTiles":
        """The MatrixTiles of ``mr`` rows by ``nr`` columns, two matrix tiles."""
        both, fetched = mr >= 2 * SIDE, nr * STEP_BYTES
        return cls(mr // SIDE, both, mr > 2 * SIDE, TILE_STEPS, tuple(
            i * SIDE * nr + j * SIDE for i in range(1 + both) for j in range(2)),
            fetched // mr, tuple(range(0, 2 * SIDE * fetched // mr, LINE)))


def byte_words(rows: str, moved: bool) -> dict[str, Any]:
    """What the template of products of bytes says of rows of a dtype, u8 or i8: their C type, what
    the names of its functions begin with; moved: the instruction takes rows of the other one."""
    return {"rows": DTYPES[rows].c, "moved": moved,
            "call": "aotc_sdot" if (rows == "i8") != moved else "aotc_dot"}


def tile_words(mr: int, nr: int, dtypes: Dtypes) -> dict[str, Any]:
    """What the template of matrix tiles says of products of ``dtypes``: where its tiles lie, C
    types, the macro that multiplies, what groups of 4 bytes are called."""
    rows, columns, sums = (DTYPES[d].c for d in dtypes)
    return {"tiles": MatrixTiles.of(mr, nr), "rows": rows, "columns": columns, "sums": sums,
            "multiply": f"AOTC_TILE_{operands(dtypes).upper()}",
            "counted": COUNTED[dot_step(dtypes.a)]}

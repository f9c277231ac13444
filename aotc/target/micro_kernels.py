"""The usual rows of targets on vectors, by what differs between them: the instruction set that ends
their names, lanes, tiles, element types."""

from aotc.ir.category import Dtypes
from aotc.ir.dtypes import DTYPES
from aotc.target.kernel_rows import GroupedWeights, KernelRow, NestRow, ProductRow, RegisterTile

WINDOW_BLOCK = 4  # neighbouring outputs of a sliding window computed together, sharing loads
EXCHANGE = 16  # rows and columns of a block that is transposed in registers: a cache line each
LANE_NESTS = ("map", "move", "reduction", "window")  # categories of nests that have lanes
CODES = ("i8", "i4")  # of grouped weights: what rows that expand them take


def contraction(suffix: str, lanes: int, mr: int, nv: int,
                load_cost: float | None = None) -> ProductRow:
    """Contraction row of f32: an MR x (NV*lanes) register tile over full K.  load_cost: where that
    is not ``Tuning.load_cost``."""
    tile = RegisterTile(mr, nv, lanes)
    return ProductRow(f"contraction_f32_{tile}__{suffix}", "contraction", "f32", ("f32",), "f32",
                      tile, "contraction.c.j2", load_cost=load_cost)


def unit_product(suffix: str, lanes: int, rows: int, columns: int, rate: float,
                 near: str) -> ProductRow:
    """Contraction row of the unit SUFFIX, which multiplies tiles of ROWS x COLUMNS, of f32 or f16,
    by itself.  rate: its flops, in those of the vectors beside it; near: the memory that its
    operands have to be in."""
    tile = RegisterTile(rows, columns // lanes, lanes)
    return ProductRow(f"contraction_f32_{tile}__{suffix}", "contraction", "f32", ("f32",), "f32",
                      tile, rate=rate, unit=suffix, near=near)


MOVED = "dot_moved.c.j2"  # the template of 8-bit rows whose instruction takes the other rows


def operands(dtypes: Dtypes) -> str:
    """What names say of the operands of narrow products: ``u8s8``, ``s8s8``, ``bf16``."""
    a, b = (d if d == "bf16" else d.replace("i", "s") for d in (dtypes.a, dtypes.b))
    return a if a == b == "bf16" else a + b


def dot(suffix: str, lanes: int, mr: int, nv: int, template: str = "dot.c.j2",
        rows: str = "u8", rate: float = 1.0) -> ProductRow:
    """Row of 8-bit products, of ``rows`` u8 or i8: an MR x (NV*lanes) tile of i32 sums over full
    K.  rate: products in the time of one in f32."""
    tile = RegisterTile(mr, nv, lanes)
    name = f"dot_{operands(Dtypes(rows, 'i8', 'i32'))}_{tile}__{suffix}"
    return ProductRow(name, "dot", rows, ("i8",), "i32", tile, template, rate=rate)


BYTE_BLOCKS = "dot_byte_blocks.c.j2"  # of 8-bit rows by an instruction for blocks of 2x2 sums


def dot_byte_blocks(suffix: str, lanes: int, mr: int, nv: int, rows: str,
                    rate: float) -> ProductRow:
    """Row of 8-bit products by an instruction for blocks of two rows by two columns, of which a
    vector of sums holds one; MR is even."""
    return dot(suffix, lanes, mr, nv, BYTE_BLOCKS, rows, rate)


def dot_pairs(suffix: str, lanes: int, mr: int, nv: int,
              rate: float | None = None) -> ProductRow:
    """Row of bf16 products, two per lane and step: an MR x (NV*lanes) tile of f32 sums over full
    K.  rate: where that is not ``Tuning.narrow_rate``."""
    return _of_bf16(suffix, RegisterTile(mr, nv, lanes), "dot_pairs.c.j2", rate)


def dot_blocks(suffix: str, lanes: int, mr: int, nv: int) -> ProductRow:
    """The same by an instruction for blocks of two rows by two columns, of which a vector of sums
    holds one; MR is even."""
    return _of_bf16(suffix, RegisterTile(mr, nv, lanes), "dot_blocks.c.j2", None)


def _of_bf16(suffix: str, tile: RegisterTile, template: str, rate: float | None) -> ProductRow:
    return ProductRow(f"dot_bf16_{tile}__{suffix}", "dot", "bf16", ("bf16",), "f32", tile, template,
                      rate=rate)


TILE = 16  # rows of a matrix tile, and columns of one of sums
TILE_STEPS = 8  # steps of 64 bytes of a sum whose part of a panel, 16 KB, stays in the first cache
TILES = "dot_tiles.c.j2"  # the template of rows on matrix tiles


def dot_tiles(suffix: str, mr: int, dtypes: Dtypes,
              rate: float | None = None) -> ProductRow:
    """Row of products on matrix tiles: MR (one tile, two, or four in slices of the sum) by two
    tiles of sums over full K.  rate: where that is not ``Tuning.narrow_rate``."""
    tile, (a, b, sums) = RegisterTile(mr, 2, TILE), dtypes
    return ProductRow(f"dot_{operands(dtypes)}_{tile}__{suffix}", "dot", a, (b,), sums, tile, TILES,
                      rate=rate, load_cost=4.0 * TILE / mr, even_rows=TILE)


def dot_grouped(suffix: str, lanes: int, mr: int, nv: int) -> ProductRow:
    """Row of f32 by weights of 8 or 4 bits with a scale per group: an MR x (NV*lanes) tile of f32
    sums over full K, the weights expanded in registers."""
    tile = RegisterTile(mr, nv, lanes)
    return ProductRow(f"dot_grouped_{tile}__{suffix}", "dot", "f32", CODES, "f32", tile,
                      "dot_grouped.c.j2", grouped=GroupedWeights(expand=1.4))


def dot_expanded(suffix: str, lanes: int, mr: int, nv: int) -> ProductRow:
    """The same with the weights of a panel expanded to f32 in scratch, once for all rows of a work
    item, where the micro-kernels of f32 read them."""
    tile = RegisterTile(mr, nv, lanes)
    return ProductRow(f"dot_expanded_{tile}__{suffix}", "dot", "f32", CODES, "f32", tile,
                      "contraction.c.j2", grouped=GroupedWeights(expand=3.0, once=True))


# by the dtype of rows: what the names of their rows say, and multiply-adds that expanding a weight
# for them takes as long as
_INTEGERS = {"u8": ("bytes", 1.0), "i16": ("words", 1.2)}


def dot_integers(suffix: str, lanes: int, mr: int, nv: int, rows: str, rate: float) -> ProductRow:
    """Row of rows of integers, u8 or i16, by grouped weights, summed group by group in integers:
    the weights of a panel are expanded to as many bits in scratch, once for all rows of a work
    item.  rate: products in the time of one in f32."""
    tile, (name, expand) = RegisterTile(mr, nv, lanes), _INTEGERS[rows]
    return ProductRow(f"dot_{name}_{tile}__{suffix}", "dot", rows, CODES, "f32", tile,
                      "dot_bytes.c.j2", rate=rate, grouped=GroupedWeights(expand, once=True))


DIGITS = "dot_digits.c.j2"  # the template of rows that multiply codes by digits of the other factor


def dot_digits(suffix: str, nv: int) -> ProductRow:
    """Row of f32 by grouped weights of 4 bits, for a single row, whose elements become integers of
    three signed bytes group by group: NV vectors of 16 columns.  An instruction takes four products
    of one of the three bytes."""
    tile = RegisterTile(1, nv, 16)
    return ProductRow(f"dot_grouped_{tile}__{suffix}", "dot", "f32", ("i4",), "f32", tile, DIGITS,
                      rate=4 / 3, grouped=GroupedWeights(steps=8))


def exchange(suffix: str) -> NestRow:
    """Row of moves that exchange the innermost axis: blocks are transposed in registers."""
    return NestRow(f"move_f32_exchange__{suffix}", "move", ("f32",), EXCHANGE)


def transform(suffix: str, stored: tuple[str, ...] = ("f32",)) -> NestRow:
    """Row of small constant matrices that are written out (Winograd forms)."""
    return NestRow(f"transform_f32__{suffix}", "transform", stored)


def nests(suffix: str, stored: tuple[str, ...] = ("f32",),
          window_block: int = WINDOW_BLOCK) -> tuple[KernelRow, ...]:
    """Rows of the categories that are vector loop nests, and the plain nest that is always
    legal.  stored: dtypes that the vector nests load and store (they compute in f32).
    window_block: outputs of a window that one more row computes together (1: there is none)."""
    rows = [NestRow(f"{c}_f32__{suffix}", c, stored) for c in LANE_NESTS]
    if window_block > 1:
        rows.insert(3, NestRow(f"window_f32_{window_block}x__{suffix}", "window", stored,
                               window_block))
    return (*rows, NestRow("loops", "loops"))


def thread_nests(suffix: str) -> tuple[KernelRow, ...]:
    """The same rows where lanes are threads, which compute and store any dtype."""
    return (*(NestRow(f"{c}__{suffix}", c, tuple(DTYPES), scalar=True) for c in LANE_NESTS),
            NestRow("loops", "loops"))


__all__ = ["BYTE_BLOCKS", "CODES", "DIGITS", "MOVED", "TILES", "TILE_STEPS", "contraction", "dot",
           "dot_blocks", "dot_byte_blocks", "dot_digits", "dot_expanded", "dot_grouped",
           "dot_integers", "dot_pairs", "dot_tiles", "exchange", "nests", "operands",
           "thread_nests", "transform", "unit_product"]

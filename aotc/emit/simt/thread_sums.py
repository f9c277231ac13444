"""Which sums of a product's tile each thread of a block has in its registers."""

from dataclasses import dataclass

from aotc.ir.dtypes import DTYPES
from aotc.target.kernel_rows import ProductRow

# instruction of tensor cores that multiplies 32 bytes of the sum, by types of sums and of A
MMA = {"f32f16": "m16n8k16_f16f32", "f32bf16": "m16n8k16_bf16f32", "i32u8": "m16n8k32_u8s8",
       "i32i8": "m16n8k32_s8s8"}
_CODES_COLUMN = "wn + j / 8 * 32 + lane % 4 * 8 + j % 8"


@dataclass(frozen=True)
class ThreadSums:
    """numbers: (name, C text) of constants, names: C lines of what a thread is.  extents: of its
    registers.  rows, columns: how many it has, and the C text of the place in the tile of number
    i, or j; element: of the sum of both, ``{j}`` being the second.  owner: C condition that a
    thread has sums to store, busy: that it has some to make ("": all threads do)."""

    numbers: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    extents: tuple[str, ...]
    rows: tuple[str, str]
    columns: tuple[str, str]
    element: str
    owner: str = ""
    busy: str = ""


def thread_sums(row: ProductRow, threads: int) -> ThreadSums:
    """What each of ``threads`` has on a row."""
    assert row.shared is not None, row.name
    return _of_threads(row, threads) if row.per_thread else _of_warps(row, threads)


def _of_threads(row: ProductRow, threads: int) -> ThreadSums:
    """TM x TN sums a thread, rows and fours of columns evenly apart; TEAMS of threads."""
    assert row.shared is not None, row.name
    (tm, tn), teams = row.shared.thread, row.shared.teams
    most = row.tile.mr // tm * (row.tile.nr // tn) * teams
    numbers = [("TM", str(tm)), ("TN", str(tn)), ("OWNERS", "MR / TM * (NR / TN)")]
    if teams > 1:
        numbers += [("TEAMS", str(teams)), ("SHARE", "BK / TEAMS")]
    apart = teams > 1 or most < threads
    team = ", team = (int32_t)threadIdx.x / OWNERS" if apart else ""
    names = (f"const int32_t owner = (int32_t)threadIdx.x % OWNERS{team};",
             "const int32_t tx = owner % (NR / TN), ty = owner / (NR / TN);")
    busy = f"team < {'TEAMS' if teams > 1 else '1'}" if most < threads else ""
    return ThreadSums(
        tuple(numbers), names, ("TM", "TN"), ("TM", "ty + i * (MR / TM)"),
        ("TN", "j / 4 * (NR * 4 / TN) + tx * 4 + j % 4"), "[i][{j}]",
        "team == 0" if apart else "", busy)


def _of_warps(row: ProductRow, threads: int) -> ThreadSums:
    """WM x WN sums a warp, as the instructions of tensor cores have them: tiles of 16 x 8, of which
    a thread has two neighbours in two rows.  CHUNK: elements of an operand in 16 bytes."""
    assert row.shared is not None, row.name
    (wm, wn), chunk = row.shared.warp, str(16 // DTYPES[row.stored].size)
    names = ("const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;",
             "const int32_t wm = warp / (NR / WN) * WM, wn = warp % (NR / WN) * WN;")
    idle = "wm < MR" if threads > row.threads else ""
    if row.in_codes:
        return _of_codes(chunk, row.shared.warp, names, idle)
    return ThreadSums(
        (("WM", str(wm)), ("WN", str(wn)), ("CHUNK", chunk)), names, ("WM / 16", "WN / 8", "4"),
        ("WM / 8", "wm + i * 8 + lane / 4"), ("WN / 4", "wn + j / 2 * 8 + lane % 4 * 2 + j % 2"),
        "[i / 2][{j} / 2][i % 2 * 2 + {j} % 2]", idle, idle)


def _of_codes(chunk: str, warp: tuple[int, int], names: tuple[str, ...], idle: str) -> ThreadSums:
    """The same of columns as lanes read the codes of weights: neighbours are of four tiles, so that
    a thread has eight of every 32."""
    wm, wn = warp
    return ThreadSums(
        (("WM", str(wm)), ("WN", str(wn)), ("CHUNK", chunk)), names, ("WM / 16", "WN / 8", "4"),
        ("WM / 8", "wm + i * 8 + lane / 4"), ("WN / 4", _CODES_COLUMN),
        "[i / 2][{j} / 8 * 4 + {j} % 4][i % 2 * 2 + {j} / 4 % 2]", idle, idle)


def neighbour_columns(row: ProductRow, width: int) -> str:
    """C text of the place in the tile of column number j, a multiple of ``width``, of a thread of a
    warp that has so many neighbours."""
    return turned_columns(width) if row.turns else _CODES_COLUMN


def turned_columns(width: int) -> str:
    """The same once threads have exchanged sums: it has so many neighbours of a tile of 8, of the
    four that a quad has, or of two."""
    of = "lane % 4 * 8" if width == 8 else "lane % 2 * 8 + lane / 2 % 2 * 4"
    return f"wn + j * 4 + {of}"


__all__ = ["MMA", "ThreadSums", "neighbour_columns", "thread_sums"]

"""What templates of few rows are rendered with: C texts of sizes, and the functions that read and
multiply elements of their types."""

from typing import Any

from aotc.emit.text.cexpr import c_index
from aotc.ir.block_statements import FewRowSums
from aotc.ir.dtypes import BF16, DTYPES, HALF, is_int
from aotc.ir.expr import Const
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.simplify import simplify
from aotc.target.kernel_rows import ProductRow

# by dtype of B: the type of 16 bytes of it, what reads those, what adds their products to sums
_COLUMNS = {"f32": ("aotc_f32x4", "aotc_load4", "aotc_madd4"),
            HALF: ("aotc_u32x4", "aotc_load16", "aotc_madd_halves"),
            BF16: ("aotc_u32x4", "aotc_load16", "aotc_madd_bf16s"),
            "i8": ("aotc_u32x4", "aotc_load16", "aotc_madd_bytes")}
_SIGNED = "aotc_madd_signed_bytes"  # by those of A that are signed, too
# by dtype of A: the type of four terms; what reads them where they lie at a multiple of their size,
# and where they do not; what reads one at an address
_ROWS = {"f32": ("aotc_f32x4", "aotc_load4", "aotc_take4", "*({})"),
         HALF: ("aotc_f32x4", "aotc_load4_half", "aotc_take4_half", "aotc_f16_to_f32(*({}))"),
         BF16: ("aotc_f32x4", "aotc_load4_bf16", "aotc_take4_bf16", "aotc_bf16_to_f32(*({}))"),
         **dict.fromkeys(("u8", "i8"), (
             "aotc_u32x4", "aotc_load16", "aotc_take16", "aotc_take_word({})"))}


def few_rows_names(s: FewRowSums, row: ProductRow, threads: int) -> dict[str, Any]:
    """{name in a template: value} of a statement on a row, in a block of so many threads."""
    assert row.shared is not None, row.name
    step, busy = s.step, threads > row.threads
    terms, live, otherwise = simplify(s.terms // step), "", ""
    rules = ["warp < TEAMS"] * busy
    if s.columns is not None:
        rules.append(f"tx * TN < {c_index(s.columns, 11)}")
    vector, read, apart, one = _ROWS[s.dtypes.a]
    if s.rows is not None and s.mr > 1:
        live, otherwise = f"i < {c_index(s.rows, 11)} ? ", f" : {vector}{{}}"
    at = "" if s.mr == 1 else f"i * {c_index(s.a.strides[0], 14)} + "
    if s.grouping is not None:
        terms = simplify(terms // _piece(s.grouping))
    end = c_index(terms, 4)
    k = f"k * {step}" if step > 1 else "k"
    stored = ["warp < TEAMS"] * busy + ["lane < NR"] * (
        s.nr < row.threads // row.shared.teams)
    zero = "0" if is_int(s.dtypes.sums) else "0.0f"
    found = {"sum": DTYPES[s.dtypes.sums].c, "zero": zero, "busy": busy,
             "rule": " && ".join(stored), "terms": vector, "row": at, "k": k,
             "live": live, "otherwise": otherwise,
             "end": f"{' && '.join(rules)} ? {end} : 0" if rules else end,
             "read": read if s.wide else apart, "one": one.format(f"a_first + ({at}{k})"),
             "tail": simplify(terms % 4) != Const(0), "pitch": c_index(s.b.strides[0], 14),
             "beside": f"(TN * {step})" if step > 1 else "TN"}
    if s.grouping is None:
        found["vector"], found["load"], found["madd"] = _COLUMNS[s.dtypes.b]
        if s.dtypes.a == "i8":
            found["madd"] = _SIGNED
        return found
    g, piece = s.grouping, _piece(s.grouping)
    # a single row's sums of a piece are multiplied by the scale, instead of each weight
    return found | {"g": g, "piece": piece, "pieces": g.size // piece, "scales": g.codes + g.zeros,
                    "late": s.mr == 1, "full": s.mr > 4, "rows": g.bits // 2}


def _piece(g: Grouping) -> int:
    """Terms whose codes are in 8 loads of a thread: rows of 16 bytes."""
    return 64 // g.bits


__all__ = ["few_rows_names"]

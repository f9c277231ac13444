"""Numbers that were fitted to machines or assumed of them: one ``Tuning`` per target.

Every field says what it is, its unit and where it comes from (``about``, ``unit``, ``origin`` of
its metadata: a measurement, a data sheet, what it is derived from, or that it is assumed and why;
``least`` and ``most``: the ends of its range).  What bounds an algorithm (the width of a beam, the
number of passes) is none.  A machine file may set any of them.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from math import inf, isfinite
from typing import Any

from aotc.ir.stage_choice import TEXTS


def _of(value: Any, about: str, unit: str, origin: str, least: float = 0, choice: str = "") -> Any:
    """A field; ``least``: what a machine file may set it to; ``choice``: of a Schedule that it
    becomes, which has a largest value.  Mappings of numbers are no part of a Tuning's hash."""
    notes = {"about": about, "unit": unit, "origin": origin, "least": least,
             "most": TEXTS[choice][-1] if choice else inf}
    if isinstance(value, dict):
        return field(default_factory=lambda: dict(value), hash=False, metadata=notes)
    return field(default=value, metadata=notes)


@dataclass(frozen=True)
class Tuning:
    """Lines and pages; the cost model; what is connected, tiled, sliced and transformed; how far
    ahead statements fetch and what they write out."""

    # ------------------------------------------------------------ lines and pages
    line: int = _of(64, "a cache line", "bytes", "data sheets of CPUs", 16)
    page: int = _of(4096, "what is fetched ahead as one stream and takes one entry of a TLB",
                    "bytes", "data sheets of CPUs: the smallest page", 64)

    # ------------------------------------------------------------ the cost model
    wave: float = _of(0.5, "part of the time that follows whole waves of work items; the rest "
                      "balances out", "share", "assumed: of the last wave half balances out where "
                      "workers take items from each other")
    other_flops: float = _of(
        0.75, "what an operation outside products takes", "flops of a product",
        "AVX-512: nests of eight models reach 285 G operations/s, micro-kernels 205 GFLOP/s; many "
        "additions are fused")
    resident_copies: float = _of(
        1.5, "a temp stays in a cache until it is read if so many of its size fit there", "copies",
        "2 MiB of L2: what was just written is read at 75 to 105 GB/s up to 1.2 MB, at 33 beyond")
    kept_lines: float = _of(
        1.5, "lines that rows end in are still there for the next panel of columns if they and "
        "their tiles take no more of the memory beside the registers", "times its usable part",
        "AVX-512: tiles whose lines were still in twice the usable L1 took 0.65 of the time of "
        "larger ones")
    op_cost: Mapping[str, int] = _of(
        {"exp": 30, "log": 30, "tanh": 40, "erf": 50, "sin": 30, "cos": 30, "pow": 60, "div": 16,
         "sqrt": 16}, "what operations take; those not named take 1", "additions",
        "nests of eight models on AVX-512, 3.5 ps an addition: exp 0.11 ns an element, erf 0.18, "
        "division 0.07")
    fold_load: int = _of(5, "a load of a vector, per point of a reduction", "additions",
                         "1700 kernels of 13 models on AVX-512: 10, of which traffic counts a part")
    window_load: int = _of(1, "the same in a window, whose neighbouring outputs share most of them",
                           "additions", "those kernels")
    vector_store: int = _of(12, "a store of a vector, with the loads of what it is made from",
                            "additions", "those kernels: 28, of which traffic counts a part")
    converted: int = _of(4, "an element of a vector of f16 that becomes f32, or the other way",
                         "additions", "AVX-512: Tanh of 64x1024 takes 1.7 us longer in f16, two "
                         "conversions an element; 1.0 M elements of mobilenet_v2, stored as f16 "
                         "and copied to f32, at most 25 us")
    across: int = _of(100, "the end of a sum over lanes, per output", "additions",
                      "those kernels: 145")
    apart: int = _of(60, "an element loaded or stored by itself", "additions",
                     "those kernels: 70 and 86")
    packed: int = _of(20, "an element of columns that every work item copies into panels",
                      "additions", "those kernels: 19, in L1")
    moved: int = _of(70, "an element that plain loops copy", "additions", "those kernels: 40 to 80")
    page_conflict: int = _of(500, "an element stored by itself where lanes lie whole pages apart: "
                             "they share the few lines that one place may be in", "additions",
                             "measured on AVX-512: 600")

    # ------------------------------------------------------------ what is connected
    merge_gain: float = _of(0.003, "what a merge must be predicted to save", "share of both parts",
                            "assumed: less than the cost is wrong by, so that it decides between "
                            "equals only")
    pressure: float = _of(1.0, "what storing a tensor costs others, whose tensors it drives out of "
                          "the caches", "times memory takes to move it", "derived: what is stored "
                          "drives out as many bytes, which come from memory once more")
    slack: float = _of(0.02, "the most that this counts: it decides between ways that take the "
                       "same time by themselves", "share of both parts", "assumed: what timings of "
                       "one kernel differ by on a quiet machine")
    stream_steps: int = _of(16, "steps of a sum that a product streams at a time, which sizes are "
                            "taken with", "steps", "derived: a line of f32 along the sum", 1)
    alike: float = _of(0.005, "tiles whose times differ by less are alike; the one in fewer pages "
                       "is taken", "share", "assumed: a quarter of ``slack``")
    share_bytes: int = _of(4096, "scratch that buffers must save by taking each other's place: "
                           "less is not worth a slab that is harder to read", "bytes",
                           "derived: a page; memory is given by whole ones")

    # ------------------------------------------------------------ tiles, slices and orders
    walk_states: int = _of(0, "states that may have been looked at for a tile before one more "
                           "random walk begins; 0: it grows only", "states", "the published "
                           "operators on presets of CPUs: no walk finds what growth does not")
    stored_pages: int = _of(256, "pages that rows of one panel are stored to at most: the next "
                            "panel comes back to all of them", "pages",
                            "data sheets of CPUs: a TLB holds a thousand or two", 1)
    streamed_pages: int = _of(32, "the same of a short sum, which is as fast as its stores",
                              "pages", "AVX-512: a CPU fetches ahead for stores on a few dozen", 1)
    packed_rows: int = _of(1000, "rows that columns packed by a work item are for: packing is a "
                           "hundredth of their products", "rows", "``packed``: additions of "
                           "packing an element by those of two hundredths of a product", 1)
    expanded_rows: int = _of(256, "rows that grouped weights are expanded once for: beside the "
                             "products of so many that takes a hundredth", "rows",
                             "AVX-512: 3 multiply-adds a weight", 1)
    short_sum: int = _of(64, "a sum is short up to here", "terms", "assumed: 64 multiply-adds for "
                         "each element of a panel that is stored")
    symbols_grow: int = _of(4, "rows of an axis that is whole though its extent is a symbol's: so "
                            "many the largest extent may make of those wanted", "times",
                            "assumed: four times the rows still fit the cache behind", 1)
    near_elements: int = _of(64, "between lanes: up to here neighbouring vectors write the same "
                             "lines", "elements", "assumed: four lines of f32, which stay until "
                             "the next vectors are written")
    same_order: float = _of(1.1, "orders of work items that fetch no more times the least bytes "
                            "are alike", "times", "assumed: a tenth of what is fetched is hidden "
                            "by the work beside it")
    slice_steps: int = _of(512, "longest slice of a sum: its sums are loaded and stored once per "
                           "so many steps", "steps", "AMD EPYC of 2022, 512x2048 by 2048 columns "
                           "on AVX-512: 256 steps take 0.99 of the time", 1)
    slice_in_place: int = _of(128, "the same where columns are read in place: their lines share "
                              "few sets of a cache", "steps", "AMD EPYC of 2022, 64x64 over 16384 "
                              "steps: with 64 steps 1.06 of the time, with 256 1.01", 1)
    slice_rows: int = _of(256, "rows of a work item: so often its part of the weights is used",
                          "rows", "derived: 512 steps of 256 rows are 512 KiB, half of a worker's "
                          "memory of 1 MiB", 1)
    slice_panels: int = _of(4, "panels of a work item at most, whose sums wait in scratch",
                            "panels", "derived: sums of 256 rows by four panels of 64 columns are "
                            "a quarter of such a memory; AMD EPYC of 2022: eight take 0.99 of the "
                            "time", 1)
    slice_gain: float = _of(
        0.9, "sums are sliced, or not, against what usually fits, if that takes less than this",
        "share of its time", "AMD EPYC of 2022, 512x2048 by 2048 and by 16 columns: what is "
        "predicted to take 0.95 to 0.97 takes 1.00 to 1.03")
    long_fold: float = _of(0.1, "a fold is long if a line of each of its steps takes more of a "
                           "worker's memory", "share", "assumed: lines of all steps beside the "
                           "rest of what a worker holds")
    window_taps: int = _of(8, "taps of a window's innermost loop that are written out at most",
                           "taps", "derived: the rows of windows of 7x7")
    exchange_least: int = _of(4, "neighbours on either side from which on a transposition moves "
                              "blocks", "elements", "derived: four by four, the smallest block "
                              "that vectors of 128 bits transpose", 2)
    turned_rows: int = _of(48, "rows that results across the lanes are stored by: whole lines, and "
                           "scratch that stays beside the registers", "rows", "derived: three "
                           "lines of f32; of 64 columns 12 KiB, half of what tiles fill of 32", 1)
    lines_across: int = _of(
        7, "lines that lie a free number of elements apart and are stored side by side: fewer than "
        "a set of a near cache holds, of which loads have one", "lines",
        "AVX-512, 8 ways: planes of 256x384 take 1.6 ms by 7, 2.7 by 8, 8.0 by 16; of 256x385, "
        "in no common set, 1.6, 2.4 and 1.9", 1)

    # ------------------------------------------------------------ which axis runs over lanes
    lane_points: int = _of(4, "an axis with fewer points runs over no lanes", "points",
                           "derived: lanes of the shortest vectors", 1)
    lane_base: float = _of(0.5, "what an axis has before its accesses are looked at, in units of a "
                           "load of neighbours", "score", "assumed: less than a load of "
                           "neighbours, so that it decides between axes without one")
    lane_long: int = _of(64, "up to here more points count, together a tenth", "points",
                         "derived: four vectors of AVX-512", 1)
    lane_strided: float = _of(0.25, "a load at one of the target's strides", "score",
                              "derived: two loads and two shuffles bring every second element")
    lane_gather: float = _of(1.5, "what a load of elements that lie apart costs", "score",
                             "assumed: one such load outweighs one of neighbours")
    lane_folded: float = _of(2.0, "how often a load of a fold counts, beside one of its results",
                             "times", "assumed: loads of a fold come with every step, those of its "
                             "results once")
    lane_stored: float = _of(0.5, "a store of neighbours", "score", "data sheets of CPUs: two "
                             "loads a cycle, one store")
    lane_across: float = _of(1.0, "what a store of elements that lie apart costs", "score",
                             "assumed: one such store outweighs one of neighbours")
    lane_alone: int = _of(256, "terms that a thread folds alone where outputs are fewer than "
                          "threads", "terms", "assumed: a warp folds eight a thread of them", 1)
    thread_terms: int = _of(8, "terms of a fold that a thread has at least where several share one",
                            "terms", "derived: two steps of four loads on their way", 1)
    lane_vectors: int = _of(4, "columns of a product beyond so many vectors are no reason to take "
                            "their axis", "vectors", "derived: the columns of the usual register "
                            "tiles", 1)
    lane_cut: int = _of(64, "a tile of the lanes' axis is a multiple", "elements",
                        "derived: four vectors of AVX-512, which shorter ones divide", 1)
    load_cost: float = _of(0.3, "a load of an operand in a register tile, where its row does not "
                           "say", "multiply-adds", "assumed: loads are as many a cycle as "
                           "multiply-adds; two thirds of one hide behind those")

    chains: int = _of(8, "sums in registers that keep the multipliers busy", "sums", "data sheets "
                      "of CPUs: a multiply-add takes four cycles, two begin in each; AVX-512: "
                      "tiles of 1x64, four sums, reach half of what 7x64 does", 1)

    # ------------------------------------------------------------ Winograd forms
    winograd_gain: float = _of(0.9, "a form must take less than this of the next simpler one",
                               "share of its time", "assumed: a form that saves less is not worth "
                               "its scratch and its rounding errors")
    winograd_transform: Mapping[int, int] = _of(
        {2: 13, 4: 27, 6: 67}, "an element of a transform, by outputs per tile", "additions",
        "assumed: fitted once to forms on AVX2 and AVX-512, the runs were not kept")
    winograd_spill: int = _of(
        8, "scratch of a form may go through the memory outside where its own is too small: at "
        "most so many times that one", "times",
        "AVX2: with 3, vgg16 and unet took 1.04 of their time, resnet3d18 0.98", 1)

    # ------------------------------------------------------------ what statements fetch and write
    fetch_sum: int = _of(64, "shortest sum before which what its epilogue touches is fetched",
                         "terms", "AVX2: with 16, nafnet, whose residuals follow such sums, takes "
                         "the same time")
    fetch_piece: int = _of(64, "longest piece of a pixel that is fetched rows ahead: of longer "
                           "ones the lines after the first are a stream", "f32 elements",
                           "assumed: after four lines hardware has seen a stream")
    fetch_rows: int = _of(16, "rows that such pieces are fetched ahead: two or three register "
                          "tiles", "rows", "AVX2: 4 groups of 16 channels, 10.7 ms to 6.5",
                          choice="fetch_rows")
    fetch_slowest: int = _of(2, "elements of the next panel per step of a sum, at least: a line is "
                             "fetched eight times by then", "f32 elements", "derived: 16 elements "
                             "of a line in eight steps", 1, "panel_step")
    fetch_tiles: int = _of(
        2, "register tiles that short rows of a product are fetched ahead", "tiles",
        "AVX-512: 128x128 pixels of 48 channels take 0.70 of their time, bsrn 0.965, nafnet 0.98; "
        "four are as fast", choice="fetch_tiles")
    fetch_row: int = _of(128, "a row is short up to here", "f32 elements",
                         "the same; rows of up to 768 are as fast")
    lookup_rows: int = _of(8, "rows that looked up places are fetched ahead", "rows",
                           "AVX2: 4 and 16 take dlrm 1.00 to 1.01 of its time", 1, "lookup_rows")
    lookup_lines: int = _of(16, "lines of such a row: of a longer one, the rest is a stream",
                            "lines", "assumed: after 1 KiB hardware has long seen a stream", 1,
                            "lookup_lines")
    window_ahead: int = _of(1024, "what a window's blocks are fetched ahead", "f32 elements",
                            "a page; AVX2: a depthwise 3x3 over 256x256x64 took 3.9 ms, 1.2 so",
                            choice="ahead")
    block_registers: int = _of(2, "registers of a vector value in a block of a window's outputs, "
                               "where vectors have any length", "registers", "derived: 8 of 32 for "
                               "the sums of four outputs, and as many for what they read", 1,
                               "block_registers")
    window_lines: int = _of(8, "lines that one vector of lanes of a block fetches at most", "lines",
                            "data sheets of CPUs: ten or more lines are on their way at once")
    columns_from: int = _of(32, "steps of a fold from which on vectors of columns stand side by "
                            "side", "steps", "AVX2: a mean over an image of 8 MB, channels last, "
                            "took 0.9 to 1.6 ms, 0.25 so", choice="columns_from")
    columns_most: int = _of(8, "such vectors at most: each needs a register", "vectors",
                            "half of the registers of AVX2", 2, "columns")
    epilogue_nodes: int = _of(24, "f32 nodes of an epilogue that is written out for every "
                              "accumulator, at most", "nodes", "derived: the 24 sums of a 6x64 "
                              "tile are then some 600 instructions")
    inline_sum: int = _of(
        256, "longest sum that is written where it is used; beside the multiply-adds of longer "
        "ones the way of their vectors through memory is less than one in a hundred instructions",
        "terms", "counted for a 6x64 tile; AVX-512: with all up to 512, mobilenet_v2 takes 1.02 of "
        "its time, bert_tiny, swin_tiny and resnet18 the same")
    stage_text: int = _of(5000, "the C of a stage: its loops, addresses and calls, and a statement "
                          "for each of its computes", "bytes", "counted: 49 kernels of resnet18 "
                          "and mobilenet_v2 with free images on AVX-512, 3 to 20 KB", 1)
    sum_text: int = _of(1200, "the C of a sum of a register tile that is written out where it is "
                        "used, with its epilogue", "bytes", "those kernels, when every sum had "
                        "lines of its own: 0.9 to 1.6 KB", 1)
    step_control: float = _of(
        0.1, "moving on to the next step of a sum, per row, where micro-kernels write out no more",
        "multiply-adds", "derived: a counter and a jump for the 24 multiply-adds of a 6x64 tile")
    spill: float = _of(4.0, "a sum that finds no register: each step stores and loads it",
                       "multiply-adds", "data sheets of CPUs: a load of what was just stored takes "
                       "four cycles or five")
    copied_run: int = _of(4, "bytes side by side that are worth a copy for 8-bit products", "bytes",
                          "derived: a lane; less is a single move", 1, "copied_run")
    narrow_columns: int = _of(16, "columns of a product whose operands are rounded where that is "
                              "asked for: with fewer, converting its rows is what takes the time",
                              "columns", "derived: a vector of AVX-512", 1)
    narrow_rate: float = _of(1.0, "what the rows of bf16 products reach; below 1, rounded numbers "
                             "are stored as f32 and multiplied so", "flops of a product",
                             "AMD EPYC of 2022: vdpbf16ps 2.0; without the instruction 0.9 to 1.0",
                             0.01)
    parts_gain: float = _of(0.85, "a fold in parts must take less than this of the whole one, "
                            "which starts no second kernel and may share one with others",
                            "share of its time", "assumed: what predictions tell apart")
    tile_rate: float = _of(0.8, "what a work item that is one register tile of a product reaches "
                           "alone on its worker, by as many threads as one has usually, but for "
                           "its loads", "of its flops", "NVIDIA H100, 32x32 tiles: 0.37 to 0.44 "
                           "with them", 0.01)
    unit_threads: int = _of(64, "threads that reach as much alone where warps hold tiles for units "
                            "that they share", "threads", "assumed: an instruction in two cycles "
                            "of a warp, 12.6 for 4096 multiply-adds", 1)
    load_shown: float = _of(0.5, "loads from a block's memory that take the place of "
                            "multiply-adds, where workers hold many tiles", "share of "
                            "``load_cost``", "NVIDIA H100, 2048x2048x1024 in tiles of 64x64, "
                            "32x64, 32x32 and, by twice the loads, 32x32: 0.62, 0.57, 0.46 "
                            "and 0.34 of the peak")
    narrow_depth: int = _of(8, "terms of the sums of such a product", "terms", "assumed: four "
                            "pairs of terms for every sum that is stored", 1)

    # ------------------------------------------------------------ what threads of a block share
    sector: int = _of(32, "what the memory outside a block's hands out at least", "bytes",
                      "data sheets of GPUs", 4)
    block_banks: int = _of(32, "words that a block's memory serves at once", "words",
                           "data sheets of GPUs", 1)
    access_cost: float = _of(4.0, "one access of a block's memory", "multiply-adds",
                             "as ``load_cost`` of rows, which was measured on an H100")
    sector_cost: float = _of(0.5, "a sector, which half a cycle brings", "accesses of a block's "
                             "memory", "data sheets of GPUs: 64 bytes a cycle")
    by_register: float = _of(2.0, "an element that comes by way of a register, is waited for and "
                             "stored", "accesses of a block's memory", "derived: a load into it "
                             "and a store from it, an access each")
    far_wait: float = _of(1.4e-7, "until data from outside a block's memory are there", "seconds",
                          "250 cycles of the cache behind it on GPUs of 2020 and 2022")
    unhidden: float = _of(0.1, "what of waiting for data, or of the work meanwhile, shows where "
                          "the other takes longer", "share",
                          "NVIDIA H100, 32x32 tiles: 118 us with two steps in memory, 108 with "
                          "three")
    barrier: float = _of(2e-8, "until all threads of a block have come", "seconds",
                         "assumed: 35 cycles at 1.75 GHz")
    fold_step: float = _of(3.5e-8, "a step of a fold: four loads of a thread are on their way",
                           "seconds", "a quarter of ``far_wait``")
    fold_part: float = _of(1.7e-8, "a part that joins the others of its row", "seconds",
                           "assumed: 30 cycles at 1.75 GHz, a load from a block's memory")

    # ------------------------------------------------------------ what a worker holds of blocks
    worker_registers: int = _of(65536, "registers that the threads of a worker's blocks share",
                                "registers of 4 bytes", "data sheets: capability 8.0 to 12.0", 1)
    row_registers: int = _of(64, "registers of a thread that rows are held in from stage to stage",
                             "registers", "assumed: with the other 40 of a nest, two blocks of 256 "
                             "threads more than a half of a worker's are", 1)
    row_threads: int = _of(128, "threads, at least, of a work item whose threads hold rows",
                           "threads", "derived: 16 such are all that a worker holds", 1)
    worker_threads: int = _of(2048, "threads of all blocks that a worker holds", "threads",
                              "data sheets: capability 8.0 and 9.0", 1)
    worker_blocks: int = _of(32, "blocks that a worker holds", "blocks",
                             "data sheets: capability 8.0 and 9.0", 1)
    worker_shared: int = _of(228 << 10, "memory of all blocks that a worker holds", "bytes",
                             "data sheets: capability 9.0", 1)
    block_reserved: int = _of(1024, "of that memory what a block takes beside its own", "bytes",
                              "data sheets: capability 8.0 and later")
    register_grain: int = _of(8, "registers that a thread gets are a multiple", "registers",
                              "data sheets: a warp gets 256 at a time", 1)
    nest_registers: int = _of(40, "registers of a thread of a nest", "registers", "ptxas 13.0, "
                              "sm_90: kernels of maps, folds and windows of the rows' cases", 1)
    unit_rate: Mapping[str, float] = _of(
        {"f16": 16.0, "bf16": 16.0, "tf32": 8.0, "u8": 32.0, "i8": 32.0}, "the most products, by "
        "type of the operands, that a row on units which warps share does in the time of one in "
        "f32", "products", "data sheets, dense, sums in f32 (of bytes in i32): capability 8.0")

    @property
    def line_floats(self) -> int:
        """f32 elements of a cache line."""
        return self.line // 4


def tuning_json(tuning: Tuning) -> dict[str, Any]:
    """What a Tuning has other than usual, as JSON values."""
    usual = Tuning()
    return {f.name: getattr(tuning, f.name) for f in fields(Tuning)
            if getattr(tuning, f.name) != getattr(usual, f.name)}


def read_tuning(tuning: Tuning, data: Any) -> Tuning:
    """A Tuning with the fields of a JSON object.  ValueError says what is wrong with it and, for a
    field that does not exist, which there are."""
    if not isinstance(data, dict):
        raise ValueError(f"tuning: expected an object, got {type(data).__name__}")
    known = {f.name: f for f in fields(Tuning)}
    unknown = [k for k in data if k not in known]
    if unknown:
        raise ValueError(f"tuning.{unknown[0]}; there are {', '.join(known)}")
    return replace(tuning, **{k: _read(known[k], f"tuning.{k}", getattr(tuning, k), v)
                              for k, v in data.items()})


def _read(f: Field[Any], where: str, now: Any, value: Any) -> Any:
    """The value of a field that has the value ``now``."""
    if isinstance(now, Mapping):
        names = {str(k): k for k in now}
        if not isinstance(value, dict):
            raise ValueError(f"{where}: expected an object of {', '.join(names)}")
        wrong = [k for k in value if k not in names]
        if wrong:
            raise ValueError(f"{where}.{wrong[0]}; there are {', '.join(names)}")
        return {**now, **{names[k]: _number(f, f"{where}.{k}", 0, v) for k, v in value.items()}}
    return _number(f, where, now, value)


def _number(f: Field[Any], where: str, now: float, value: Any) -> float:
    """A number of the same kind as ``now``, from the field's least to its most."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    least, most = f.metadata["least"], f.metadata["most"]
    if not good or isinstance(now, int) and value != int(value) or not least <= value <= most:
        kind = "an integer" if isinstance(now, int) else "a number"
        legal = f"{least} on" if most == inf else f"{least} to {most}"
        raise ValueError(f"{where}: {value!r}; choose {kind} from {legal}")
    return type(now)(value)


__all__ = ["Tuning", "read_tuning", "tuning_json"]

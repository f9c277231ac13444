"""CUDA targets: GPUs of compute capability 8.0 (A100), 8.6, 8.7, 8.9, 9.0 (H100, H200) and 12.0.

A work item is a thread block, scratch is its shared memory, a vector's lanes are a warp's threads.
"""

from dataclasses import replace

from aotc.ir.category import Dtypes
from aotc.ir.dtypes import HALF, TF32
from aotc.ir.numbers.grouped import LEAST, WHOLE
from aotc.target.base import Cross, Machine, Target
from aotc.target.gpus import GPUS
from aotc.target.kernel_rows import (
    WAYS,
    GroupedWeights,
    KernelRow,
    ProductRow,
    RegisterTile,
    SharedTile,
    Staging,
)
from aotc.target.micro_kernels import CODES, operands, thread_nests

_LANES = 32  # threads of a warp
_STAGES = 3  # steps of a sum in shared memory: one that is multiplied, and those on their way
_LOAD = 4.0  # multiply-adds of a load from shared memory
_FEW = 16  # rows of a product whose weights are all read once, or twice: more share them out
# columns of its narrow tiles: 16 bytes of f16, of which a product of a few hundred columns keeps
# all multiprocessors busy
_NARROW = 8
_ROWS_BYTES = 48 << 10  # of shared memory for those: what a launch has without permission
# of a thread with so many sums: the most of the rows' cases by ptxas 13.0 for sm_90
_REGISTERS = {(8, 8): 168, (8, 4): 128, (4, 8): 128, (4, 4): 112, (2, 4): 96}
_LIBRARY = ("kept", "scatter", "suppress", "topk")
# of a warp with a tile of so many rows and columns: registers of a thread, which so many blocks
# leave; products of halves in the time of one in f32, estimated: an H100 did 4 of a loop with 12.6
# instructions for each of a tensor core, of which these have 12, 9, 5.4, 5, 4.5 and 3.4
_WARPS = {(16, 16): (128, 4.0), (16, 32): (160, 5.5), (32, 32): (160, 9.0), (32, 64): (200, 10.0),
          (64, 32): (128, 11.0), (64, 64): (255, 14.0)}
# the same of weights in groups, of which codes take 3 to 5 instructions for two, and each group has
# sums of its own: 12 and 7.5 instructions
_GROUPED_WARPS = {(32, 32): (168, 4.5), (64, 32): (255, 7.0)}
_DEPENDENT = 90  # the first compute capability with programmatic dependent launch
_CROSS = Cross(("nvcc",), (), (), ("nvidia-cuda-toolkit",))


def _tiled(mr: int, nr: int, tm: int, tn: int, bk: int, teams: int = 1,
           load_cost: float = _LOAD) -> ProductRow:
    """Contraction row: an MR x NR tile of a block, TM x TN of it in each thread's registers, BK
    steps of the sum in shared memory at a time, and as many twice more on their way; ``teams``
    of threads share the BK steps out.  load_cost: of an operand from there, in multiply-adds."""
    twin = f"x{bk}" if load_cost != _LOAD else ""  # of a row for longer sums
    tile = RegisterTile(mr, nr // _LANES, _LANES)
    return ProductRow(
        f"contraction_f32_{tile}{twin}__simt", "contraction", "f32", ("f32",), "f32", tile,
        "contraction.cu.j2", load_cost=load_cost, shared=SharedTile(
            steps=bk, threads=mr // tm * (nr // tn) * teams, teams=teams, thread=(tm, tn),
            sum_bytes=4 * (teams - 1) * mr * nr, registers=_REGISTERS[tm, tn], staging=Staging(
                usual=_STAGES, least=2, most=8, ways=WAYS, pitch=(bk + 4, nr))))


def _fetched(row: ProductRow) -> ProductRow:
    """The row, whose operands both come to the memory of its steps."""
    assert row.shared is not None and row.staging is not None, row.name
    return replace(row, shared=replace(row.shared, staging=replace(
        row.staging, ways=tuple(w for w in row.staging.ways if w != "place"))))


def _few(mr: int, name: str, a: str, b: tuple[str, ...], sums: str = "f32", steps: int = 32,
         grouped: GroupedWeights | None = None, nr: int = _LANES) -> ProductRow:
    """Row for products of few rows, MR of them and NR columns at a time: threads read 16 bytes of
    neighbouring columns, and each of 8 warps sums some of the terms."""
    tile, teams = RegisterTile(mr, 1, nr), 8
    return ProductRow(
        f"{name}_{tile}__simt", "dot" if "dot" in name else "contraction", a, b, sums, tile,
        "few_rows.cu.j2" if grouped is None else "few_grouped.cu.j2", grouped=grouped,
        shared=SharedTile(steps=steps, teams=teams, threads=teams * _LANES, thread=(mr, 4),
                          most=_FEW, row_bytes=_ROWS_BYTES, panels="dot" not in name and (
                              mr > 1 or nr < _LANES),
                          registers=128 * (mr == 1), sum_bytes=4 * teams * mr * tile.nr))


def _few_grouped(mr: int) -> ProductRow:
    """The same of f32 by weights of 8 or 4 bits in groups."""
    return _few(mr, "dot_grouped", "f32", CODES, steps=8 * LEAST,
                grouped=GroupedWeights(expand=2.0, steps=LEAST))


def _few_on_cores(mr: int, dtype: str) -> ProductRow:
    """The same of f16 or bf16 on tensor cores, of which codes are the operand of 16 rows.
    Registers hold the codes of two turns, so that those of the next one are on their way."""
    row = _few_grouped(mr)
    assert row.shared is not None
    return replace(
        row, name=f"dot_grouped_{dtype}_{row.tile}__mma", a=dtype, rate=8.0,
        template="few_grouped_mma.cu.j2", grouped=GroupedWeights(expand=0.1, steps=LEAST),
        shared=replace(row.shared, thread=(0, 0), registers=128))


def _expanded(mr: int, nr: int, tm: int, tn: int, bk: int, teams: int = 1) -> ProductRow:
    """Row of f32 by weights in groups for more rows, whose threads make factors of weights while
    they bring them to the block's memory."""
    row = _fetched(_tiled(mr, nr, tm, tn, bk, teams))
    return replace(row, name=f"dot_grouped_{row.tile}__simt", category="dot", b=CODES,
                   grouped=GroupedWeights(expand=30.0))


def _tensor_core(mr: int, nr: int, bk: int, warp: tuple[int, int], dtype: str) -> ProductRow:
    """Contraction row on tensor cores: operands of f16 or bf16, or rounded to it where a Schedule
    says so, sums in f32; ``warp``: rows and columns of the tile that each warp has."""
    tile = RegisterTile(mr, nr // _LANES, _LANES)
    (wm, wn), (registers, rate) = warp, _WARPS[warp]
    return ProductRow(
        f"contraction_{dtype}_{tile}__mma", "contraction", dtype, (dtype,), "f32", tile,
        "contraction_mma.cu.j2", rate=rate, load_cost=1.0, shared=SharedTile(
            steps=bk, threads=mr // wm * (nr // wn) * _LANES, warp=warp,
            registers=registers, staging=Staging(
                usual=4, least=2, most=6, ways=WAYS,
                pitch=(bk // 2, nr // 2), swizzled=True)))


def _tensor_core_tf32(mr: int, nr: int, bk: int, warp: tuple[int, int],
                      registers: int) -> ProductRow:
    """The same of f32 that is tf32, or that the row rounds, in so many ``registers``.  Columns lie
    8 words further apart than there are, rows 4, so that what a warp reads at once lies in
    different banks."""
    row = _tensor_core(mr, nr, bk, warp, TF32)
    assert row.shared is not None and row.staging is not None and row.rate is not None
    staging = replace(row.staging, pitch=(bk + 4, nr + 8), swizzled=False)
    return replace(row, template="contraction_tf32.cu.j2", rate=row.rate / 2,
                   shared=replace(row.shared, staging=staging, registers=registers))


def _tensor_core_bytes(mr: int, nr: int, bk: int, warp: tuple[int, int], a: str,
                       registers: int) -> ProductRow:
    """The same of bytes, u8 or s8 by s8, sums in i32: twice the products of an instruction in its
    time.  Columns lie as rows do."""
    row = _fetched(_tensor_core(mr, nr, 2 * bk, warp, HALF))
    assert row.shared is not None and row.shared.staging is not None and row.rate is not None
    staging = replace(row.shared.staging, pitch=(bk // 4, nr // 4))
    return replace(
        row, name=f"dot_{operands(Dtypes(a, 'i8', 'i32'))}_{row.tile}__mma", category="dot", a=a,
        b=("i8",), sums="i32", rate=2 * row.rate,
        shared=replace(row.shared, steps=bk, staging=staging, registers=registers))


def _tensor_core_grouped(mr: int, nr: int, warp: tuple[int, int], dtype: str) -> ProductRow:
    """The same of f16 or bf16 by weights in groups, of which the panels of rows of few rows come to
    the block's memory: codes become numbers of 16 bits in registers, of which each group has sums
    of its own."""
    row, (registers, rate) = _fetched(
        _tensor_core(mr, nr, WHOLE, warp, dtype)), _GROUPED_WARPS[warp]
    assert row.shared is not None and row.shared.staging is not None
    staging = replace(row.shared.staging, pitch=(row.steps // 2, nr // 4))
    return replace(
        row, name=f"dot_grouped_{dtype}_{row.tile}__mma", category="dot", b=CODES,
        template="contraction_grouped.cu.j2", rate=rate,
        grouped=GroupedWeights(expand=0.1, steps=LEAST, panel=_LANES),
        shared=replace(row.shared, staging=staging, registers=registers))


def _stream(nr: int, steps: int, registers: int, dtype: str) -> ProductRow:
    """Row of one product of a group that streams: 64 rows, 16 of each warp, by NR columns, STEPS
    terms at a time.  Scores have a step as long as their sum, values one as long as scores have
    columns.  registers: of a thread where it is that of the values."""
    tile, whole = RegisterTile(64, nr // _LANES, _LANES), dtype == TF32
    each = 1 if whole else 2  # elements of a word
    return ProductRow(
        f"stream_{dtype}_{tile}x{steps}__mma", "stream", dtype, (dtype,), "f32", tile,
        "stream_tf32.cu.j2" if whole else "stream.cu.j2", rate=4.5 * each, load_cost=1.0,
        shared=SharedTile(
            steps=steps, threads=4 * _LANES, warp=(16, nr), registers=registers,
            staging=Staging(usual=2, least=2, most=4, ways=("copy", "value"),
                            pitch=(steps // each, nr // each), swizzled=True)))


# Small tiles are for products of few rows and columns: a multiprocessor has one or two blocks of
# those, and teams give it warps enough.  A large BK makes barriers rare and pads short sums; what
# a row for those loses beside its twin is in its load_cost.
_ROWS = (_tiled(128, 128, 8, 8, 16), _tiled(64, 64, 8, 4, 16), _tiled(32, 64, 4, 8, 64, 4),
         _tiled(32, 64, 4, 4, 16, load_cost=5.5), _tiled(32, 32, 4, 4, 64, 4),
         _tiled(32, 32, 2, 4, 16, load_cost=4.7), *(
             _few(mr, "contraction_f32", "f32", ("f32",), nr=nr) for nr in (_LANES, _NARROW)
             for mr in (1, 4, 8)),
         *map(_few_grouped, (1, 4, 8)), *(
             _few(mr, f"dot_{name}", a, ("i8",), "i32")
             for name, a in (("u8s8", "u8"), ("s8s8", "i8")) for mr in (1, 4, 8)),
         _expanded(64, 64, 8, 4, 16), _expanded(32, 64, 4, 8, 64, 4),
         *(row for dtype in ("f16", "bf16") for row in (
             _tensor_core(16, 128, 64, (16, 32), dtype),
             _tensor_core(32, 32, 64, (16, 16), dtype),
             _tensor_core(32, 64, 64, (16, 32), dtype),
             _tensor_core(64, 64, 64, (32, 32), dtype),
             _tensor_core(64, 128, 64, (32, 64), dtype),
             _tensor_core(128, 128, 32, (64, 32), dtype),
             _tensor_core(128, 256, 32, (64, 64), dtype))),
         _tensor_core_tf32(16, 128, 32, (16, 32), 160),
         _tensor_core_tf32(32, 64, 32, (16, 32), 255),
         _tensor_core_tf32(64, 64, 32, (32, 32), 200),
         _tensor_core_tf32(128, 64, 16, (64, 32), 200),
         *(row for a in ("u8", "i8") for row in (
             _tensor_core_bytes(16, 128, 128, (16, 32), a, 112),
             _tensor_core_bytes(32, 64, 128, (16, 32), a, 112),
             _tensor_core_bytes(64, 64, 64, (32, 32), a, 120),
             _tensor_core_bytes(64, 128, 64, (32, 64), a, 168),
             _tensor_core_bytes(128, 128, 64, (64, 32), a, 128),
             _tensor_core_bytes(128, 256, 64, (64, 64), a, 255))),
         *(row for dtype in ("f16", "bf16") for row in (
             _few_on_cores(8, dtype), _few_on_cores(16, dtype),
             _tensor_core_grouped(32, 64, (32, 32), dtype),
             _tensor_core_grouped(64, 64, (32, 32), dtype),
             _tensor_core_grouped(64, 128, (64, 32), dtype),
             _tensor_core_grouped(128, 128, (64, 32), dtype))),
         *(row for dtype in ("f16", "bf16") for row in (
             *(_stream(nr, steps, 168, dtype) for nr, steps in ((32, 64), (64, 64), (64, 32))),
             *(_stream(nr, steps, 255, dtype) for nr, steps in (
                 (128, 64), (64, 128), (32, 256), (256, 32))))),
         *(_stream(n, steps, 255, TF32) for n, steps in (
             (32, 64), (64, 64), (64, 32), (32, 128), (128, 32))),
         *thread_nests("simt"))
# a block of these two has 192 KB, with the usual stages of both
_LARGE, _LARGE_BYTES = tuple(
    _stream(n, steps, 255, TF32) for n, steps in ((32, 256), (256, 32))), 192 << 10


def _rows_of(machine: Machine) -> tuple[KernelRow, ...]:
    """Those that blocks of a machine have memory for."""
    return (*_ROWS, *_LARGE) if machine.near.capacity >= _LARGE_BYTES else _ROWS


def _target(capability: int, about: str, machine: Machine) -> Target:
    code = f"arch=compute_{capability},code=sm_{capability}"
    return Target(f"cuda:sm_{capability}", f"CUDA, {about}", _LANES, ("-gencode", code), "cuda",
                  machine, _rows_of(machine), arch=f"sm_{capability}", cross=_CROSS, emitter="simt",
                  halves=True, aligned=True, library=_LIBRARY, timed="events",
                  dependent_launches=capability >= _DEPENDENT)


SM_80 = _target(80, "compute capability 8.0 (A100)", GPUS["a100"].machine)
SM_86 = _target(86, "compute capability 8.6 (A10, RTX 30)", GPUS["a10"].machine)
SM_87 = _target(87, "compute capability 8.7 (Jetson Orin)", GPUS["orin"].machine)
SM_89 = _target(89, "compute capability 8.9 (L4, L40, RTX 40)", GPUS["rtx4090"].machine)
SM_90 = _target(90, "compute capability 9.0 (H100, H200)", GPUS["h100"].machine)
SM_120 = _target(120, "compute capability 12.0 (RTX 50)", GPUS["rtx5090"].machine)


def _least(machine: Machine) -> Machine:
    """A machine with what blocks may have on every GPU from capability 8.0 on."""
    all_, near = [g.machine for g in GPUS.values()], machine.near
    least = replace(near, capacity=min(m.near.capacity for m in all_))
    tuning = replace(machine.tuning, **{f: min(getattr(m.tuning, f) for m in all_) for f in (
        "worker_threads", "worker_blocks", "worker_shared")})
    return replace(machine, tuning=tuning, memories=tuple(
        least if m is near else m for m in machine.memories))


# code for sm_80 and, for every later GPU, PTX that its driver compiles
CUDA = Target("cuda", "CUDA, any GPU from compute capability 8.0 on", _LANES,
              ("-gencode", "arch=compute_80,code=[sm_80,compute_80]"), "cuda",
              _least(GPUS["a100"].machine), _ROWS, arch="sm_80", cross=_CROSS, emitter="simt",
              halves=True, aligned=True, library=_LIBRARY, timed="events")

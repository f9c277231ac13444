"""What the bundle's templates and its manifest say about a Plan: C names, extents, sizes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aotc.emit.dsa.device_text import arena_slots, machine_bytes
from aotc.emit.text.c_names import c_comment, parameter_names
from aotc.emit.text.cexpr import c_index, sym_field
from aotc.errors import AotcError
from aotc.ir.dtypes import DTYPES, array_dtype
from aotc.ir.expr import Const, Expr, Sym, leaves, show
from aotc.ir.kernel.plan_kernels import Size
from aotc.ir.numbers.byte_scale import ByteScale
from aotc.ir.plan import Place, Plan, rules_of
from aotc.ir.simplify import lower, simplify, upper
from aotc.ir.statements import WORKERS
from aotc.target import get_target

# Names of the generated file scope and functions: a parameter of that name would hide them.
_TAKEN = ("add_cost arena arena_bytes base bytes check_rules choose_variant clear_outputs "
          "clock_nanoseconds detail frame index info input_info inputs kernel launch memset "
          "broken need output_info outputs pool prepare run_buffers set_symbols shape status "
          "symbol_info symbol_rules tell_number tell_text variant variant_info variants weights "
          "wanted refuse in_one_buffer shared "
          # of the bundles for CUDA
          "arena_bytes check destroy device device_weights device_arena error fault kernels "
          "owned status_of stream syms told "
          # of the C++ header
          "bytes_ context_ extents fits model release reserve session size span std want "
          "wrong weights_ wrong_ pool_ arena_").split()
_API = ("weights context frame arena_size arena_size_of init init_variant run run_buffers detail "
        "texts fault checked expected rule image image_end info inputs outputs input_shape cost "
        "output_shape pool_create pool_destroy strerror weights_open weights_close profile refuse "
        "weights_embedded weights_from_memory weights_hash payload_bytes profile_reset dsa graph "
        "graph_create graph_launch graph_replay graph_destroy weights_trusted "
        "weights_embedded_trusted").split()
# Starts of the names that are repeated per variant.
_PER_VARIANT = ("lay_out", "compute", "runs_here", "data_rules")


@dataclass(frozen=True)
class Dim:
    """``size`` is -1 for a symbolic extent; ``c`` computes it from the frame; hi is None without a
    bound."""

    size: int
    lo: int
    hi: int | None
    text: str
    c: str
    symbol: str

    @property
    def most(self) -> str:
        """The largest value as a C constant."""
        return c_most(self.hi)


def slab_bytes(plan: Plan) -> Size:
    """Bytes of scratch of one worker: the Plan's, or a simulated machine."""
    return machine_bytes(get_target(plan.target)) or plan.slab_bytes


def c_most(hi: int | None) -> str:
    """An upper bound as a C constant; None: there is none."""
    return "INT64_MAX" if hi is None else str(hi)


@dataclass(frozen=True)
class Tensor:
    """One input or output; ``label`` names its table of dimensions in the C file; ``default``: a
    place in the weights image, the value that a null pointer stands for; -1 without one;
    ``stored``: what its elements are the bits of, "" for numbers; ``counts``: the (output, axis)
    that it says how many elements there are of; ``alias``: of two that lie in one buffer, the place
    of the other among the inputs or outputs, -1 if it lies alone; ``shared``: what is said of
    that; ``scale``: what 8-bit numbers stand for."""

    name: str
    onnx: str
    c_name: str
    label: str
    dtype: str
    dims: tuple[Dim, ...]
    default: int = -1
    stored: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    alias: int = -1
    shared: str = ""
    scale: ByteScale | None = None

    @property
    def type_text(self) -> str:
        kind = f"{self.stored} in {self.dtype}" if self.stored else self.dtype
        text = f"{kind}[{', '.join(d.text for d in self.dims)}]{self.shared}"
        text += f", {self.scale}" if self.scale else ""
        if not self.counts:
            return text
        return f"{text}, the extent of " + ", ".join(f"{o} along axis {a}" for o, a in self.counts)

    @property
    def instead(self) -> str:
        """C expression of what a null pointer stands for: the default value, some address for a
        tensor without elements; "" where there must be one."""
        if self.default >= 0:
            return f"ctx->weights + {self.default}"
        empty = [d.c for d in self.dims if d.lo == 0]
        if not empty:
            return ""
        if "0" in empty:
            return "ctx->arena"
        return " || ".join(f"{c} == 0" for c in empty) + " ? ctx->arena : NULL"

    @property
    def bytes_c(self) -> str:
        """C expression of its size, over the frame."""
        factors = [f"(size_t){d.c if d.size >= 0 else f'({d.c})'}" for d in self.dims]
        return " * ".join([*factors, f"sizeof({DTYPES[self.dtype].c})"])

    @property
    def c_dtype(self) -> str:
        return f"AOTC_{self.dtype.upper()}"


@dataclass(frozen=True)
class Symbol:
    name: str
    c_name: str
    field: str
    lo: int
    hi: int | None

    @property
    def most(self) -> str:
        """The largest value as a C constant."""
        return c_most(self.hi)

    @property
    def about(self) -> str:
        most = f"at least {self.lo}" if self.hi is None else f"{self.lo}..{self.hi}"
        return f"{self.name} must be {most}"


def symbols_and_tensors(plan: Plan, prefix: str, plans: Sequence[Plan] | None = None,
                        marks: Sequence[str] = ()
                       ) -> tuple[tuple[Symbol, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(symbols, inputs, outputs) of a plan in the model's order, with distinct C names.

    ``plans``: all plans of the bundle, whose kernels' names are taken; ``marks``: what functions
    of several plans for one target end with.  AotcError if the plan's
    inputs or outputs are not numbered 0, 1, 2, ...
    """
    places = {s: _in_order(plan, s) for s in ("input", "output")}
    texts = [s.name for s in plan.syms]
    texts += [p.onnx or p.name for s in ("input", "output") for p in places[s]]
    suffixes = ["", *(f"_{p.target.rpartition('-')[2]}" for p in plans or ())]
    own = [f"{prefix}_{w}" for w in _API] + [w + s for w in _PER_VARIANT for s in suffixes]
    own += [w + s + mark for mark in marks for w in (*_PER_VARIANT, "which") for s in suffixes]
    own += [f"{prefix}{s}_{k.name}" for s in suffixes for p in plans or (plan,) for k in p.kernels]
    names = iter(parameter_names(texts, _TAKEN + own))
    syms = tuple(Symbol(s.name, next(names), sym_field(s.name), s.lo, s.hi) for s in plan.syms)
    defaults = {name: plan.place(own).offset for name, own in plan.defaults}
    ins, outs = (tuple(Tensor(p.name, p.onnx or p.name, next(names), f"{storage}_{i}_dims",
                              array_dtype(p.dtype), tuple(map(_dim, p.shape)),
                              defaults.get(p.name, -1), p.stored, p.counts, scale=p.scale)
                       for i, p in enumerate(places[storage])) for storage in places)
    return syms, *_aliased(plan, ins, outs)


def _aliased(plan: Plan, ins: tuple[Tensor, ...], outs: tuple[Tensor, ...]
             ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs, those that share a buffer with the C name of the input."""
    inputs, outputs = list(ins), list(outs)
    for a in plan.aliases:
        i, o = (next(k for k, t in enumerate(found) if t.name == name)
                for found, name in ((inputs, a.past), (outputs, a.present)))
        inputs[i] = replace(inputs[i], alias=o, shared=(
            f", {show(a.kept)} entries of axis {a.axis} are read, the next "
            f"{show(simplify(a.filled - a.kept))} written"))
        outputs[o] = replace(outputs[o], alias=i, c_name=inputs[i].c_name, shared=(
            f" in the buffer of {inputs[i].onnx}, {show(a.filled)} entries of axis {a.axis}"))
    return tuple(inputs), tuple(outputs)


def _in_order(plan: Plan, storage: str) -> list[Place]:
    found = sorted((p for p in plan.places if p.storage == storage), key=lambda p: p.index)
    if [p.index for p in found] != list(range(len(found))):
        raise AotcError(f"plan {plan.name}: {storage}s are numbered "
                        f"{[p.index for p in found]}, expected 0..{len(found) - 1}, each once")
    return found


def _dim(extent: Expr) -> Dim:
    e = simplify(extent)
    if isinstance(e, Const):
        return Dim(e.value, e.value, e.value, str(e.value), c_index(e), "")
    lo, hi = lower(e), upper(e)
    return Dim(-1, max(lo or 0, 0), hi, show(e), c_index(e), e.name if isinstance(e, Sym) else "")


def parameters(syms: Sequence[Symbol], inputs: Sequence[Tensor],
               outputs: Sequence[Tensor]) -> list[dict[str, str]]:
    """Arguments of ``run`` after the context: rows of C type, C++ type, name and comment."""
    rows = [("int64_t ", "int64_t ", s.c_name, "") for s in syms]
    mine = [t for t in outputs if t.alias < 0]  # the others lie in inputs' buffers
    for tensors, const in ((inputs, "const "), (mine, "")):
        for t in tensors:
            about = t.type_text if t.c_name == t.onnx else f"{t.type_text} {t.onnx}"
            about += ", null: its default" if t.default >= 0 else ""
            element = (const if t.alias < 0 else "") + DTYPES[t.dtype].c
            rows.append((f"{element} *", f"span<{element}> ", t.c_name, about))
    return [{"type": c, "cpp": cpp, "name": n, "about": a} for c, cpp, n, a in rows]


def about_lines(syms: Sequence[Symbol], inputs: Sequence[Tensor],
                outputs: Sequence[Tensor]) -> list[str]:
    """What the head of the header says about arguments, ready for a comment."""
    rows = [("in ", t.c_name, t.type_text, t.onnx) for t in inputs]
    rows += [("out", t.c_name, t.type_text, t.onnx) for t in outputs]
    rows += [("dim", s.c_name, f"{s.lo}..{'' if s.hi is None else s.hi}", s.name) for s in syms]
    return [c_comment(f"{kind} {c}: {text}" + (f"  ({onnx})" if onnx != c else ""))
            for kind, c, text, onnx in rows]


def arena_max(plan: Plan) -> int | None:
    """Bytes of arena slots that are enough for every choice of symbols; None if there is no such
    number, of slots or of scratch."""
    tops = [t for t in map(upper, arena_slots(plan)) if t is not None]
    if len(tops) < len(plan.slots) or not isinstance(slab_bytes(plan), int):
        return None
    return sum((t + 63) // 64 * 64 for t in tops)


def counts_workers(plan: Plan) -> bool:
    """True if kernels of a plan have work items by the workers of a call, which its frame has."""
    return any(WORKERS in leaves(k.tiles) for k in plan.kernels)


def kernels(plan: Plan) -> list[dict[str, Any]]:
    """Template rows of the kernels in call order."""
    return [{"name": k.name, "title": k.title, "origin": list(k.origin),
             "plain": round(k.work.plain, 3), "tiles": c_index(simplify(k.tiles)),
             "rows": list(dict.fromkeys(s.row for s in k.lowered.stages)),
             "flops": c_index(k.work.flops), "bytes": c_index(k.work.bytes)}
            for k in plan.kernels]


_STATUS = {"checked": "AOTC_INDEX_OUT_OF_RANGE", "expected": "AOTC_SHAPE_MISMATCH"}


def rules(plans: Sequence[Plan]) -> list[dict[str, str]]:
    """Template rows of the rules that data may break, in the order that faults count them."""
    return [{"status": _STATUS[op], "why": why} for op, why in rules_of(plans)]


def tensor_json(tensor: Tensor) -> dict[str, Any]:
    """A tensor's entry in the manifest; a symbolic extent is an object."""
    extra: dict[str, Any] = {"default": True} if tensor.default >= 0 else {}
    extra |= {"stored": tensor.stored} if tensor.stored else {}
    extra |= {"scale": tensor.scale.scale, "zero": tensor.scale.zero,
              "real": tensor.scale.real} if tensor.scale else {}
    extra |= {"alias": tensor.alias} if tensor.alias >= 0 else {}
    extra |= {"counts": [list(c) for c in tensor.counts]} if tensor.counts else {}
    return {"onnx": tensor.onnx, "c": tensor.c_name, "dtype": tensor.dtype, **extra,
            "shape": [d.size if d.size >= 0 else
                      {"text": d.text, "symbol": d.symbol, "lo": d.lo, "hi": d.hi}
                      for d in tensor.dims]}


def kernel_order(name: str) -> list[int | str]:
    """Sort key of file names that counts: kernels_2 before kernels_10."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]

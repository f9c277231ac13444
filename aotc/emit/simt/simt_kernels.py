"""Plan -> CUDA text of its kernels: one for all that have a function together, and for each the
function that launches it.

A work item is a thread block: the stages run one after another in it, with a barrier where one
reads what another wrote; scratch is shared memory, behind it the memory of the contractions' steps.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import jinja2

from aotc.emit.bundle.device_needs import block_bytes_of, needs_permission
from aotc.emit.bundle.library_sources import device_library
from aotc.emit.c.arrays import declaration
from aotc.emit.c.loop_text import indent, signature
from aotc.emit.c.scalars import LocalNames, rule_call
from aotc.emit.simt.dependency_wait import with_dependency_wait
from aotc.emit.simt.row_writer import RowWriter
from aotc.emit.text.c_names import c_comment, prefix
from aotc.emit.text.cexpr import Argument, c_index, sym_field
from aotc.emit.text.env import Env
from aotc.emit.text.functions import PlanKernel, Shared, shared_functions
from aotc.emit.text.locals import LOCALS, with_safe_names
from aotc.emit.text.places import POINTERS, cast_address, pointer
from aotc.emit.text.wrapped import wrap_lines
from aotc.errors import UnsupportedError
from aotc.installed import TEMPLATES
from aotc.ir.block_statements import BlockTile, FewRowSums
from aotc.ir.contents import names_in, nodes, with_symbols
from aotc.ir.dtypes import BF16, DTYPES
from aotc.ir.expr import Guarded, Sym
from aotc.ir.kernel.plan_kernels import Kernel, Rule, Scratch
from aotc.ir.plan import Plan, rules_of
from aotc.ir.plan_regions import Rounds
from aotc.ir.simplify import lower, simplify, upper
from aotc.ir.statements import OWN, walk_body
from aotc.target.base import Target

# how kernels are launched, True: that wait themselves for the one in front
_LAUNCHES = {False: "AOTC_LAUNCH", True: "AOTC_LAUNCH_DEPENDENT"}
FILE_BYTES = 60_000  # about so much text of kernels shares a file: files compile in parallel
# locals of the templates and what they call
_LOCALS = LOCALS | frozenset("""
    MR NR TM TN BK AK BN CHUNK A_STEP B_STEP SLICES SHARE TEAMS OWNERS a_steps b_steps row_starts
    others a_now b_now a_held b_held parts tx ty owner team warp lane wm wn kc k_steps steps step
    next k0 tap row m n k e4 a b j p start x valid column slice part_sum turn sum total s shared
    fault threadIdx blockIdx blockDim gridDim warpSize half float4 dim3 min max abs at left stream
    tiles error greatest scores acc change base most score bn v_b_steps V_MR V_NR V_BK V_AK V_BN
    V_A_STEP V_B_STEP
""".split())


def render_kernels(plan: Plan, target: Target, others: Sequence[Plan] = (),
                   rules: Sequence[Rule] | None = None) -> dict[str, str]:
    """{file name: CUDA text} of all kernels of ``plan``, and of ``others`` for the same target that
    have names of their own, with their launchers.  rules: those that data may break, by number;
    None: those of the plans.

    UnsupportedError if a kernel asks for more than its target can express.
    """
    name, plans = prefix(plan.name), (plan, *others)
    env, rules = _environment(target.folder), rules_of(plans) if rules is None else rules
    functions = shared_functions(plans)
    library = device_library(plans)
    files = dict(library)
    bf16 = BF16 in {d for p in plans for k in p.kernels for d in (
        *(n.dtype for n in nodes(k.body)), *(p.place(b).dtype for b in k.touched))}
    groups = any(isinstance(s, BlockTile) and s.groups is not None or isinstance(s, FewRowSums)
                 and not target.product_row(s.row).per_thread
                 for p in plans for k in p.kernels for s in walk_body(k.body))
    head = env.get_template("kernels.cu.j2").render(
        name=name, target=target.name, bf16=bf16, groups=groups, library=library)
    chunks = _even_chunks([_function(f, target, name, env, rules) for f in functions])
    return files | {f"{name}_kernels_{n}.cu": wrap_lines(head + "\n".join(chunk))
                    for n, chunk in enumerate(chunks, 1)}


def _even_chunks(texts: Sequence[str]) -> list[list[str]]:
    """Texts in order, for files of about one length: what all include takes as long in each."""
    total = sum(map(len, texts))
    count, end = max(1, round(total / FILE_BYTES)), 0
    chunks: dict[int, list[str]] = {}
    for text in texts:
        chunks.setdefault((end + len(text) // 2) * count // total, []).append(text)
        end += len(text)
    return [*chunks.values()]


@cache
def _environment(folder: str) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES / folder), trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)


def _function(shared: Shared, target: Target, name: str, env: jinja2.Environment,
              rules: Sequence[Rule]) -> str:
    """A kernel, and the launchers of all that have it together."""
    plan, kernel = shared.written.plan, with_safe_names(shared.written.kernel, _LOCALS)
    scratch = {s.name: s for s in kernel.scratch}
    base = kernel.slab_bytes
    assert isinstance(base, int), base  # lowering makes no other scratch for blocks of threads
    values: Env = {
        "buffer": lambda b: b.removeprefix(OWN) if b.startswith(OWN) else (
            f"s_{b}" if b in scratch else f"t_{b}"),
        "arrays": {a.buffer: a for a in kernel.arrays}, "vars": {}, "scratch": scratch,
        "rule": rule_call(rules, kernel, "aotc", "fault")}
    names = names_in(kernel.body)
    alone = _unwritten(shared) if target.dependent_launches else None
    writer = RowWriter(values, LocalNames(), kernel.threads, base, target.product_row,
                       env.get_template)
    body = writer.body(with_symbols(
        kernel.body if alone is None else with_dependency_wait(
            kernel.body, {*kernel.touched} - alone), Argument.of))
    assert kernel.lowered.block is not None, kernel.name
    bytes_ = block_bytes_of(kernel)
    head = ["AOTC_DYN_SMEM(unsigned char, shared);"] if bytes_ else []
    head += [_scratch_pointer(s) for s in kernel.scratch]
    head += ["const int64_t tile = (int64_t)blockIdx.x;"] if "tile" in names else []
    parameters = [p for p, _ in _arguments(plan, shared.written.kernel, alone)]
    same = ", ".join(o.kernel.name for o in shared.kernels[1:])
    return env.get_template("kernel.cu.j2").render(
        name=name, kernel=kernel.name, same=same, threads=kernel.threads,
        blocks=kernel.lowered.block.held,
        head=signature(f"{name}_{kernel.name}_device", parameters),
        body="\n".join(indent(head + body)), shared_bytes=bytes_,
        permit=needs_permission(kernel),
        launchers=[_launcher(o, f"{name}_{kernel.name}_device", bytes_, _LAUNCHES[
            target.dependent_launches]) for o in shared.kernels])


def _unwritten(shared: Shared) -> frozenset[str]:
    """Tensors of a function, by the names that it is written with, that no kernel of a call writes,
    whichever of its kernels runs: what may be read before earlier kernels have ended."""
    places = [[o.plan.place(b).storage for b in o.kernel.touched] for o in shared.kernels]
    return frozenset(b for b, *found in zip(shared.written.kernel.touched, *places, strict=True)
                     if {*found} == {"weights"})


def _launcher(owned: PlanKernel, function: str, shared_bytes: int,
              launch: str) -> dict[str, Any]:
    """What the template says of the launcher of one kernel."""
    kernel = owned.kernel
    tiles = upper(kernel.tiles)
    if tiles is not None and tiles >= 1 << 31:
        raise UnsupportedError(f"kernel {kernel.name} ({kernel.title}): {tiles} work items, a grid "
                               "has at most 2^31 - 1 blocks; choose larger tiles")
    origin = ", ".join(kernel.origin[:8]) + (", ..." if len(kernel.origin) > 8 else "")
    values = [v for _, v in _arguments(owned.plan, kernel)]
    launched = [function, "dim3((unsigned)tiles)", f"dim3({kernel.threads})", str(shared_bytes),
                "stream", *values]
    return {"kernel": kernel.name, "title": c_comment(kernel.title), "origin": c_comment(origin),
            "tiles": c_index(simplify(kernel.tiles), 0),
            "maybe_none": (lower(simplify(kernel.tiles)) or 0) < 1,
            "launch": signature(launch, launched, ";", 4)}


def _scratch_pointer(s: Scratch) -> str:
    c = DTYPES[s.dtype].c
    return (f"const aotc_shared<{c}> s_{s.name} = aotc_slice<{c}>(shared, {s.offset}, "
            f"{s.elements});")


def _arguments(plan: Plan, kernel: Kernel,
               unwritten: Collection[str] | None = None) -> list[tuple[str, str]]:
    """(parameter of the kernel, what its launcher passes) pairs.  ``unwritten``: the tensors whose
    loads a compiler may move in front of all that the kernel waits for; None: it waits for
    nothing."""
    out, arrays = [], {a.buffer: a for a in kernel.arrays}
    for b in kernel.touched:
        p, const = plan.place(b), "" if b in kernel.writes else "const "
        free = plan.only_reads(kernel, b) and (unwritten is None or b in unwritten)
        alone, ctype = "__restrict__ " * free, const + DTYPES[p.dtype].c
        where = pointer(p) if p.storage in POINTERS else f"({const}void *){cast_address(p)}"
        out.append((declaration(ctype, f"{alone}t_{b}", arrays.get(b)),
                    f"({declaration(ctype, '', arrays.get(b))}){where}"))
    found = tuple(nodes(kernel.body))
    used = {n.name for n in found if isinstance(n, Sym)}
    rounds = [r.round for r in plan.regions if isinstance(r, Rounds)]
    syms = [s for s in (*plan.syms, *rounds) if s.name in used]
    out += [(f"int64_t {sym_field(s.name)}", f"f->{sym_field(s.name)}") for s in syms]
    return out + [("int32_t *fault", "f->fault")] * any(isinstance(n, Guarded) for n in found)

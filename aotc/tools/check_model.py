"""``aotc check``: what the compiler would say of a model, without compiling it: the first stages
alone, up to the Program, and of a model that is decided in a moment, up to its Plans."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from aotc.collector import collect_seldom
from aotc.errors import ModelError, UnsupportedError
from aotc.frontend import load_model, read_built, to_program
from aotc.frontend.aliases import ROOM
from aotc.frontend.graph import DimRange, shorten
from aotc.frontend.read.load import all_tensors
from aotc.ir.expr import show
from aotc.ir.program import Program
from aotc.options import IO, Options
from aotc.passes.regions import all_steps
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from aotc.tools.arena_estimate import arena_estimate, plans_arena

COMMON = 8  # operators that are named
# bytes of weights and computes up to which passes are run for the arena, and computes then up to
# which kernels are decided
PASSED_BYTES, PASSED_STEPS, DECIDED_STEPS = 128 << 20, 2000, 600


@dataclass(frozen=True)
class Checked:
    """What is found of a model.  ``refusal``: "" if it compiles, else all that is missing, with the
    number of nodes and what serves instead; ``operators``: {name: nodes}; ``dims``: the ranges of
    its free dimensions; ``arenas``: [(extents, bytes)] of the arena at the ends of these ranges, of
    large models roughly; ``arguments`` and ``weights``: the text of its inputs and outputs,
    bytes."""

    name: str
    opsets: str
    operators: Mapping[str, int]
    weights: int
    refusal: str = ""
    dims: tuple[DimRange, ...] = ()
    arguments: tuple[str, ...] = ()
    arenas: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.support, *self.memory])

    @property
    def support(self) -> str:
        """Whether it is supported, in lines."""
        nodes, kinds = sum(self.operators.values()), Counter(self.operators).most_common()
        more = f" and {len(kinds) - COMMON} more" if len(kinds) > COMMON else ""
        lines = [f"{self.name}: {self.opsets}, {nodes} nodes, {_size(self.weights)} of weights",
                 "  operators: " + ", ".join(f"{op} x{n}" for op, n in kinds[:COMMON]) + more]
        if self.refusal:
            return "\n".join([*lines, "not supported:",
                              *(f"  {line}" for line in self.refusal.splitlines())])
        lines += ["supported", *(f"  {a}" for a in self.arguments)]
        lines += [f"  dim {d}" for d in self.dims]
        return "\n".join(lines)

    @property
    def memory(self) -> list[str]:
        """Lines of the arena."""
        return [f"  arena{f' at {at}' if at else ''}: about {_size(n)}" for at, n in self.arenas]


def check_model(options: Options, report: Callable[[str], object] = lambda text: None) -> Checked:
    """The Checked of ``options.source``; AotcError only where no model can be read from there, or
    options are wrong.  report: called with the lines of the Checked as soon as they are known: the
    arena may take seconds."""
    with collect_seldom():
        found, program = _checked(options)
        report(found.support)
        if program is None:
            return found
        try:
            found = replace(found, arenas=tuple(_arenas(options, program, found.weights)))
        except UnsupportedError as err:
            found = replace(found, refusal=str(err))
            report(found.support)
        for line in found.memory:
            report(line)
        return found


def _checked(options: Options) -> tuple[Checked, Program | None]:
    """(the Checked but for its arenas, the Program if there is one)."""
    model = load_model(options.source, mapped=True)
    source = options.source
    name = Path(source).name if isinstance(source, (str, Path)) else shorten(model.graph.name)
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    count = Counter(_operators(model.graph))
    weights = sum(_bytes(t) for t in all_tensors(model.graph))
    try:
        o = options
        dims = {k: v for k, v in (o.dims or {}).items() if not o.alias or k != ROOM}
        graph, built = read_built(model, dims, o.name or name, o.fix, o.input_default, o.lists,
                                  o.bound, o.shapes, o.io == IO[1])
        program = to_program(graph, get_target(options.target).library, built)
    except UnsupportedError as err:
        return Checked(name, opsets, count, weights, str(err)), None
    except ModelError as err:
        return Checked(name, opsets, count, weights, f"the model contradicts itself, or what is "
                       f"said of it: {err}"), None
    return Checked(name, opsets, count, weights, "", graph.dims, _arguments(program)), program


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    """The operators of all nodes, those of sub-graphs too."""
    for node in graph.node:
        domain = node.domain if node.domain not in ("", "ai.onnx") else ""
        yield f"{shorten(domain)}.{shorten(node.op_type)}" if domain else shorten(node.op_type)
        for a in node.attribute:
            for sub in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from _operators(sub)


def _bytes(tensor: onnx.TensorProto) -> int:
    bits = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    size = 1
    for d in tensor.dims:
        size *= d
    return size * bits


def _arguments(program: Program) -> tuple[str, ...]:
    rows = [("in ", n) for n in program.inputs] + [("out", n) for n in program.outputs]
    buffers = program.buffers
    return tuple(f"{side} {shorten(buffers[n].onnx or n)}: {buffers[n].stored or buffers[n].dtype}"
                 f"[{', '.join(map(show, buffers[n].shape))}]" for side, n in rows)


def _arenas(options: Options, program: Program, weights: int) -> Iterator[tuple[str, int]]:
    """(extents, bytes of the arena) at the least extents, and at the largest ones, or those
    that decisions reckon with where there is none: what the compiler decides, or roughly, where
    that would take long."""
    made = None
    if weights <= PASSED_BYTES and len(all_steps(program.steps)) <= PASSED_STEPS:
        quiet = replace(options, out=None, progress=None, stop_after="inline")
        program = run_pipeline(quiet).program
        if len(all_steps(program.steps)) <= DECIDED_STEPS:
            made = run_pipeline(replace(quiet, stop_after="plan"))
    ends = ({s.name: s.lo for s in program.syms}, {s.name: s.reach for s in program.syms})
    for values in ends[:1] if not program.syms else ends:
        yield ", ".join(f"{n}={v}" for n, v in values.items()), (
            arena_estimate(program, values) if made is None else
            plans_arena(made.plans, made.target, values))


def _size(count: int) -> str:
    """Bytes as a number to read."""
    for factor, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"

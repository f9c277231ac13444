"""``aotc check``: what the compiler would say of a model, without compiling it: the first stages
alone, up to the Program."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from aotc.collector import seldom_collected
from aotc.errors import ModelError, UnsupportedError
from aotc.frontend import load_model, read_built, to_program
from aotc.frontend.aliases import ROOM
from aotc.frontend.graph import DimRange, shorten
from aotc.frontend.read.load import all_tensors
from aotc.ir.expr import show
from aotc.ir.program import Program
from aotc.options import Options
from aotc.target import get_target
from aotc.tools.arena_estimate import arena_estimate

COMMON = 8  # operators that are named


@dataclass(frozen=True)
class Checked:
    """What is found of a model.  ``refusal``: "" if it compiles, else all that is missing, with the
    number of nodes and what serves instead; ``operators``: {name: nodes}; ``dims``: the ranges of
    its free dimensions; ``arenas``: [(extents, bytes)] of the arena, roughly, at the ends of these
    ranges, ``arguments`` and ``weights``: the text of its inputs and outputs, bytes."""

    name: str
    opsets: str
    operators: Mapping[str, int]
    weights: int
    refusal: str = ""
    dims: tuple[DimRange, ...] = ()
    arguments: tuple[str, ...] = ()
    arenas: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        nodes, kinds = sum(self.operators.values()), Counter(self.operators).most_common()
        more = f" and {len(kinds) - COMMON} more" if len(kinds) > COMMON else ""
        lines = [f"{self.name}: {self.opsets}, {nodes} nodes, {_size(self.weights)} of weights",
                 "  operators: " + ", ".join(f"{op} x{n}" for op, n in kinds[:COMMON]) + more]
        if self.refusal:
            return "\n".join([*lines, "not supported:",
                              *(f"  {line}" for line in self.refusal.splitlines())])
        lines += ["supported", *(f"  {a}" for a in self.arguments)]
        lines += [f"  dim {d}" for d in self.dims]
        lines += [f"  arena{f' at {at}' if at else ''}: about {_size(n)}" for at, n in self.arenas]
        return "\n".join(lines)


def check_model(options: Options) -> Checked:
    """The Checked of ``options.source``; AotcError only where no model can be read from there, or
    options are wrong."""
    with seldom_collected():
        return _checked(options)


def _checked(options: Options) -> Checked:
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
                                  o.bound, o.shapes)
        program = to_program(graph, get_target(options.target).library, built)
    except UnsupportedError as err:
        return Checked(name, opsets, count, weights, str(err))
    except ModelError as err:
        return Checked(name, opsets, count, weights, f"the model contradicts itself, or what is "
                       f"said of it: {err}")
    return Checked(name, opsets, count, weights, "", graph.dims, _arguments(program),
                   tuple(_arenas(program)))


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


def _arenas(program: Program) -> Iterator[tuple[str, int]]:
    """(extents, bytes of the arena) at the least extents, and at the largest ones, or those
    that decisions reckon with where there is none."""
    if not program.syms:
        yield "", arena_estimate(program, {})
        return
    for values in ({s.name: s.lo for s in program.syms}, {s.name: s.reach for s in program.syms}):
        yield ", ".join(f"{n}={v}" for n, v in values.items()), arena_estimate(program, values)


def _size(count: int) -> str:
    """Bytes as a number to read."""
    for factor, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"

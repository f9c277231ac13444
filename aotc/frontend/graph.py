"""Graph: the model as ONNX says it, as plain data.  A line of its text form:

    %12 = Conv(%11, W3, B3) pads=[1, 1, 1, 1] : f32[N, 64, 56, 56]
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from aotc.ir.bundle import Part
from aotc.ir.dtypes import Array
from aotc.ir.expr import Expr, Shape, Sym, show
from aotc.ir.numbers.byte_scale import ByteScale

if TYPE_CHECKING:  # which is learnt from Graphs
    from aotc.frontend.building.broadcast import Learnt

Type = tuple[str, Shape]  # dtype and extents of a tensor


@dataclass(frozen=True)
class Node:
    """One operator.  ``opset`` is the version of its domain that the model imports; a missing
    optional input or output is ``""``; ``origin`` names the ONNX nodes it stands for; ``proto``:
    its message, of an operator that is compiled through its definition in the standard."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any] = field(hash=False)  # which kind of value, only the operator says
    name: str = ""
    opset: int = 1
    origin: tuple[str, ...] = ()
    proto: onnx.NodeProto | None = field(default=None, compare=False, repr=False)

    @property
    def captures(self) -> tuple[str, ...]:
        """Tensors from outside that the node's sub-graphs read."""
        return tuple(c for v in self.attrs.values() if isinstance(v, Body) for c in v.captures)

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's value.  Float attributes are f32, their defaults too: what computes in
        f64 sees the rounded number."""
        if isinstance(default, float):
            default = float(np.float32(default))
        return self.attrs.get(name, default)

    @property
    def label(self) -> str:
        """The node's name, or what stands for it in messages and comments."""
        return self.name or f"{self.op}_{next((o for o in self.outputs if o), '')}"


def label_of(message: onnx.NodeProto) -> str:
    """``Node.label`` of a node's message."""
    return message.name or f"{message.op_type}_{next((o for o in message.output if o), '')}"


@dataclass(frozen=True, eq=False)
class Body:
    """A sub-graph: names of its inputs and outputs, its nodes in order, its constants.
    ``captures``: names it reads that it does not make; ``types``: numpy dtype and extents of every
    output as declared (None where they are not); ``stored``: constants that are bits, as of a
    Graph."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: dict[str, Array] = field(hash=False, repr=False)
    captures: tuple[str, ...] = ()
    types: tuple[tuple[np.dtype[Any] | None, tuple[int, ...] | None], ...] = ()
    stored: dict[str, str] = field(default_factory=dict, hash=False, repr=False)

    def __str__(self) -> str:
        return f"{{{', '.join(map(shorten, self.inputs))} -> {len(self.nodes)} nodes -> " \
               f"{', '.join(map(shorten, self.outputs))}}}"


def all_nodes(nodes: Iterable[Node], branches: bool = True) -> Iterator[Node]:
    """``nodes`` and those of their sub-graphs; without ``branches`` not those of an If."""
    for n in nodes:
        yield n
        for v in n.attrs.values() if branches or n.op != "If" else ():
            if isinstance(v, Body):
                yield from all_nodes(v.nodes, branches)


@dataclass(frozen=True)
class TensorType:
    """Name, dtype and shape (index expressions) of a model input; ``stored``: the type whose bits
    they are, if it is one of those."""

    name: str
    dtype: str
    shape: Shape
    stored: str = ""


@dataclass(frozen=True)
class DimRange:
    """A symbolic extent.  ``onnx``: the name in the model ("" if it has none); ``source``: given
    (by the user), default or derived (from what the model does with it); ``why`` says which.
    ``only``: the extents that there are, rising, if not all of the range."""

    sym: Sym
    onnx: str
    source: str
    why: str = ""
    only: tuple[int, ...] = ()

    @property
    def extents(self) -> str:
        """``1..512``, or ``1, 2, 4``."""
        return ", ".join(map(str, self.only)) or self.sym.range

    def __str__(self) -> str:
        label = repr(self.onnx) if self.onnx and self.onnx != self.sym.name else ""
        return f"{self.sym.name} in {self.extents} {label} " \
               f"({self.source}{': ' + self.why if self.why else ''})".replace("  ", " ")


@dataclass(frozen=True)
class Settings:
    """``fixed``: {input: array} compiled as constants; ``defaults``: {input: array} used where the
    caller gives none; ``held``: initializers listed as inputs that are constants all the same;
    ``given``, ``made``: the model's inputs and outputs where some are lists; ``keys``: of inputs
    that are maps what their columns are."""

    fixed: dict[str, Array] = field(default_factory=dict, hash=False)
    defaults: dict[str, Array] = field(default_factory=dict, hash=False)
    held: tuple[str, ...] = ()
    given: tuple[Part, ...] = ()
    made: tuple[Part, ...] = ()
    keys: dict[str, tuple[str | int, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Graph:
    """``types`` maps every tensor to (dtype, shape) as far as it is known; ``declared`` maps
    those whose shape the model states, in numbers and dimensions of its inputs, to the extents,
    ``elements`` outputs to the dtype that the model states; ``stored``: initializers that are bits
    of a type that is stored only; ``texts`` of its constants, with their places; ``settled``:
    what elements of inputs must be, None of those that may be anything (``shape_inputs.py``);
    ``learnt``: what trial builds have learnt about extents; ``bounds``: {node or a result of it:
    the most elements that data may give it}; ``ranks``: {tensor: its declared extents, None: any},
    in a search alone; ``readings``: {result whose rank extents decide: which it has
    (``readings.py``)}; ``scales`` of inputs and outputs that are 8 bits in place of floats."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[str, ...]
    initializers: dict[str, Array] = field(hash=False, repr=False)
    opset: dict[str, int] = field(hash=False)
    dims: tuple[DimRange, ...] = ()
    types: dict[str, Type] = field(default_factory=dict, hash=False, repr=False)
    declared: dict[str, Shape] = field(default_factory=dict, hash=False, repr=False)
    elements: dict[str, str] = field(default_factory=dict, hash=False, repr=False)
    settings: Settings = field(default_factory=Settings, hash=False, repr=False)
    stored: dict[str, str] = field(default_factory=dict, hash=False)
    texts: dict[str, int] = field(default_factory=dict, hash=False, repr=False)
    settled: dict[str, tuple[Expr | None, ...]] = field(default_factory=dict, hash=False)
    learnt: "Learnt | None" = field(default=None, hash=False, repr=False)
    bounds: dict[str, int] = field(default_factory=dict, hash=False, repr=False)
    ranks: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict, hash=False,
                                                           repr=False)
    readings: dict[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    scales: dict[str, ByteScale] = field(default_factory=dict, hash=False)

    @property
    def syms(self) -> tuple[Sym, ...]:
        """The symbolic extents, in order of first appearance."""
        return tuple(d.sym for d in self.dims)

    def __str__(self) -> str:
        ids: dict[str, int] = {}
        lines = [f"graph {shorten(self.name)} opset " + ", ".join(
            f"{d or 'ai.onnx'} {v}" for d, v in sorted(self.opset.items()))]
        lines += [f"  sym {d}" for d in self.dims]
        for t in self.inputs:
            lines.append(f"  in {shorten(t.name)} : {show_type((t.dtype, t.shape))}")
        known = set(self.initializers) | {t.name for t in self.inputs}

        def ref(name: str) -> str:
            if not name:
                return "_"
            return shorten(name) if name in known else f"%{ids.setdefault(name, len(ids))}"

        for n in self.nodes:
            args = ", ".join(map(ref, n.inputs))
            attrs = "".join(f" {k}={show_attr(v)}" for k, v in sorted(n.attrs.items()))
            types = ", ".join(show_type(self.types.get(o)) for o in n.outputs if o)
            outs = ", ".join(ref(o) for o in n.outputs)
            lines.append(f"  {outs} = {n.op}({args}){attrs} : {types}")
        for o in self.outputs:
            lines.append(f"  out {shorten(o)} = {ref(o)} : {show_type(self.types.get(o))}")
        return "\n".join(lines)


def shorten(name: str, limit: int = 60) -> str:
    """A model's name, printable on one line."""
    text = name.encode("unicode_escape").decode()
    return text if len(text) <= limit else text[:limit - 3] + "..."


def limit_lines(lines: Sequence[str], most: int = 40) -> str:
    """Lines of a message, indented, those beyond ``most`` counted."""
    rest = [f"... and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join(f"  {line}" for line in [*lines[:most], *rest])


def show_type(t: Type | None) -> str:
    """``f32[N, 64, 56, 56]``; ``?`` if unknown."""
    return f"{t[0]}[{', '.join(map(show, t[1]))}]" if t else "?"


def show_attr(value: object) -> str:
    """An attribute on one line, large ones shortened."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, Body):
        return str(value)
    text = repr(list(value)) if isinstance(value, (tuple, list)) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

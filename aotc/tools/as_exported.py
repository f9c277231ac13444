"""Runs of a bundle beside runs of the model as it was exported: of one whose caches grow in place,
or whose inputs and outputs are 8 bits where the model has floats."""

from collections.abc import Mapping
from dataclasses import dataclass

from aotc.errors import AotcError
from aotc.ir.dtypes import Array
from aotc.ir.expr import Expr, Sym
from aotc.ir.program import Program
from aotc.oracle.eval_expr import index_value
from aotc.samples import Feeds


@dataclass(frozen=True)
class InPlace:
    """What a call with the extents ``syms`` has in the buffers of ``program.aliases``, and what the
    8-bit numbers of its inputs and outputs stand for."""

    program: Program
    syms: Mapping[str, int]

    @property
    def dims(self) -> dict[str, int]:
        """{symbol: value} of those that no input's shape tells."""
        told = {d.name for n in self.program.inputs for d in self.program.shape(n)
                if isinstance(d, Sym)}
        return {s.name: self.syms[s.name] for s in self.program.syms if s.name not in told}

    def model_feeds(self, feeds: Feeds) -> Feeds:
        """The inputs of the model as exported: of a buffer what is there before the call."""
        feeds = self._as_floats(feeds)
        return feeds | {key: self._cut(feeds[key], a.axis, a.kept) for a in self.program.aliases
                        for key in [self.program.buffers[a.past].onnx]}

    def model_outputs(self, outputs: Feeds) -> Feeds:
        """The outputs of the model as exported: of a buffer what is there after the call."""
        outputs = self._as_floats(outputs)
        return outputs | {key: self._cut(outputs[key], a.axis, a.filled)
                          for a in self.program.aliases
                          for key in [self.program.buffers[a.present].onnx]}

    def _as_floats(self, arrays: Feeds) -> Feeds:
        scales = self.program.scales
        return {n: scales[n].to_floats(a) if n in scales else a for n, a in arrays.items()}

    def _cut(self, array: Array, axis: int, count: Expr) -> Array:
        return array[(slice(None),) * axis + (slice(0, index_value(count, self.syms)),)]

    def fresh(self, feeds: Feeds) -> Feeds:
        """The inputs with a copy of what is written in place."""
        return feeds | {key: feeds[key].copy() for a in self.program.aliases
                        for key in [self.program.buffers[a.past].onnx]}


def refuse(what: str, alias: object) -> None:
    """AotcError for a tool that knows models as they were exported only."""
    if alias:
        raise AotcError(f"{what} runs the model as it was exported; leave alias out (kernels are "
                        "the same but for what is written in place)")

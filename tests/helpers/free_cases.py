"""Cases of operators with the extents of their inputs as numbers, and free."""

from dataclasses import dataclass

import numpy as np
import onnx
from operator_tables import node_cases
from standard_cases import WRONG, array_of, cases, with_parameters

from aotc.errors import AotcError
from aotc.frontend import load_model, read_graph, to_program
from aotc.passes.fold import fold_constants
from aotc.passes.inline import inline_moves


@dataclass(frozen=True)
class FreeCase:
    """One model as two Programs, as the scheduler sees them: ``pinned``, and ``program`` with free
    extents; what they are fed, by ONNX name."""

    name: str
    op: str
    pinned: object
    program: object
    given: dict

    @property
    def feeds(self):
        return fed(self.program, self.given)


def fed(program, given):
    """Feeds by buffer."""
    return {n: np.asarray(given[program.buffers[n].onnx]) for n in program.inputs}


def told(program, outputs):
    """The outputs by ONNX name, those with room for more cut to the elements that there are."""
    buffers, found = program.buffers, {}
    counts = [(buffers[n].counts, int(outputs[n])) for n in program.outputs if buffers[n].counts]
    for name in program.outputs:
        b, value = buffers[name], outputs[name]
        for n, axis in ((n, axis) for row, n in counts for t, axis in row if t == b.onnx):
            value = np.take(value, range(n), axis)
        if not b.counts:
            found[b.onnx] = value
    return found


def free_cases(own=1, standard=0, piece=slice(None)):
    """Every ``own``-th of the tables' rows and every ``standard``-th of the standard's cases (0:
    none), small inputs of these as parameters, too, of which extents can be free; a ``piece`` of
    all these."""
    found = []
    for row in list(node_cases())[::own]:
        found.append((row.name, row.op, *row.model()))
    for op, group in cases().items() if standard else ():
        for c in [c for c in group if c.name not in WRONG][::standard]:
            arrays = list(map(array_of, c.data_sets[0][0]))
            given = {i.name: a for i, a in zip(c.model.graph.input, arrays)}
            found.append((c.name, op, c.model, given))
            fixed = with_parameters(c.model, arrays)
            held = {t.name for t in fixed.graph.initializer}
            rest = [i for i in fixed.graph.input if i.name not in held]
            if rest and len(rest) < len(given):
                del fixed.graph.input[:]
                fixed.graph.input.extend(rest)
                found.append((f"{c.name}_fixed", op, fixed, {i.name: given[i.name] for i in rest}))
    made = (free_case(*f) for f in found[piece] if all(np.size(a) for a in f[-1].values()))
    return [c for c in made if c is not None]


def free_case(name, op, model, given):
    """A FreeCase of the most free extents that compile: all, those of all inputs but one, or one;
    None where the model does not compile, or with none."""
    try:
        pinned = _program(model)
    except AotcError:
        return None
    axes = [(n, k) for n, a in given.items() for k in range(np.ndim(a))]
    tries = [axes, *([x for x in axes if x[0] != n] for n in given if len(given) > 1),
             *([x] for x in axes)]
    for some in filter(None, tries):
        try:
            free = _program(_freed(model, some))
        except AotcError:
            continue
        if free.syms:
            return FreeCase(name, op, pinned, free, given)
    return None


def _program(model):
    program = to_program(read_graph(load_model(model)))
    return fold_constants(inline_moves(fold_constants(program)))


def _freed(model, axes):
    """The model with a symbol for each of ``axes``, (input, number), and nothing said of the other
    tensors' shapes."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for info in out.graph.input:
        for k, d in enumerate(info.type.tensor_type.shape.dim):
            if (info.name, k) in axes:
                d.dim_param = f"{info.name}_{k}"
    for info in out.graph.output:
        info.type.tensor_type.ClearField("shape")
    del out.graph.value_info[:]
    return out

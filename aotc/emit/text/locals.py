"""Names that would clash in C: kernels declare locals of their own around the model's axes."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from aotc.emit.text.c_names import RESERVED
from aotc.ir.expr import Axis, Expr, Var, rewrite
from aotc.ir.plan import Kernel, Nest, Range, Stage
from aotc.ir.program import Fold

# locals of the generated kernels, and what their statements call
LOCALS = frozenset("""
    f frame begin end worker tile step i l vl rows live acc acc_tile a_row b_col b_next ahead n0 m0
    turn0 sums_at k_lo x NAN INFINITY isinf isnan exp expf log logf erf erff tanh tanhf sin sinf
    cos cosf tan tanf asin asinf acos acosf atan atanf sinh sinhf cosh coshf asinh asinhf acosh
    acoshf atanh atanhf sqrt sqrtf floor floorf ceil ceilf fmod fmodf pow powf fabs fabsf nearbyint
    nearbyintf
""".split())
# fresh names (s1, acc2), work items, buffers, the runtime's names, C's types
_TAKEN = re.compile(r"([bkpsvgmxn]|acc|at|left|next|row|tap|parts?)\d+|sum\d+_\d+|(in|[dey])_\d+"
                    r"|tile_\d+|[ts]_\w+|aotc_\w+|u?int\d*_t|U?INT\w*")
_DERIVED = re.compile(r"(\w+)_(l|n|at|row|lo|hi|first|end)")  # locals made from an axis's name
_AXIS_FIELDS = ("vector", "block_axis", "taps")  # texts of a Nest that name axes


def with_safe_names(kernel: Kernel, locals_: Collection[str] = LOCALS) -> Kernel:
    """The Kernel with every loop axis and fold state renamed whose name C needs for something
    else: ``locals_`` are those that an emitter's statements declare or call.  Axes of one name (of
    different stages, say) stay of one name."""
    ranges = list(_ranges(kernel.stages))
    states = {v.name for s in kernel.stages for v in _states(s)}
    axes = {r.axis.name for r in ranges}
    used = axes | states | {v.name for v, _ in kernel.let + kernel.step_let + kernel.carried}
    named = {a: _fresh(f"{a}_axis", used) for a in sorted(axes) if a in states
             or _clashes(a, axes, locals_)}
    new: dict[Expr, Expr] = {r.axis: Axis(named[r.axis.name], r.axis.extent) for r in ranges
           if r.axis.name in named}
    for state in sorted(states):
        if _clashes(state, axes, locals_):
            text = _fresh(f"{state}_state", used)
            new |= {v: Var(text, v.dtype) for s in kernel.stages for v in _states(s)
                    if v.name == state}
    if not new:
        return kernel
    return replace(kernel, stages=tuple(_renamed(s, new, named) for s in kernel.stages))


def _clashes(name: str, axes: Collection[str], locals_: Collection[str]) -> bool:
    derived = _DERIVED.fullmatch(name)
    return name in RESERVED or name in locals_ or bool(_TAKEN.fullmatch(name)) or (
        derived is not None and derived[1] in axes)


def _fresh(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    used.add(name)
    return name


def _states(stage: Stage) -> tuple[Var, ...]:
    """State variables that come from the Program; the accumulator of plain folds is ours."""
    return stage.acc if isinstance(stage, Nest) and isinstance(stage.fold, Fold) else ()


def _ranges(value: object) -> Iterator[Range]:
    """Every Range below a stage, or a tuple of them."""
    if isinstance(value, Range):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _ranges(v)
    elif is_dataclass(value) and not isinstance(value, Expr):
        for field in fields(value):
            yield from _ranges(getattr(value, field.name))


def _renamed(value: Any, new: Mapping[Expr, Expr], named: Mapping[str, str]) -> Any:
    if isinstance(value, Expr):
        return rewrite(value, new.get)
    if isinstance(value, tuple):
        return tuple(_renamed(v, new, named) for v in value)
    if isinstance(value, Fold):
        named_states = ((new.get(Var(n, t)), n, t) for n, t in value.states)
        states = tuple((v.name if isinstance(v, Var) else n, t) for v, n, t in named_states)
        return Fold(states, _renamed(value.init, new, named), _renamed(value.update, new, named))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {field.name: _renamed(getattr(value, field.name), new, named)
               for field in fields(value)}
    changes |= {f: named.get(changes[f], changes[f]) for f in _AXIS_FIELDS
                if isinstance(changes.get(f), str)}
    return replace(value, **changes)

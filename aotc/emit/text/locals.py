"""Names that would clash in C: kernels declare locals of their own around the model's axes."""

import re
from dataclasses import fields, is_dataclass, replace

from aotc.emit.text.c_names import RESERVED
from aotc.ir.expr import Axis, Expr, Var, rewrite
from aotc.ir.plan import Range
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


def with_safe_names(kernel, locals_=LOCALS):
    """The Kernel with every loop axis and fold state renamed whose name C needs for something
    else: ``locals_`` are those that an emitter's statements declare or call.  Axes of one name (of
    different stages, say) stay of one name."""
    ranges = list(_ranges(kernel.stages))
    states = {v.name for s in kernel.stages for v in _states(s)}
    axes = {r.axis.name for r in ranges}
    used = axes | states | {v.name for v, _ in kernel.let + kernel.step_let + kernel.carried}
    named = {a: _fresh(f"{a}_axis", used) for a in sorted(axes) if a in states
             or _clashes(a, axes, locals_)}
    new = {r.axis: Axis(named[r.axis.name], r.axis.extent) for r in ranges
           if r.axis.name in named}
    for state in sorted(states):
        if _clashes(state, axes, locals_):
            text = _fresh(f"{state}_state", used)
            new |= {v: Var(text, v.dtype) for s in kernel.stages for v in _states(s)
                    if v.name == state}
    if not new:
        return kernel
    return replace(kernel, stages=tuple(_renamed(s, new, named) for s in kernel.stages))


def _clashes(name, axes, locals_):
    derived = _DERIVED.fullmatch(name)
    return name in RESERVED or name in locals_ or _TAKEN.fullmatch(name) or (
        derived is not None and derived[1] in axes)


def _fresh(name, used):
    while name in used:
        name += "_"
    used.add(name)
    return name


def _states(stage):
    """State variables that come from the Program; the accumulator of plain folds is ours."""
    return () if isinstance(getattr(stage, "fold", ""), str) else stage.acc


def _ranges(value):
    """Every Range below a stage, or a tuple of them."""
    if isinstance(value, Range):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _ranges(v)
    elif is_dataclass(value) and not isinstance(value, Expr):
        for field in fields(value):
            yield from _ranges(getattr(value, field.name))


def _renamed(value, new, named):
    if isinstance(value, Expr):
        return rewrite(value, new.get)
    if isinstance(value, tuple):
        return tuple(_renamed(v, new, named) for v in value)
    if isinstance(value, Fold):
        states = tuple((new.get(Var(n, t), Var(n, t)).name, t) for n, t in value.states)
        return Fold(states, _renamed(value.init, new, named), _renamed(value.update, new, named))
    if not is_dataclass(value):
        return value
    changes = {field.name: _renamed(getattr(value, field.name), new, named)
               for field in fields(value)}
    changes |= {f: named.get(changes[f], changes[f]) for f in _AXIS_FIELDS
                if isinstance(changes.get(f), str)}
    return replace(value, **changes)

"""Names that would clash in C: kernels declare locals of their own around the model's axes."""

import re
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass, replace
from typing import Any

from aotc.emit.text.c_names import RESERVED
from aotc.ir.expr import Axis, Expr, Load, Var, rewrite
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    FIRST,
    OWN,
    Declare,
    Section,
    bound_axes,
    walk_body,
)

# locals of the generated kernels, and what their statements call
LOCALS = frozenset("""
    f frame begin end worker tile step next slot i j l vl rows live acc acc_tile sum columns a_row
    a_rows b_col left
    b_next ahead n0 m0 turn0 sums_at k_lo panel x NAN INFINITY isinf isnan exp expf log logf erf
    erff tanh tanhf sin sinf cos cosf tan tanf asin asinf acos acosf atan atanf sinh sinhf cosh
    coshf asinh asinhf acosh acoshf atanh atanhf sqrt sqrtf floor floorf ceil ceilf fmod fmodf
    pow powf fabs fabsf nearbyint nearbyintf
""".split())
# fresh names (s1, acc2), work items, buffers, the runtime's names, C's types
_TAKEN = re.compile(r"([bkpsvgmxn]|acc|at|left|next|row|tap|parts?)\d+|(in|[dey])_\d+"
                    r"|tile_\d+"
                    r"|(piece|digits?|place|later|line|element|total|same|bound)\d+"
                    r"|[ts]_\w+|aotc_\w+|u?int\d*_t|U?INT\w*")
_DERIVED = re.compile(r"(\w+)_(l|n|at|row|lo|hi|first|end)")  # locals made from an axis's name


def with_safe_names(kernel: Kernel, locals_: Collection[str] = LOCALS) -> Kernel:
    """The Kernel with every loop axis and fold state renamed whose name C needs for something
    else: ``locals_`` are those that an emitter's statements declare or call.  Axes of one name (of
    different stages, say) stay of one name.  Names that lowering made up lose their mark."""
    inside = [s for top in walk_body(kernel.body) if isinstance(top, Section)
              for s in walk_body(top.body)]
    bound = {a for s in inside for a in bound_axes(s) if not a.name.startswith(OWN)}
    states = {s.var.name for s in inside if isinstance(s, Declare)
              and not s.var.name.startswith(OWN)}
    axes = {a.name for a in bound}
    used = axes | states | {v.name for v, _ in kernel.lowered.lets + kernel.lowered.carried}
    named = {a: _fresh(f"{a}_axis", used) for a in sorted(axes) if a in states
             or _clashes(a, axes, locals_)}
    named |= {s: _fresh(f"{s}_state", used) for s in sorted(states) if _clashes(s, axes, locals_)}

    def renamed(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer.startswith(OWN) and e.buffer.endswith("_at"):
            axis = e.buffer.removeprefix(OWN).removesuffix("_at")
            return replace(e, buffer=f"{OWN}{named[axis]}_at") if axis in named else None
        if not isinstance(e, (Axis, Var)):
            return None
        if e.name.startswith(FIRST):
            name = e.name.removeprefix(FIRST)
            assert isinstance(e, Axis), e
            # the variable of the lanes' axis, which no lane moves: its extent makes it another axis
            return Axis(named.get(name, name), simplify(e.extent + 1))
        if e.name.startswith(OWN):
            return replace(e, name=e.name.removeprefix(OWN))
        known = e in bound or isinstance(e, Var) and e.name in states
        return replace(e, name=named[e.name]) if known and e.name in named else None

    return replace(kernel, body=_renamed(kernel.body, renamed),
                   arrays=_renamed(kernel.arrays, renamed))


def _clashes(name: str, axes: Collection[str], locals_: Collection[str]) -> bool:
    derived = _DERIVED.fullmatch(name)
    return name in RESERVED or name in locals_ or bool(_TAKEN.fullmatch(name)) or (
        derived is not None and derived[1] in axes)


def _fresh(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    used.add(name)
    return name


def _renamed(value: Any, new: Callable[[Expr], Expr | None]) -> Any:
    if isinstance(value, Expr):
        return rewrite(value, new)
    if isinstance(value, tuple):
        return tuple(_renamed(v, new) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{field.name: _renamed(getattr(value, field.name), new)
                             for field in fields(value)})

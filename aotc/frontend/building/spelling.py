"""Operators spelt in ONNX operators, which are built in the node's place one after another: their
tensor expressions, and so their kernels, are those of the same model written out.

    @spells("BiasGelu", "x bias")
    def bias_gelu(s: Spelling) -> Result:
        return s("Gelu", s("Add", s.val("x"), s.val("bias")), out=0)
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import onnx

from aotc.errors import ModelError
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.known import choose_element
from aotc.frontend.building.registry import op
from aotc.frontend.building.stored import WIDE, convert_to_stored, widen_stored
from aotc.frontend.building.values import Result, Val
from aotc.frontend.graph import Node, shorten
from aotc.frontend.refusals import Refusal
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Expr, ExprLike, as_expr

MICROSOFT = "com.microsoft"
NEWEST = onnx.defs.onnx_opset_version()


class Spelling:
    """The current node of the Builder ``b``, being spelt; ``inputs`` are its inputs by name."""

    def __init__(self, b: Builder, inputs: dict[str, Val | None]) -> None:
        self.b, self.node, self.inputs = b, b.node, inputs
        self.made: list[str] = []  # tensors that are there while the node is being built
        self._names: dict[int, str] = {}  # id of a Val in the environment -> its name there

    # ------------------------------------------------------------ what the node is given

    def opt(self, name: str) -> Val | None:
        """An input, None if it is missing."""
        return self.inputs[name]

    def val(self, name: str) -> Val:
        """An input that the node must have: ModelError where it is missing."""
        v = self.inputs[name]
        if v is None:
            raise self.b.bad(f"input {name!r} is missing")
        return v

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the node."""
        return self.node.attr(name, default)

    def given(self, name: str) -> Any:
        """An attribute that the node must have: ModelError where it is missing."""
        if name not in self.node.attrs:
            raise self.b.bad(f"attribute {name!r} is missing")
        return self.node.attrs[name]

    def wants(self, out: int) -> bool:
        """True if the model names output ``out``."""
        return out < len(self.node.outputs) and bool(self.node.outputs[out])

    # ------------------------------------------------------------ what it stands for

    def __call__(self, op: str, *vals: Val | None, out: int | None = None, opset: int = NEWEST,
                 **attrs: Any) -> Val:
        """Build an ONNX operator with one output, the node's output ``out`` if it is that."""
        return self.several(op, vals, (out,), opset, **attrs)[0]

    def several(self, op: str, vals: Sequence[Val | None], outs: Sequence[int | None],
                opset: int = NEWEST, **attrs: Any) -> list[Val]:
        """Build an ONNX operator: a Val for each of ``outs``, the numbers of the node's outputs
        that they are (None: none of them)."""
        b, label = self.b, f"{self.node.label}/{op}"
        names = tuple(self.node.outputs[k] if k is not None and self.wants(k)
                      else self._fresh(f"{label}_{n}") for n, k in enumerate(outs))
        inner = Node(op, "", tuple("" if v is None else self._name(v) for v in vals), names,
                     attrs, label, opset, self.node.origin or (self.node.label,))
        assert b.run_node is not None, inner
        b.run_node(inner, b)
        b.node = self.node
        return [self._seen(b.tensor(name), name) for name in names]

    def ints(self, *values: int) -> Val:
        """A constant list of integers."""
        return self.b.const(np.array(values, np.int64))

    def number(self, value: float, dtype: str) -> Val:
        """A constant number; f16 as such."""
        return self.b.const(np.array(value, DTYPES[dtype].numpy))

    def dims(self, *extents: ExprLike) -> Val:
        """A list of extents, which may depend on symbols."""
        shape = tuple(map(as_expr, extents))
        return self.b.value((len(shape),), lambda index: choose_element(shape, index[0]))

    def places(self, extent: Expr, first: ExprLike = 0) -> Val:
        """first, first + 1, ..: as many as ``extent``."""
        return self.b.value((extent,), lambda index: index[0] + first)

    def reshape(self, v: Val, *extents: ExprLike, out: int | None = None) -> Val:
        return self("Reshape", v, self.dims(*extents), out=out)

    def transpose(self, v: Val, *perm: int, out: int | None = None) -> Val:
        return self("Transpose", v, out=out, perm=perm)

    def spread(self, v: Val, *axes: int) -> Val:
        """``v`` with new dimensions of extent 1 at ``axes`` of the result."""
        return self("Unsqueeze", v, self.ints(*axes))

    def cut(self, v: Val, axis: int, first: ExprLike, last: ExprLike, step: int = 1,
            out: int | None = None) -> Val:
        """``v[first:last:step]`` along ``axis``."""
        return self("Slice", v, self.dims(first), self.dims(last), self.ints(axis),
                    self.ints(step), out=out)

    def cast(self, v: Val, dtype: str) -> Val:
        """``v`` as another dtype, itself if it is of that one."""
        to = onnx.helper.np_dtype_to_tensor_dtype(DTYPES[dtype].numpy)
        return v if v.dtype == dtype else self("Cast", v, to=to)

    # ------------------------------------------------------------ names

    def _fresh(self, text: str) -> str:
        name = f"{text}_{len(self.made)}"
        while name in self.b.env:
            name += "_"
        self.made.append(name)
        return name

    def _name(self, v: Val) -> str:
        if id(v) not in self._names:
            name = self._fresh(f"{self.node.label}/given")
            self.b.env[name] = v
            self._seen(v, name)
        return self._names[id(v)]

    def _seen(self, v: Val, name: str) -> Val:
        self._names.setdefault(id(v), name)
        return v

    def forget(self) -> None:
        """Take the names of tensors inside the node out of the environment."""
        for name in self.made:
            self.b.env.pop(name, None)


F = TypeVar("F", bound=Callable[[Spelling], Result])


def spells(name: str, inputs: str, attrs: str = "", only: Mapping[str, Any] | None = None,
           domain: str = MICROSOFT, kinds: str = "f", more: bool = False) -> Callable[[F], F]:
    """Decorator: register the spelling of an operator.

    inputs: the names of its inputs in order, those that are not compiled with a ``-`` before them;
    attrs: those of the attributes that the function reads; only: attributes that must have these
    values; kinds: of the first input's dtype; more: behind its inputs there are others, which the
    function reads itself.  A node with anything else is refused.
    """
    names, known = inputs.split(), frozenset(attrs.split())

    def register(fn: F) -> F:
        def build(node: Node, b: Builder) -> Result:
            _check_attributes(b, known, only or {})
            s = Spelling(b, _inputs(b, names, more))
            kept = _numbers(s)
            _need(b, s.val(names[0]), kinds)
            try:
                return _rounded(b, node, fn(s), kept)
            except (Refusal, ModelError) as err:
                b.node = node
                raise _of_node(b, err) from None
            finally:
                b.node = node
                s.forget()
        op(name, domain=domain, spelt=True)(build)
        return fn
    return register


def _numbers(s: Spelling) -> str:
    """Replace inputs that are floats of a type that is stored only by their numbers; the type, ""
    for none."""
    kept = ""
    for name, v in s.inputs.items():
        if v is not None and _small(v):
            kept = kept or v.stored
            s.inputs[name] = widen_stored(s.b, v, s.node)
    if kept:
        s.node = replace(s.node, outputs=tuple(o and f"{o} as numbers" for o in s.node.outputs))
        s.b.node = s.node
    return kept


def _small(v: Val) -> bool:
    return v.stored == "bf16" or v.stored[:1] == "f"


def _need(b: Builder, v: Val, kinds: str) -> None:
    """UnsupportedError unless the dtype's kind is among ``kinds``."""
    if not v.stored:
        b.need(v, kinds)
    elif v.stored[0] not in kinds:
        raise b.unsupported(f"dtype {v.stored}", "cast to a supported dtype first")


def _rounded(b: Builder, node: Node, made: Result, kept: str) -> Result:
    """The results, floats as the stored type ``kept``."""
    if not kept:
        return made
    b.node = node
    vals = made if isinstance(made, tuple) else (made,)
    out = tuple(convert_to_stored(b, v, kept, k) if isinstance(v, Val) and v.dtype == WIDE else v
                for k, v in enumerate(vals))
    b.wide.update((o, v) for o, v in zip(out, vals) if isinstance(v, Val) and isinstance(o, Val)
                  and o.stored)
    return out


def _of_node(b: Builder, err: Refusal | ModelError) -> Refusal | ModelError:
    """The error as one of the current node, which may come from an operator that it stands for."""
    if isinstance(err, Refusal):
        return err if err.label == b.node.label else b.unsupported(
            f"{err.what} (in its {err.op})", err.instead)
    text = str(err)
    return err if text.startswith(b.where()) else b.bad(f"in what it stands for, {text}")


def _inputs(b: Builder, names: Sequence[str], more: bool) -> dict[str, Val | None]:
    """The inputs by name; UnsupportedError for one that is not compiled."""
    args = b.args()
    if len(args) > len(names) and not more:
        raise b.unsupported(f"{len(args)} inputs", f"give it at most {len(names)}: "
                            + ", ".join(n.lstrip("-") for n in names))
    taken = {n: args[k] if k < len(args) else None for k, n in enumerate(names)}
    for name, v in taken.items():
        if v is not None and name.startswith("-"):
            raise b.unsupported(f"the input {name[1:]!r}", "export the model without it")
    return taken


def _check_attributes(b: Builder, known: Collection[str], only: Mapping[str, Any]) -> None:
    """UnsupportedError for attributes that the operator's function does not look at."""
    for name, value in sorted(b.node.attrs.items()):
        if name in known or name in only and value == only[name]:
            continue
        if name in only:
            raise b.unsupported(f"the attribute {name} = {shorten(str(value))}",
                                f"export the model with {name} = {only[name]!r}")
        raise b.unsupported(f"an unknown attribute {shorten(name)!r}",
                            "export the model without it")


__all__ = ["MICROSOFT", "Spelling", "spells"]

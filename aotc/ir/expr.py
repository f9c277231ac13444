"""The one expression language, for values and for indices (grammar: docs/ir.md).

    expr = Const(value, dtype) | Axis(name, extent) | Sym(name, lo, hi, likely) | Var(name, dtype)
         | Load(buffer, index, dtype) | Cast(dtype, x)
         | Unary(op, x) | Binary(op, a, b) | Guarded(op, a, b, why) | Where(cond, a, b)

Nodes are frozen; equal ones are one object.  Integer arithmetic on indices is int64 with floor
division and floor modulo.  ``a + b`` on expressions builds nodes; ``simplify`` (simplify.py) brings
index arithmetic into normal form.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from operator import attrgetter, is_
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform
from weakref import WeakValueDictionary

from aotc.ir.dtypes import INDEX, is_float

ARITH = ("add", "sub", "mul", "div", "floordiv", "mod", "min", "max", "pow",
         "and", "or", "xor", "shl", "shr")
GUARDS = ("checked", "expected")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
UNARY = ("neg", "abs", "sqrt", "exp", "log", "erf", "tanh", "sin", "cos", "tan", "asin", "acos",
         "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil", "round", "sign",
         "not", "isnan", "isinf", "bits", "float")
AS_BITS = {"f64": "u64", "f32": "u32", "f16": "u16"}  # bits(x): the bits of a float as an integer
# float(x): the float that has these bits, of bf16 in its upper half
AS_FLOAT = {u: f for f, u in AS_BITS.items()} | {"bf16": "f32"}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
          "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
          "and": "&", "or": "|", "xor": "^"}


_LOCK = RLock()  # reentrant: making a node may have the collector forget others


class _Unique(type):
    """Makes of a node that equals a living one that one: equality and hash are those of objects,
    and what is kept with a node is known wherever an equal one is written again."""

    arity: int  # so many arguments are the key themselves
    key: Callable[[Any], tuple[Any, ...]]  # of a node: what makes it equal to one of its type

    def __init__(cls, *args: Any) -> None:
        super().__init__(*args)
        cls.nodes: Any = WeakValueDictionary()  # by their keys; stubs know nothing of its ``data``

    def __call__(cls, *args: Any, **named: Any) -> Any:
        # in the dict beneath: a WeakValueDictionary's own methods are Python
        found = None if named or len(args) != cls.arity else cls.nodes.data.get(args)
        if found is not None and (known := found()) is not None:
            return known
        node = super().__call__(*args, **named)
        with _LOCK:
            return cls.nodes.setdefault(cls.key(node), node)


class Expr(metaclass=_Unique):
    """Base of all nodes; never instantiated."""

    __slots__ = ()

    if TYPE_CHECKING:  # every node has one, as a field or by a rule

        @property
        def dtype(self) -> str: ...

        __match_args__: ClassVar[tuple[str, ...]]

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # pickles and copies are the node that lives where they are opened
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def __add__(self, other: "ExprLike") -> "Expr":
        return binary("add", self, other)

    def __radd__(self, other: "ExprLike") -> "Expr":
        return binary("add", other, self)

    def __sub__(self, other: "ExprLike") -> "Expr":
        return binary("sub", self, other)

    def __rsub__(self, other: "ExprLike") -> "Expr":
        return binary("sub", other, self)

    def __mul__(self, other: "ExprLike") -> "Expr":
        return binary("mul", self, other)

    def __rmul__(self, other: "ExprLike") -> "Expr":
        return binary("mul", other, self)

    def __floordiv__(self, other: "ExprLike") -> "Expr":
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: "ExprLike") -> "Expr":
        return binary("floordiv", other, self)

    def __mod__(self, other: "ExprLike") -> "Expr":
        return binary("mod", self, other)

    def __truediv__(self, other: "ExprLike") -> "Expr":
        return binary("div", self, other)

    def __neg__(self) -> "Expr":
        return Unary("neg", self)

    def __str__(self) -> str:
        return show(self)


ExprLike = Expr | float  # a Python number takes the dtype of what it meets
Shape = tuple[Expr, ...]
E = TypeVar("E", bound=Expr)
R = TypeVar("R")
T = TypeVar("T")


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
def _node(cls: type[E]) -> type[E]:
    """Frozen dataclass of which equal nodes are one object, see ``_Unique``."""
    cls = dataclass(frozen=True, eq=False, repr=True)(cls)
    cls.arity = cls.__dict__.get("arity", len(cls.__match_args__))
    cls.key = cls.__dict__.get("key") or attrgetter(*cls.__match_args__)
    return cls


def keep_result(fn: Callable[[T], R]) -> Callable[[T], R]:
    """``fn(value)`` of a frozen dataclass, such as a node, computed once per object and kept with
    it: what is asked again and again, and small beside it."""
    name = f"_{fn.__name__}"

    @wraps(fn)
    def once(e: T) -> R:
        found: R | None = getattr(e, name, None)  # e.__dict__ would have to be made
        if found is None:
            object.__setattr__(e, name, found := fn(e))
        return found

    return once


@_node
class Const(Expr):
    """A scalar.  ``value`` is a Python int, float or bool; floats compare by what they print, so
    that NaN equals itself and -0.0 differs from 0.0."""

    value: Any  # which of the three, only the dtype says
    dtype: str = INDEX

    arity: ClassVar[int] = 1

    def key(self) -> tuple[object, ...]:
        """What makes it equal to another."""
        return (self.value,) if self.dtype == INDEX else (repr(self.value), self.dtype)

    def __post_init__(self) -> None:
        if is_float(self.dtype):
            object.__setattr__(self, "value", float(self.value))
        elif self.dtype == "bool":
            object.__setattr__(self, "value", bool(self.value))
        else:
            object.__setattr__(self, "value", int(self.value))


@_node
class Axis(Expr):
    """A loop variable in 0 .. extent-1; the name is unique within its Compute."""

    name: str
    extent: Expr

    @property
    def dtype(self) -> str:
        return INDEX


@_node
class Sym(Expr):
    """A symbolic extent, known at run time, lo <= value <= hi (both inclusive, lo >= 0).  hi None:
    any extent; decisions then reckon with ``likely`` as the largest.  ``usual``: the value that
    they count work by (0: chosen by rule)."""

    name: str
    lo: int = 1
    hi: int | None = 2048
    likely: int = 0
    usual: int = 0

    @property
    def dtype(self) -> str:
        return INDEX

    @property
    def reach(self) -> int:
        """The largest value that decisions reckon with; never a bound where hi is None."""
        return max(self.lo, self.likely) if self.hi is None else self.hi

    @property
    def range(self) -> str:
        """``1..2048``, or ``1..`` without an end."""
        return f"{self.lo}..{'' if self.hi is None else self.hi}"


@_node
class Var(Expr):
    """A local scalar: a fold's state or element, an accumulator, a tile origin."""

    name: str
    dtype: str = INDEX


@_node
class Load(Expr):
    """An element of a buffer; ``index`` has one expression per dimension."""

    buffer: str
    index: tuple[Expr, ...]
    dtype: str


@_node
class Cast(Expr):
    """Conversion as in C, floats to integers truncate toward zero, anything to bool is != 0."""

    dtype: str
    x: Expr


@_node
class Unary(Expr):
    op: str
    x: Expr

    @property
    def dtype(self) -> str:
        if self.op in ("bits", "float"):
            return AS_BITS[self.x.dtype] if self.op == "bits" else AS_FLOAT[self.x.dtype]
        return "bool" if self.op in ("not", "isnan", "isinf") else self.x.dtype


@_node
class Binary(Expr):
    op: str
    a: Expr
    b: Expr
    dtype: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", "bool" if self.op in COMPARE else self.a.dtype)


@_node
class Guarded(Binary):
    """A value from data with a rule.  ``checked(i, n)`` is i, and a fault at run time unless
    0 <= i < n; ``expected(i, n)`` is i, and a fault unless i == n.  ``why``: what the fault says,
    of the ONNX node that has the rule."""

    why: str = ""


@_node
class Where(Expr):
    """a if cond else b; the branch not taken is never evaluated (its loads may be outside)."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


def as_expr(x: ExprLike) -> Expr:
    """An int becomes an index constant, an Expr stays itself."""
    return x if isinstance(x, Expr) else Const(int(x))


def int_of(e: Expr) -> int:
    """The value of an integer constant.  TypeError for another expression."""
    if not isinstance(e, Const) or isinstance(e.value, float):
        raise TypeError(f"{e} is no integer that is known while compiling")
    return int(e.value)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Binary node with Python numbers lifted to the other side's dtype; folds trivial cases."""
    if not isinstance(a, Expr):
        a = Const(a, b.dtype if isinstance(b, Expr) else INDEX)
    if not isinstance(b, Expr):
        b = Const(b, a.dtype)
    if a.dtype != b.dtype:
        raise TypeError(f"{op}: {a} is {a.dtype} but {b} is {b.dtype}")
    if a.dtype == INDEX:
        folded = _fold_index(op, a, b)
        if folded is not None:
            return folded
    if op in _OF_ITSELF and a == b and not is_float(a.dtype) and not any(
            isinstance(n, Guarded) for n in walk(a)):
        return Const(_OF_ITSELF[op], "bool")
    return Binary(op, a, b)


# what compares with itself, NaN apart: C compilers object to such text
_OF_ITSELF = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}


def _fold_index(op: str, a: Expr, b: Expr) -> Expr | None:
    av = a.value if isinstance(a, Const) else None
    bv = b.value if isinstance(b, Const) else None
    if av is None and bv is None:
        return None
    if av is not None and bv is not None and op in _INT_FOLD and not (
            op in ("floordiv", "mod") and bv == 0):
        return Const(_INT_FOLD[op](av, bv))
    if (op, bv) in (("add", 0), ("sub", 0), ("mul", 1), ("floordiv", 1)):
        return a
    if (op, av) in (("add", 0), ("mul", 1)):
        return b
    if op == "mul" and 0 in (av, bv) or (op, bv) == ("mod", 1):
        return Const(0)
    return None


_INT_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    return binary(op, a, b)


def check_index(i: Expr, n: ExprLike, why: str = "") -> Guarded:
    """Index ``i`` from data into an extent ``n``; see ``Guarded``."""
    return Guarded("checked", i, as_expr(n), why)


def all_hold(conds: Iterable[Expr]) -> Expr | None:
    """Conjunction of bool expressions; None if there are none."""
    return _joined("and", conds)


def any_holds(conds: Iterable[Expr]) -> Expr | None:
    """Disjunction of bool expressions; None if there are none."""
    return _joined("or", conds)


def _joined(op: str, conds: Iterable[Expr]) -> Expr | None:
    out: Expr | None = None
    for c in conds:
        out = c if out is None else Binary(op, out, c)
    return out


_CHILDREN: dict[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    Load: attrgetter("index"), Cast: lambda e: (e.x,), Unary: lambda e: (e.x,),
    Binary: attrgetter("a", "b"), Guarded: attrgetter("a", "b"),
    Where: attrgetter("cond", "a", "b")}


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, in order."""
    found = _CHILDREN.get(type(e))
    return found(e) if found else ()


def with_children(e: Expr, kids: Sequence[Expr]) -> Expr:
    """The same node over other children; the same object if nothing changed."""
    if all(map(is_, children(e), kids)):
        return e
    if isinstance(e, Load):
        return Load(e.buffer, tuple(kids), e.dtype)
    if isinstance(e, Cast):
        return Cast(e.dtype, *kids)
    if isinstance(e, Unary):
        return Unary(e.op, *kids)
    if isinstance(e, Guarded):
        a, b = kids
        return Guarded(e.op, a, b, e.why)
    if isinstance(e, Binary):
        return binary(e.op, *kids)
    return Where(*kids)


def rewrite(e: Expr, fn: Callable[[Expr], Expr | None],
            memo: dict[Expr, Expr] | None = None) -> Expr:
    """Bottom-up: rebuild children, then ``fn(node)`` returns a new node or None to keep it."""
    memo = {} if memo is None else memo
    known = memo.get(e)
    if known is not None:
        return known
    kids = children(e)
    new = with_children(e, [rewrite(k, fn, memo) for k in kids]) if kids else e
    out = fn(new)
    memo[e] = result = new if out is None else out
    return result


def substitute(e: Expr, mapping: Mapping[E, Expr]) -> Expr:
    """Replace whole nodes (usually Axis or Var) by expressions, all at once: what was put in is
    not looked up again."""
    if all(isinstance(k, (Axis, Sym, Var, Load)) for k in mapping) and leaves(e).isdisjoint(
            mapping):
        return e
    return rewrite(e, lambda node: None, dict(mapping.items()))


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node of expressions, parents before children."""
    seen: set[Expr] = set()
    todo = [*reversed(roots)]
    while todo:
        n = todo.pop()
        if n not in seen:
            seen.add(n)
            yield n
            todo.extend(reversed(children(n)))


@keep_result
def loads(e: Expr) -> tuple[Load, ...]:
    """Tuple of the distinct Load nodes in a stable order."""
    return tuple(n for n in walk(e) if isinstance(n, Load))


@keep_result
def leaves(e: Expr) -> frozenset[Expr]:
    """Frozen set of the names and loads in ``e``: what loops, symbols and memory decide."""
    return frozenset((e,) if isinstance(e, (Axis, Sym, Var, Load)) else ()).union(
        *map(leaves, children(e)))


def contains(e: Expr, node: Expr) -> bool:
    """True if ``node`` is or occurs in ``e``."""
    if isinstance(node, (Axis, Sym, Var, Load)):
        return node in leaves(e)
    return e == node or any(contains(k, node) for k in children(e))


def depends_on_data(e: Expr) -> bool:
    """True if an index expression looks at a tensor or at what a stage has folded."""
    return any(isinstance(n, (Load, Var)) for n in leaves(e))


@keep_result
def _axes(e: Expr) -> frozenset[Axis]:
    return frozenset(n for n in walk(e) if isinstance(n, Axis))


def axes_of(e: Expr) -> set[Axis]:
    """Set of Axis nodes that occur in ``e``; the caller's own."""
    return set(_axes(e))


_PREC = {"or": 1, "xor": 1, "and": 2, "lt": 3, "le": 3, "gt": 3, "ge": 3, "eq": 3, "ne": 3,
         "add": 4, "sub": 4, "mul": 5, "div": 5, "floordiv": 5, "mod": 5}


def show(e: Expr, prec: int = 0) -> str:
    """Text form: ``t11[n, ic, oh + kh] * W3[oc, ic, kh]``."""
    if isinstance(e, Const):
        return repr(e.value) if e.dtype in (INDEX, "bool", "f32") else f"{e.value}:{e.dtype}"
    if isinstance(e, (Axis, Sym, Var)):
        return e.name
    if isinstance(e, Load):
        return f"{e.buffer}[{', '.join(map(show, e.index))}]"
    if isinstance(e, Cast):
        return f"{e.dtype}({show(e.x)})"
    if isinstance(e, Unary):
        return f"-{show(e.x, 6)}" if e.op == "neg" else f"{e.op}({show(e.x)})"
    if isinstance(e, Where):
        return f"where({show(e.cond)}, {show(e.a)}, {show(e.b)})"
    assert isinstance(e, Binary)
    if e.op not in _INFIX:
        return f"{e.op}({show(e.a)}, {show(e.b)})"
    text = _index_text(e) if e.dtype == INDEX else _infix(e)
    return f"({text})" if _PREC[e.op] < prec else text


def _infix(e: Binary) -> str:
    p = _PREC[e.op]
    return f"{show(e.a, p)} {_INFIX[e.op]} {show(e.b, p + 1)}"


_index_text = keep_result(_infix)  # of arithmetic on indices, whose parts are shown again and again

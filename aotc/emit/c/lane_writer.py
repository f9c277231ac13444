"""Statements -> C text: scalars, and vectors between lanes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from aotc.emit.c.arrays import address, element
from aotc.emit.c.loop_text import fitted_loop, indent, lane_loop
from aotc.emit.c.narrow_lanes import integers
from aotc.emit.c.scalar_writer import ScalarWriter, neutral_text
from aotc.emit.c.scalars import LEVEL, LocalNames, Scalars
from aotc.emit.c.vector_stores import store_lines
from aotc.emit.c.vectors import Vectors, is_scalar
from aotc.emit.text.cexpr import c_index, c_size
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.env import KernelEnv
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES, INDEX
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Var, Where
from aotc.ir.numbers.fixed_point import is_fixed
from aotc.ir.numbers.narrow import is_lane_value
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    ACC_TILE,
    SUMS,
    Accumulate,
    Box,
    Copy,
    For,
    Let,
    Prefetch,
    Range,
    Start,
    Stmt,
    Store,
    Total,
    Update,
    walk_body,
)


@dataclass
class Lanes:
    """What a body between lanes is written with: the axis of the lanes, the dialect, C text of the
    number of live lanes ("" = all), and the C names of vectors, which are ``sums`` or other
    folds."""

    axis: Axis
    say: Dialect
    count: str = ""
    names: dict[Var, str] = field(default_factory=dict)
    sums: bool = False


class LaneWriter(ScalarWriter):
    """C text of one kernel's statements.  ``lanes``: where they are between lanes; ``across``:
    vectors that begin outside of the lanes over which their values are folded, each of a width
    of its own (``dialects``); ``tile_vectors``: of columns in the register tile at work."""

    env: KernelEnv

    def __init__(self, env: KernelEnv, names: LocalNames) -> None:
        super().__init__(env, names)
        self.lanes: Lanes | None = None
        self.across: dict[Var, str] = {}
        self.dialects: dict[Var, Dialect] = {}
        self.tile_vectors = 0

    def together(self, body: Sequence[Stmt]) -> int:
        return super().together(body) if self.lanes is None else 1

    def loop(self, s: For) -> list[str]:
        if s.kind != "lanes" or is_scalar(self.env["dialect"]) and not _in_lanes(s.body):
            return super().loop(s if s.kind != "lanes" else replace(s, kind="serial"))
        r, say = Range(s.axis, s.lo, s.hi), self.env["dialect"].of_width(s.group)

        def body(count: str, say: Dialect) -> list[str]:
            self.lanes = Lanes(s.axis, say, count, dict(self.across))
            lines = self.body(s.body)
            self.lanes = None
            return lines

        if s.narrow:
            return fitted_loop(r, say, body, s.group)
        if s.step == 1:
            return lane_loop(r, say, body, names_in(s.body))
        name, hi = s.axis.name, c_index(s.hi, 11)  # whole vectors, several at a time
        return [f"for (int64_t {name} = {c_index(s.lo, 0)}; {name} < {hi}; {name} += {s.step}) {{",
                *indent(body("", say)), "}"]

    def _vectors(self, lanes: Lanes, roots: Sequence[Expr]) -> Vectors:
        return Vectors(self.env, self.names, lanes.axis, lanes.say, lanes.count, roots,
                       dict(lanes.names))

    def let(self, s: Let) -> list[str]:
        """A name; between lanes it is a vector's, unless it is an index."""
        if self.lanes is None or s.var.dtype in (INDEX, "bool"):
            return self.lets([s])
        block = self._vectors(self.lanes, (s.value,))
        say, value, name = self.lanes.say, s.value, s.var.name
        assert isinstance(s.var, Var), s  # an axis is an index
        if isinstance(value, Load):
            return self._loaded(s.var, value, block, self.lanes)
        self.lanes.names[s.var] = name
        if isinstance(value, Where):  # a load, zero where its flags fail
            zero = say.define(name, block.text(value.b))
            text = block.text(value.a)
            return [zero, f"if ({c_index(value.cond, 0)}) {{",
                    *indent(block.lines + [f"{name} = {text};"]), "}"]
        steps: list[Binary] = []
        while isinstance(value, Binary) and value.op == "add" and _is_multiple(value.b):
            assert isinstance(value.b, Binary), value  # rest + constant * value
            steps.insert(0, value.b)
            value = value.a
        if not steps:
            text = block.text(value)
            return [*block.lines, say.constant(name, text)]
        lines = [say.define(name, block.text(value))]
        lines += [say.fma(block.operand(x.a), block.operand(x.b), name) for x in steps]
        return block.lines + lines

    def _loaded(self, var: Var, load: Load, block: Vectors, lanes: Lanes) -> list[str]:
        """A vector that is loaded; a scalar where it is the same in all lanes and the dialect takes
        those; the sums of a tile in memory, of which there are whole vectors."""
        name, say = var.name, lanes.say
        if load.buffer == SUMS:
            lanes.names[var] = self._sum(load.index[0], say)
            lanes.sums = True
            return []
        if load.buffer == ACC_TILE:
            at = f"{self.env['buffer'](load.buffer)} + {c_index(load.index[0], 13)}"
            one = element(self.env, load.buffer, load.index[0], c_index)
            lanes.names[var] = name = self.names.fresh("acc")
            lanes.sums = True
            return [say.constant(name, one if is_scalar(say) else say.load_tile(at))
                    if var.dtype == "f32" else
                    say.int_constant(name, say.int_load("i32", at))]
        if load.dtype == "i32":
            lanes.names[var] = name
            text = integers(block, load)
            return [*block.lines, say.int_constant(name, text)]
        found = block.operand(load)
        if found.fixed:
            return [*block.lines, f"const float {name} = {found};"]
        lanes.names[var] = name
        return [*block.lines, say.constant(name, found)]

    # ------------------------------------------------------------ folds

    def start(self, s: Start) -> list[str]:
        if self.lanes is not None:
            name = self.lanes.names[s.var] = self.names.fresh("acc")
            self.lanes.sums = s.fold == "sum"
            return [self.lanes.say.define(name, self.lanes.say.splat(neutral_text(s.fold, "f32")))]
        if s.across and not self._is_plain(s.var):
            name, say = self.names.fresh("acc"), self.env["dialect"].of_width(s.across)
            self.across[s.var], self.dialects[s.var] = name, say
            return [say.define_across(name, neutral_text(s.fold, s.var.dtype))]
        return super().start(s)

    def accumulate(self, s: Accumulate) -> list[str]:
        if self.lanes is None:
            return super().accumulate(s)
        block = self._vectors(self.lanes, [e for _, e in s.steps])
        lines: list[str] = []
        for v, e in s.steps:
            text = self._lane_step(s.fold, v, e, block)
            lines += [*block.lines, text]
            block.lines = []
        return lines

    def _lane_step(self, fold: str, acc: Var, value: Expr, block: Vectors) -> str:
        name, say = block.acc[acc], block.say
        across = acc in self.across
        if fold == "sum" and isinstance(value, Binary) and value.op == "mul" and not (
                across and block.count):
            if is_scalar(say):
                return f"{name} += {block.text(value.a, LEVEL['mul'])} * {block.text(value.b, 14)};"
            a, b = block.operand(value.a), block.operand(value.b)
            return say.fma_across(a, b, name) if across else say.fma(a, b, name)
        text = block.text(value, LEVEL["mul"] if fold == "sum" else 0)
        return say.step_across(fold, name, text, block.count, neutral_text(fold, "f32")) if across \
            else say.step(fold, name, text)

    def _is_plain(self, var: Var) -> bool:
        """True for a fold of integers where a vector is one scalar."""
        return is_scalar(self.env["dialect"]) and var.dtype != "f32"

    def total(self, s: Total) -> list[str]:
        if self._is_plain(s.var):
            self.env = self.env if s.joins else {
                **self.env, "vars": {**self.env["vars"], s.var: s.source.name}}
            return [f"{s.var.name} += {s.source.name};"] if s.joins else []
        text = self.dialects[s.source].across(s.fold, self.across[s.source])
        if text == self.across[s.source] and not s.joins:  # one lane is the total
            self.env = {**self.env, "vars": {**self.env["vars"], s.var: text}}
            return []
        return [f"{s.var.name} += {text};" if s.joins else f"const float {s.var.name} = {text};"]

    # ------------------------------------------------------------ memory

    def _sum(self, at: Expr, say: Dialect) -> str:
        """The vector of a tile's sums in registers that begins at an element of them."""
        vector = simplify(at // say.lanes)
        row, column = simplify(vector // self.tile_vectors), simplify(vector % self.tile_vectors)
        return f"sum[{c_index(row, 0)}][{c_index(column, 0)}]"

    def store(self, s: Store) -> list[str]:
        if self.lanes is None:
            return super().store(s)
        x = self.lanes
        if any(p.buffer == SUMS for p in s.puts):
            put, = s.puts
            block = self._vectors(x, (put.value,))
            text = block.text(put.value)
            return [*block.lines, f"{self._sum(put.offset, x.say)} = {text};"]
        return store_lines(s.puts, x.axis, x.say, x.count, self.env, self.names, x.names,
                           summed=x.sums)

    def copy(self, s: Copy) -> list[str]:
        block = Scalars(self.env, self.names)
        to, source = (address(self.env, b.buffer, b.offset, block.text)
                      for b in (s.to, s.source))
        if s.form == "run":
            return block.lines + [f"memcpy({to}, {source}, {c_size(s.extents[0])} * "
                                  f"sizeof({DTYPES[s.dtype].c}));"]
        ends = [source, c_index(_step(s.source), 0), to]
        ends += [c_index(_step(s.to), 0)] if s.form == "transposed" else []
        return block.lines + self.env["dialect"].lines(
            s.form, *ends, *(c_index(n, 0) for n in s.extents))

    def prefetch(self, s: Prefetch) -> list[str]:
        block = Scalars(self.env, self.names)
        if not s.beyond:
            return [f"AOTC_PREFETCH({address(self.env, s.buffer, s.offset, block.text)});"]
        first, at = address(self.env, s.buffer, Const(0), block.text), block.text(s.offset)
        return [*block.lines, f"AOTC_PREFETCH{'_FAR' if s.far else '_AT'}({first}, {at});"]


def _step(box: Box) -> Expr:
    """Elements between what does not lie side by side in a box of two dimensions."""
    return next((s for s in box.strides if s != Const(1)), Const(1))


def _in_lanes(body: Sequence[Stmt]) -> bool:
    """True for statements that lanes compute: of floats, stored as ``is_lane_value`` says.  Others
    are plain C where a vector is one scalar."""
    for s in walk_body(body):
        if isinstance(s, Store) and not all(
                is_lane_value(p.value) and not is_fixed(p.value) for p in s.puts):
            return False
        if isinstance(s, (Start, Total)) and s.var.dtype != "f32":
            return False
        if isinstance(s, Accumulate) and any(v.dtype != "f32" for v, _ in s.steps):
            return False
        if isinstance(s, Update):
            return False
    return True


def _is_multiple(e: Expr) -> bool:
    return isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Const)


__all__ = ["LaneWriter", "Lanes"]

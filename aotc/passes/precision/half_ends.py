"""Tensors of the caller in f16 or bf16 that kernels read and store as they are, Program -> Program,
for targets whose threads convert what they load.

A model in bf16 has its tensors as bits (u16), and expressions that make floats of those and bits of
floats: a tensor that nothing else is done with becomes one of bf16, whose loads and stores convert.
What only makes floats of a tensor of f16 or bf16 is then no step of its own: who reads the floats
reads the tensor, as products on tensor cores take it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from aotc.ir.dtypes import BF16, HALVES
from aotc.ir.expr import Cast, Const, Expr, Load, loads
from aotc.ir.expr import rewrite as rewrite_expr
from aotc.ir.numbers.narrow import rounded_to_bits, stored_half, upper_half, widen_half
from aotc.ir.program import Compute, Program, update
from aotc.ir.simplify import simplify
from aotc.passes.inline import inline_all

BITS = "u16"  # what holds those of bf16


def keep_half_ends(program: Program) -> Program:
    """The Program whose inputs and outputs of f16 and bf16 are read and stored as such."""
    return _without_widening(_with_bf16(program))


def _with_bf16(program: Program) -> Program:
    """The Program with bf16 in place of the bits of bf16, of the caller's tensors that nothing but
    computes make and read, as numbers."""
    fixed = _fixed(program)
    kept = {b for b in dict.fromkeys((*program.inputs, *program.outputs))
            if program.dtype(b) == BITS and b not in fixed and _is_number(program, b)}
    if not kept:
        return program
    steps = tuple(_on_numbers(s, kept) if isinstance(s, Compute) else s for s in program.steps)
    return replace(program, steps=steps, buffers={
        b: replace(x, dtype=BF16) if b in kept else x for b, x in program.buffers.items()})


def _fixed(program: Program) -> set[str]:
    """Buffers that others than computes touch, or that share their memory with another."""
    return {b for s in program.steps if not isinstance(s, Compute) for b in (*s.inputs, *s.outs)
            } | {b for a in program.aliases for b in (a.past, a.present)}


def _is_number(program: Program, b: str) -> bool:
    """True for a tensor of bits that are made of floats and read as floats only."""
    made = program.producer.get(b)
    if made is None and b not in program.inputs or isinstance(made, Compute) and (
            made.fold != "none" or len(made.outs) > 1 or rounded_to_bits(made.body) is None):
        return False
    readers = program.consumers.get(b, ())
    return (made is not None or bool(readers)) and all(
        isinstance(s, Compute) and _reads_numbers(s.body, b) for s in readers)


def _reads_numbers(body: Expr, b: str) -> bool:
    """True if every load of a tensor of bits, places of other loads included, is of a float."""
    def visit(e: Expr) -> Expr | None:
        bits = upper_half(e)
        return Const(0, "f32") if isinstance(bits, Load) and bits.buffer == b and all(
            n.buffer != b for i in bits.index for n in loads(i)) else None

    return all(n.buffer != b for n in loads(rewrite_expr(body, visit)))


def _on_numbers(c: Compute, kept: Collection[str]) -> Compute:
    """A compute with the tensors that are bf16 now."""
    def visit(e: Expr) -> Expr | None:
        bits = upper_half(e)
        return widen_half(Load(bits.buffer, bits.index, BF16)) if isinstance(bits, Load) and (
            bits.buffer in kept) else None

    body = rewrite_expr(c.body, visit)
    if len(c.outs) == 1 and c.out in kept:
        value = rounded_to_bits(body)
        assert value is not None, c
        same = stored_half(value)
        body = same if same is not None and same.dtype == BF16 else Cast(BF16, value)
    return replace(c, body=body)


def _without_widening(program: Program) -> Program:
    """The Program whose computes read the caller's halves in place of floats made of those."""
    fixed = _fixed(program)
    widened: Mapping[str, Compute] = {
        s.out: s for s in program.steps if isinstance(s, Compute) and _is_widened(program, s)
        and fixed.isdisjoint((s.out, *s.inputs))}
    if not widened:
        return program
    return update(program, steps=tuple(
        replace(s, body=simplify(inline_all(s.body, widened))) if isinstance(s, Compute) and (
            not widened.keys().isdisjoint(s.inputs)) else s for s in program.steps))


def _is_widened(program: Program, c: Compute) -> bool:
    """True for what makes floats of one of the caller's tensors, element by element."""
    half = stored_half(c.body) if c.fold == "none" and len(c.outs) == 1 else None
    return isinstance(half, Load) and half.dtype in HALVES and half.index == c.axes and (
        half.buffer in program.inputs and c.out not in program.results)


__all__ = ["keep_half_ends"]

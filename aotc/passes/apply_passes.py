"""The passes over a Program behind folding, in one order."""

from aotc.ir.program import Program
from aotc.passes.fold import fold_constants, part_constants
from aotc.passes.inline import inline_moves
from aotc.passes.loop_over_stored_dims import loop_over_stored_dims
from aotc.passes.pixel_shuffle_order import order_pixel_shuffles
from aotc.passes.precision.model_weight_groups import with_groups
from aotc.passes.quantised.integer_rounding import round_in_integers, sum_integers
from aotc.passes.quantised.read import inline_dequantised
from aotc.passes.requantise import requantise
from aotc.passes.round_before_view import round_before_views
from aotc.passes.unshuffle_channels import unshuffle_channels


def apply_passes(program: Program, columns: bool, whole: bool) -> Program:
    """Program whose moves are inlined, with what that makes
    possible: each pass sees what those before it left.  columns: weights may stay in groups; whole:
    8-bit sums stay integers."""
    last = (sum_integers, lambda p: requantise(p, chains=True), round_in_integers) if whole else (
        requantise,)
    # moves that end at a constant have become constants' moves: fold those too
    for change in (
            inline_moves, lambda p: with_groups(p, columns), unshuffle_channels,
            order_pixel_shuffles, round_before_views, inline_moves, inline_dequantised,
            fold_constants, *last, fold_constants, loop_over_stored_dims, fold_constants,
            part_constants):
        program = change(program)
    return program

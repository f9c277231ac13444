"""From what a user decides to a Schedule: limits, ranges of extents, and a budget of error."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from aotc.errors import AotcError, ScheduleError, UnsupportedError
from aotc.frontend.graph import DimRange
from aotc.ir.bundle import WEIGHTS
from aotc.ir.dtypes import BF16, HALVES, TF32, Array
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import MIXED, PRECISION, WEIGHT_BITS, Schedule, When
from aotc.options import AUTO, ERROR, Options, asked_precision, measures
from aotc.passes.fold import float_weights, fold_constants, part_constants
from aotc.passes.precision.half_ends import keep_half_ends
from aotc.passes.precision.half_weights import MOST_ROWS, keep_halves
from aotc.passes.regions import apply_in_bodies
from aotc.samples import measuring_feeds, read_feeds
from aotc.sched import decide, decide_within, parse_limit
from aotc.sched.dynamic.choose import Ranges, decide_ranges
from aotc.sched.dynamic.given import with_variants
from aotc.sched.model.typical_calls import observed_calls, read_samples
from aotc.sched.precision.budget import Narrowed, choose_within
from aotc.sched.precision.levels import LEVELS, Levels
from aotc.sched.rows.useful_targets import multiplies, reads_halves, stores_halves
from aotc.sched.shape_variants import combine_ranges
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target.base import Target


def decide_as_asked(program: Program, target: Target, o: Options, ranges: Sequence[DimRange],
                    fixed: Mapping[str, Array], apart: Collection[str] = ()
                    ) -> tuple[Schedule, Ranges | None, Narrowed | None]:
    """The Schedule for one target under Options ``o``, why it has these variants, if cost chose
    them, and why these products are rounded, if a budget of error did.  ranges: of every dynamic
    dimension; fixed: inputs held as constants, which a file of inputs may hold; apart: computes
    that are merged with no others."""
    if not measures(o.precision, o.error):
        return *decide_for_target(program, target, o, ranges, apart=apart), None
    given = None if o.inputs is None else read_feeds(o.inputs, fixed, program)
    levels = tuple(x for x in LEVELS if x.precision in find_precisions(target) and (
        o.precision == AUTO or o.precision == x.precision and x.rows))
    try:
        feeds, work = measuring_feeds(program, given)
        schedule, narrowed = choose_within(
            program, target, feeds, o.error or ERROR, work, levels,
            lambda own: _unwritten(program, target, o, ranges, (), own, apart)[0])
    except ValueError as err:  # of inputs that are not the model's
        raise AotcError(f"precision {o.precision}: {err}") from None
    if o.variants is None and o.dim_samples is None:
        return choose_writing(program, schedule, target), None, narrowed
    return *decide_for_target(program, target, o, ranges, None, narrowed.levels, apart), narrowed


def rounds_integers(o: Options, target: Target) -> bool:
    """True if 8-bit sums stay integers until they are 8 bits again, by the target and as asked."""
    return target.fixed_point and o.math != "exact"


def find_precisions(target: Target) -> tuple[str, ...]:
    """The precisions that a target offers, f32 first: by its rows; C computes with any rounded
    numbers, but with tf32, which is stored as f32, no faster than without.  ``AUTO`` chooses among
    them where products of operands of fewer bits are among those."""
    found = tuple(p for p in PRECISION if multiplies(target, p) or (
        target.emitter == "c" and p != TF32))
    return (*found, AUTO) if {TF32, BF16} & {*found} else found


def given_schedule(o: Options) -> Schedule | None:
    """The Schedule that is given, of a file too; ScheduleError for one that is none."""
    if o.schedule is None or isinstance(o.schedule, Schedule):
        return o.schedule
    try:
        return Schedule.from_json(Path(o.schedule).read_text())
    except (OSError, UnicodeDecodeError) as err:
        raise ScheduleError(f"schedule {o.schedule}: cannot be read: {err}") from None


def keeps_columns(o: Options) -> bool:
    """True if integers with a scale per column stay so for products of f32: narrow ones, which were
    asked for, have rows of their own."""
    given = o.schedule
    assert given is None or isinstance(given, Schedule), "the pipeline reads it"
    asked = asked_precision(o) if given is None else given.precision
    return asked in (PRECISION[0], *WEIGHT_BITS)


def with_float_weights(program: Program, o: Options) -> Program:
    """The Program whose ``float_weights`` are stored as such: all but where code shall be small, or
    those that a Schedule that is given does not compute."""
    given = o.schedule
    assert given is None or isinstance(given, Schedule), "the pipeline reads it"
    kept = frozenset(given.computes) if given is not None else frozenset()

    def stored(p: Program) -> Program:
        return part_constants(fold_constants(p, grown=float_weights(p) - kept))
    small = (o.optimize or (given.optimize if given else None)) == "size"
    return program if small and not kept else apply_in_bodies(stored, program)


def with_half_weights(program: Program, target: Target) -> Program:
    """The Program of a model in f16 or bf16 with weights that stay so: all that products read where
    they take them, where f16 has to be converted those of few rows."""
    rows = None if reads_halves(target, program.halves) else MOST_ROWS
    return apply_in_bodies(lambda p: keep_halves(p, rows), program) if (
        stores_halves(target, program.halves)) else program


def with_half_ends(program: Program, target: Target) -> Program:
    """The Program whose inputs and outputs of f16 and bf16 are read and stored as such, where
    threads convert what they load and rows multiply either."""
    kept = target.machine.threads > 0 and all(stores_halves(target, d) for d in HALVES)
    return keep_half_ends(program) if kept else program


def with_halves(program: Program, target: Target) -> Program:
    """The Program of a model in f16 or bf16 with what a target reads and stores as such."""
    return with_half_ends(with_half_weights(program, target), target)


def decide_for_target(program: Program, target: Target, o: Options, dims: Sequence[DimRange],
                      given: Sequence[When] | None = None,
                      levels: Levels | None = None,
                      apart: Collection[str] = ()) -> tuple[Schedule, Ranges | None]:
    """The Schedule for one target under Options ``o``, with a variant for each of the ``given``
    boxes of extents (None: as the Options say), and why, if cost chose those; levels: of products
    that have one of their own, the same in all variants, which share weights; apart: computes that
    are merged with no others."""
    schedule, found = _unwritten(program, target, o, dims, given, levels, apart)
    return choose_writing(program, schedule, target), found


def _unwritten(program: Program, target: Target, o: Options, dims: Sequence[DimRange],
               given: Sequence[When] | None, levels: Levels | None,
               apart: Collection[str]) -> tuple[Schedule, Ranges | None]:
    """``decide_for_target`` but for how statements are written.  Neither exact nor small code has
    use for forms that trade roundings and memory for multiplications, unless they are asked for."""
    plain = o.winograd == "auto" and (o.math == "exact" or o.optimize == "size")
    winograd, unfold = "off" if plain else o.winograd, o.optimize != "size"
    limit = parse_limit(o.arena)
    precision = PRECISION[0] if o.precision in (AUTO, MIXED, None) else o.precision

    def one(program: Program, target: Target, layouts: Mapping[str, Layout]) -> Schedule:
        if limit is not None:
            return decide_within(program, target, limit, o.connect, winograd, unfold, layouts,
                                 precision, levels, written=False)
        return decide(program, target, o.connect, winograd, unfold, layouts, precision=precision,
                      levels=levels, written=False, apart=apart)

    names = {r.onnx or r.sym.name: r.sym.name for r in dims}
    if given is None and (o.variants == AUTO or o.dim_samples is not None):
        if o.variants not in (AUTO, None):
            raise ScheduleError("variants: dim_samples choose them; give one of both")
        seen = observed_calls(program, read_samples(o.dim_samples, names))
        return decide_ranges(program, target, one, seen)
    if given is None:
        assert not isinstance(o.variants, str), o.variants  # check_choices knows the only text
        ranges = {names.get(n, n): found for n, found in (o.variants or {}).items()}
        given = combine_ranges(ranges)
    return with_variants(program, target, given, one), None


def weights_place(given: str | None, target: Target) -> str:
    """Where a bundle for a target has its weights, if ``given`` was asked for (None: nothing)."""
    return given or WEIGHTS[bool(target.module or target.board)]


def check_system(options: Options, target: Target) -> None:
    """UnsupportedError for a file of weights or several workers where there is neither."""
    if not target.module:
        return
    if options.weights == "file":
        raise UnsupportedError(f"weights 'file': {target.name} has no files that could be mapped; "
                               "leave it out, or give 'embed': they are linked into the module")
    limit = parse_limit(options.arena)
    if limit is not None and limit.workers > 1:
        raise UnsupportedError(f"arena for {limit.workers} workers: {target.name} runs one thread "
                               f"unless its compiler is told otherwise; leave out :{limit.workers}")


__all__ = ["check_system", "decide_as_asked", "decide_for_target", "given_schedule",
           "keeps_columns", "weights_place", "with_float_weights"]

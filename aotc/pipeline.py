"""The compiler's table of contents: ``STAGES``, in order, run by one wrapper.

Every stage is a function ``Work -> Work``; the wrapper verifies its value, times it, dumps its
text form, reports progress and stops where it was told to.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from aotc.as_asked import (
    check_system,
    decide_as_asked,
    decide_for_target,
    find_precisions,
    given_schedule,
    keeps_columns,
    rounds_integers,
    weights_place,
    with_float_weights,
    with_halves,
)
from aotc.collector import collect_seldom, free_dropped, keep_apart
from aotc.emit.bundle.render import render_plans
from aotc.emit.bundle.write import write_bundle, write_text
from aotc.errors import AotcError, LimitError, ScheduleError, UnsupportedError
from aotc.frontend import load_model, model_digest, read_graph, to_program
from aotc.frontend.aliases import ROOM, with_aliases
from aotc.frontend.graph import DimRange, Graph, Settings
from aotc.ir.bundle import Bundle
from aotc.ir.dtypes import Array
from aotc.ir.plan import Plan
from aotc.ir.plans import Alternative, Condition, Plans, with_defaults
from aotc.ir.program import Program
from aotc.ir.schedule import CONNECT, Schedule
from aotc.options import IO, Options, asked_precision, check_choices
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.check_program import check_program
from aotc.passes.apply_passes import apply_passes
from aotc.passes.fold import fold_constants
from aotc.passes.hoist import hoist_products
from aotc.passes.precision.model_weight_groups import fold_but_groups
from aotc.passes.quantised.products import integer_products
from aotc.passes.regions import apply_in_bodies
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.passes.sums.move_scales import move_scales
from aotc.samples import record_samples
from aotc.sched import check_arena, check_schedule, complete, large_arena, parse_limit
from aotc.sched.common_kernels import lower_parts
from aotc.sched.dynamic.choose import Ranges
from aotc.sched.limit.arena import LargeArena
from aotc.sched.lowering.threads import barrier_faults
from aotc.sched.precision.budget import Narrowed
from aotc.sched.precision.levels import has_rounding, levels_of
from aotc.sched.refused import Apart, refused_computes
from aotc.sched.rows.useful_targets import multiplies_bytes, pick_targets, reads_groups
from aotc.sched.shape_variants import Part, boxes, parts
from aotc.sched.shared_plans import share_plans
from aotc.stage_names import STAGE_NAMES
from aotc.target import Target, get_target
from aotc.target.named_machines import choose_machine

_LATER: Any = None  # no stage has made it yet, or none needs it any more


@dataclass(frozen=True)
class Work:
    """What has been made so far; a value is dropped as soon as no later stage reads it, so that
    a model's weights are held once."""

    options: Options
    target: Target
    variants: tuple[Target, ...] = ()  # that the bundle serves, the widest first, if several
    model: Any = None  # an onnx.ModelProto
    file_hash: str = ""  # SHA-256 of the model file
    graph: Graph = _LATER
    ranges: tuple[DimRange, ...] = ()  # of every dynamic dimension
    large: LargeArena | None = None  # of the plan, if it is one
    settings: Settings = _LATER  # inputs held as constants or with a default
    program: Program = _LATER
    schedule: Schedule = _LATER
    parts: tuple[Part, ...] = ()  # of the Schedule, until there are Plans
    found: Ranges | None = None  # why it has these variants, if they were chosen by cost
    narrowed: Narrowed | None = None  # why these products are rounded, if a budget chose them
    plans: Plans = _LATER
    apart: Apart = ()  # computes that are merged with no others, for what was refused with them
    refused: Exception | None = None  # the first decision, and why it was not the last
    recorded: dict[str, Any] = _LATER  # what render_bundle takes beside the Plan and the Schedule
    bundle: Bundle = _LATER
    path: Path = _LATER
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rewritten(self) -> Program:
        """What the Schedule is of, its base where it has variants, until there are Plans."""
        return self.parts[-1].program

    @property
    def as_rounded(self) -> Program:
        """The Program that rounds operands of products, and what is stored, as the Schedule's."""
        base = self.schedule.base
        return apply_schedule_rewrites(self.program, base) if has_rounding(base) else self.program

    @property
    def plan(self) -> Plan:
        """The Plan of that."""
        return self.plans.main.plan

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights, once there is a Program."""
        return self.plan.weights_bytes if self.plans else sum(
            a.nbytes for a in self.program.consts.values())

    def written(self) -> "Work":
        """Without what its folder holds: the Plans and the Bundle, each with all weights."""
        return replace(self, plans=_LATER, bundle=_LATER)


Run = Callable[[Work], Work]


@dataclass(frozen=True)
class CompilerStage:
    """``run`` makes the ``value``, a field of Work; ``faults`` lists what is wrong with it.
    ``first``: a part that runs before, in a call of its own: what it drops from the Work is gone
    by then."""

    name: str
    run: Run
    value: str
    faults: Callable[[Work], Sequence[str]] | None = None
    first: Run | None = None

    def text(self, work: Work) -> str:
        """The value for a reader."""
        return str(getattr(work, self.value))


def _load(work: Work) -> Work:
    source = work.options.source
    return replace(work, model=load_model(source), file_hash=file_hash(source))


def _graph(work: Work) -> Work:
    o = work.options
    dims = {k: v for k, v in (o.dims or {}).items() if not o.alias or k != ROOM}
    graph = read_graph(work.model, dims, _name(o), o.fix, o.input_default, o.lists, o.bound,
                       o.shapes, o.io == IO[1])
    return replace(work, graph=graph, ranges=graph.dims, settings=graph.settings, model=None)


def _program(work: Work) -> Work:
    program = to_program(work.graph, work.target.library)
    if work.options.alias:
        program = _aliased(program, work)
    return replace(work, program=program, graph=_LATER,
                   settings=replace(work.settings, made=program.lists))


def _aliased(program: Program, work: Work) -> Program:
    """The Program with the caches of its caller in place."""
    given = (work.options.dims or {}).get(ROOM, (1, None))
    room = (given, given) if isinstance(given, int) else given
    if not isinstance(room, (tuple, list)) or len(room) != 2:
        raise ScheduleError(f"dims: {ROOM} {given!r}; write an extent or a range (lo, hi)")
    return with_aliases(program, work.options.alias or {}, (room[0], room[1]))


def _integers(work: Work) -> Work:
    rows, whole = multiplies_bytes(work.target), rounds_integers(work.options, work.target)
    return replace(work, program=apply_in_bodies(
        lambda p: integer_products(p, rows, whole), work.program))


def _fold(work: Work) -> Work:
    columns = keeps_columns(work.options)
    program = apply_in_bodies(lambda p: fold_but_groups(p, columns), work.program) if reads_groups(
        work.target) else apply_in_bodies(fold_constants, work.program)
    return replace(work, program=apply_in_bodies(hoist_products, program))


def _inline(work: Work) -> Work:
    columns = keeps_columns(work.options) and reads_groups(work.target)
    program = apply_in_bodies(lambda p: apply_passes(
        p, columns, rounds_integers(work.options, work.target)), work.program)
    if work.target.rows("stream"):  # keys are read where they lie
        program = apply_in_bodies(move_scales, program)
    program = with_float_weights(program, work.options)
    program = with_halves(program, work.target)
    variants = pick_targets(work.variants, program, asked_precision(work.options))
    return replace(work, program=program, variants=variants,
                   target=variants[0] if variants else work.target)


def _schedule(work: Work) -> Work:
    given, target = work.options.schedule, work.target
    wanted = work.options.variants
    if given is None:
        schedule, found, narrowed = decide_as_asked(work.program, target, work.options, work.ranges,
                                                    work.settings.fixed, work.apart)
        return _with_schedule(replace(work, found=found, narrowed=narrowed), schedule)
    if wanted or work.options.dim_samples is not None:
        raise ScheduleError("variants: a schedule that is given has its own; give one of both")
    if work.options.precision not in (None, given.precision):
        raise ScheduleError(f"precision {work.options.precision}: a schedule that is given has its "
                            f"own, {given.precision}; give one of both")
    return _with_schedule(work, complete(work.program, given, target))


def _with_schedule(work: Work, schedule: Schedule) -> Work:
    wanted = {k: getattr(work.options, k) for k in ("math", "optimize")}
    schedule = replace(schedule, **{k: v for k, v in wanted.items() if v is not None})
    return replace(work, schedule=schedule, parts=_parts(work.program, schedule))


def _parts(program: Program, schedule: Schedule) -> tuple[Part, ...]:
    """The parts of a Schedule; itself, if what it asks for cannot be: ``check_schedule`` lists why,
    with all other faults."""
    try:
        return parts(program, schedule)
    except ScheduleError:
        return (Part({}, "", program, schedule),)


def _program_faults(work: Work) -> list[str]:
    return check_program(work.program)


def _schedule_faults(work: Work) -> list[str]:
    return _faults_of(work.parts, work.target)


def _faults_of(found: Sequence[Part], target: Target) -> list[str]:
    if len(found) == 1:
        return check_schedule(found[0].program, found[0].schedule, target)
    return [f"{p.title}: {f}" for p in found
            for f in check_schedule(p.program, p.schedule, target)]


def _plan(work: Work) -> Work:
    """The Plans of all variants for all CPUs, the widest first, with what they share."""
    found = _alternatives(work, work.target, work.schedule, work.parts)
    for target in work.variants[1:]:
        math, optimize = work.schedule.math, work.schedule.optimize
        wanted = replace(work.options, math=math, optimize=optimize,
                         precision=work.options.precision or work.schedule.precision)
        schedule, _ = decide_for_target(work.program, target, wanted, work.ranges,
                                        [v.when for v in work.schedule.variants],
                                        levels_of(work.schedule.rewrites), work.apart)
        schedule = replace(schedule, math=math, optimize=optimize)
        own = parts(work.program, schedule)
        _refuse(f"the schedule for {target.name} is malformed", _faults_of(own, target))
        found += _alternatives(work, target, schedule, own)
    arenas = [large_arena(a.plan, work.target) for a in found[:len(work.parts)]]
    large = max(filter(None, arenas), key=lambda x: x.bytes, default=None)
    program = work.program
    shapes = {n: program.shape(n) for n in (*program.inputs, *program.outputs)}
    plans = share_plans(Plans(found, program.syms, program.checks, shapes))
    return replace(work, plans=plans, parts=(), large=large)


def _alternatives(work: Work, target: Target, schedule: Schedule,
                  own: Sequence[Part]) -> tuple[Alternative, ...]:
    """Those of Plans for one target: of all parts of its Schedule."""
    plans = lower_parts(work.program, own, target)
    made = {id(plan): with_defaults(plan, work.settings.defaults) for plan in plans}
    for plan in made.values():
        check_arena(plan, parse_limit(work.options.arena), target)
    out = [Alternative(Condition(target.cpu_flags, p.when, p.why, p.left), made[id(plan)],
                       p.schedule) for p, plan in zip(own, plans)]
    return (*out[:-1], replace(out[-1], schedule=schedule))


def _plan_faults(work: Work) -> list[str]:
    plans = {id(a.plan): a for a in work.plans.alternatives}
    return [f if len(plans) == 1 else f"{a.condition}: {f}" for a in plans.values()
            for f in (*barrier_faults(a.plan), *plan_faults(a.plan))]


def _record(work: Work) -> Work:
    """All that a bundle needs of the Program beside its Plan.  Its constants are let go: the Plan
    has them in the order of the image, which is written next."""
    info = {**model_info(work.program, work.settings.defaults), "onnx_sha256": work.file_hash,
            "settings": work.settings}
    recorded = {"info": info, "samples": record_samples(
        work.as_rounded, boxes=boxes(work.program, work.schedule))}
    program = apply_in_bodies(lambda p: replace(p, consts={}), work.program)
    return replace(work, recorded=recorded, program=program)


def _bundle(work: Work) -> Work:
    options = work.options
    bundle = render_plans(work.plans, **work.recorded, profile=options.profile,
                          weights=weights_place(options.weights, work.target),
                          version=options.bundle_version)
    return replace(work, bundle=bundle, recorded=_LATER)


def options_target(options: Options) -> Target:
    """The Target that is compiled for, with the machine of a GPU or a file if one is given."""
    target = get_target(options.target, asked_precision(options))
    target = replace(target, aligned=target.aligned and not options.unaligned)
    return target if options.machine is None else choose_machine(target, options.machine)


class _MalformedError(AotcError):
    """A stage has made what its own check refuses."""


def _refuse(what: str, faults: Sequence[str]) -> None:
    """AotcError if there are faults."""
    if faults:
        raise _MalformedError("\n".join([
            f"{what} (a defect of aotc, please report it with the model):", *faults]))


def _write(work: Work) -> Work:
    if work.options.out is None:
        raise AotcError("compile: no output folder; give out=FOLDER (-o FOLDER)")
    if work.options.schedule_out is not None:
        write_text(work.options.schedule_out, work.schedule.to_json())
    write_bundle(work.bundle, work.options.out)
    return replace(work, path=Path(work.options.out))


_ROWS = (
    CompilerStage("load", _load, "model"),
    CompilerStage("graph", _graph, "graph"),
    CompilerStage("program", _program, "program", _program_faults),
    CompilerStage("integers", _integers, "program", _program_faults),
    CompilerStage("fold", _fold, "program", _program_faults),
    CompilerStage("inline", _inline, "program", _program_faults),
    CompilerStage("schedule", _schedule, "schedule", _schedule_faults),
    CompilerStage("plan", _plan, "plans", _plan_faults),
    CompilerStage("bundle", _bundle, "bundle", first=_record),
    CompilerStage("write", _write, "path"),
)
_DECIDES, _PROVES = "schedule", "plan"  # what the second refuses is decided again
STAGES = tuple({row.name: row for row in _ROWS}[name] for name in STAGE_NAMES)


def run_pipeline(options: Options, judge: Callable[[Work], object] | None = None) -> Work:
    """Run the stages of ``options`` and return the Work as it stands after the last one.
    judge: raises what speaks against the Bundle, before it is written.

    Raises ModelError, UnsupportedError, ScheduleError, AotcError; a stage that makes a malformed
    value raises AotcError with the stage's name and every fault.
    """
    if options.stop_after not in STAGE_NAMES:
        raise AotcError(f"no stage {options.stop_after!r}; stages: {', '.join(STAGE_NAMES)}")
    check_choices(options)
    parse_limit(options.arena)  # says what is wrong with it before any work is done
    options = replace(options, schedule=given_schedule(options))  # read once
    target = options_target(options)
    check_system(options, target)
    if options.precision not in (None, *(offers := find_precisions(target))):
        raise UnsupportedError(f"precision {options.precision}: target {target.name} has no "
                               f"products of such operands; choose from {', '.join(offers)}")
    work = Work(options, target.variants[0] if target.variants else target, target.variants)
    with collect_seldom():
        return _run_stages(work, judge)


def _run_stages(work: Work, judge: Callable[[Work], object] | None) -> Work:
    options, number, settled = work.options, 0, work  # settled: what decisions are made from
    while number < len(STAGES):
        stage, number = STAGES[number], number + 1
        if options.progress:
            options.progress(number, len(STAGES), stage.name)
        if stage.name == "write" and judge is not None:
            judge(work)
        if stage.first is not None:
            settled = work = _bounded(work, stage.name, stage.first)
            free_dropped(work.weight_bytes)
        try:
            work = _run_stage(work, stage, number)
        except Exception as err:
            if stage.name not in (_DECIDES, _PROVES):
                raise
            settled = work = _decided_otherwise(settled, work, err)
            number = STAGE_NAMES.index(_DECIDES)
            continue
        settled = settled if stage.name == _DECIDES else work
        if stage.name == "program":
            keep_apart(work.weight_bytes)
        if stage.name == "inline":  # the last of the passes, each of which made a Program
            free_dropped(work.weight_bytes)
        if stage.name == options.stop_after:
            break
    return work


def _decided_otherwise(work: Work, proved: Work, err: Exception) -> Work:
    """The last resort, for a decision of the compiler's own that it refuses: the Work before it,
    to be decided without merges of what is refused (``proved``: the Work with the decision, if
    there is one), and then without any.  The first error where nothing is left to leave out, or
    where it is none of the decision."""
    own = not isinstance(err, LimitError) and (
        not isinstance(err, AotcError) or isinstance(err, (ScheduleError, _MalformedError)))
    if not own or work.options.schedule is not None or work.options.connect == CONNECT[0]:
        if work.refused is None:
            raise err
        raise work.refused from err
    try:
        apart = () if work.apart else refused_computes(
            proved.parts or _schedule(work).parts, work.target)
    except Exception:  # it is refused as a whole
        apart = ()
    options = work.options if apart else replace(work.options, connect=CONNECT[0])
    return replace(work, options=options, apart=apart,
                   refused=work.refused or err.with_traceback(None))


def _bounded(work: Work, name: str, run: Run) -> Work:
    """``_timed``; UnsupportedError for what needs more memory or deeper recursion than there is:
    a model of nested expressions or absurd sizes must not end the caller.  What overflows or is no
    number in a model's constants is its result, nothing to warn of."""
    try:
        with np.errstate(all="ignore"):
            return _timed(work, name, run)
    except RecursionError:
        raise UnsupportedError(
            f"stage {name}: the model nests more deeply than the compiler can follow; split "
            "operators with hundreds of inputs, or lower the rank of its tensors") from None
    except MemoryError as err:
        raise UnsupportedError(f"stage {name}: compiling the model needs more memory than there "
                               f"is ({err or 'out of memory'})") from None


def _timed(work: Work, name: str, run: Run) -> Work:
    """``run(work)`` with its seconds added to those of the stage."""
    start = time.perf_counter()
    done = run(work)
    took = work.seconds.get(name, 0.0) + time.perf_counter() - start
    return replace(done, seconds=dict(work.seconds, **{name: took}))


def _run_stage(work: Work, stage: CompilerStage, number: int) -> Work:
    done = _bounded(work, stage.name, stage.run)
    faults = list(stage.faults(done)) if stage.faults else []
    if faults and stage.name == "schedule" and work.options.schedule is not None:
        raise ScheduleError(faults)  # the user's own edit
    _refuse(f"stage {stage.name} made a malformed value", faults)
    if work.options.dump is not None:
        folder = Path(work.options.dump)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02d}-{stage.name}.txt").write_text(stage.text(done) + "\n")
    return done


def _name(options: Options) -> str | None:
    """The bundle's name: the user's, else the model file's stem, else the output folder's."""
    if options.name is not None:
        return options.name
    for path in (options.source, options.out):
        if isinstance(path, (str, Path)):
            return Path(path).stem
    return None


def file_hash(source: Any) -> str:
    """Hex SHA-256 of the model as given: the file's bytes, the bytes, or what ``model_digest`` says
    of a ModelProto."""
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return hashlib.sha256(source).hexdigest()
    return model_digest(source)


def model_info(program: Program, defaults: Mapping[str, Array] | None = None) -> dict[str, str]:
    """What the bundle tells about its model: {"graph": name, "model_hash": hex SHA-256 over the
    folded and inlined Program's text and constants, and the ``defaults`` of its inputs}.  The hash
    names the computation, not the file it came from, so the same model saved twice gives the same
    bundle."""
    digest = hashlib.sha256(str(program).encode())
    for name, array in (*program.consts.items(), *(defaults or {}).items()):
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return {"graph": program.name, "model_hash": digest.hexdigest()}

"""What a user decides: one field of ``Options`` each, with its choices and what is said of it."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from aotc.errors import AotcError
from aotc.ir.bundle import BUNDLE_VERSION, WEIGHTS, is_version
from aotc.ir.schedule import (
    CONNECT,
    GRAPHTURBO,
    MATH,
    MIXED,
    OPTIMIZE,
    PRECISION,
    WEIGHT_BITS,
    WINOGRAD,
)

# {dimension: its value, (lowest, highest), or the set of its values}
Dims = Mapping[str, int | tuple[int, int] | Set[int]] | None

AUTO = "auto"
IO = ("model", "quantised")  # dtypes of inputs and outputs: the model's, or 8 bits
ERROR = 1e-2  # of an output's range: the budget of ``precision="auto"`` where none is given
# {dimension: ranges of its extents, (lowest, highest); None: no end}; AUTO: found by cost
Variants = Mapping[str, Sequence[tuple[int, int | None]]] | str | None


def _option(default: Any, about: str, choices: tuple[Any, ...] = (), decides: bool = False) -> Any:
    """A field.  decides: it says how a model runs, and every command that compiles one takes it."""
    return field(default=default,
                 metadata={"about": about, "choices": choices, "decides": decides})


def _decision(default: Any, about: str, choices: tuple[Any, ...] = ()) -> Any:
    return _option(default, about, choices, True)


@dataclass(frozen=True)
class Options:
    """What ``aotc.compile`` takes, ``aotc compile`` and the pipeline.

    source: path of a .onnx file, its bytes, or an ``onnx.ModelProto``.
    out: folder of the bundle; an earlier bundle there is replaced, any other non-empty folder is
        refused.
    target: c, x86-64-v1, x86-64-v3, x86-64-v4, x86-64 (those three in one bundle, chosen at run
        time), aarch64 or native (this machine); ``aotc targets`` lists all.
    name: prefix of everything the bundle exports; the model file's stem if None.
    dims: {"seq": (1, 512)} gives a dynamic dimension its range, {"batch": 4} pins it, {"x:3": 48}
        means the axis 3 of input x alone.  Ranges that are not given come from the tables they
        index, else they have no upper bound, and are printed.
    schedule: a Schedule or the path of its JSON, instead of the scheduler's own decisions.
    schedule_out: path to write the Schedule used to.
    dump: folder for the text form of every stage.
    stop_after: name of the last stage to run.
    progress: called as ``progress(number, of, stage)``.
    weights: "file" (mapped at run time) or "embed" (linked into the library).  None: "file", or
        "embed" where there is no operating system, or no files (wasm32).
    profile: the bundle counts what every kernel costs (``Model.profile()``, NAME_profile).
    bundle_version: of the bundle's own interface, "2.1.0": CMake's and pkg-config's, and that of
        the shared library, whose name for programs (SONAME) has its first number.
    flash, ram: bytes as 256K that the bundle's code, tables and weights, and a call's arena, stack,
        inputs and outputs may take, as ``aotc size`` counts them; more is an error, and nothing is
        written.
    connect: which intermediate tensors stay inside a kernel: "none", "register" those that fit
        registers, "all" that pay by the cost model, or "graphturbo" the sub-graphs that its rules
        find, on a machine with clusters of cores.
    winograd: "auto" gives convolutions a form with fewer multiplications where estimates of cost
        and rounding errors allow it, "off" none, 2, 4 or 6 at most so many outputs per tile.
    math: "fast" (the default) has polynomials for exp, erf, tanh and the like, "exact" calls libm
        for them and makes "auto" no forms with fewer multiplications.  None: the Schedule's.
    optimize: "speed" (the default), or "size": less code and smaller weights.  None: the
        Schedule's.
    precision: "bf16" rounds the operands of products to bf16 and sums them in f32; "tf32" to that,
        where a GPU multiplies it; "f16" stores
        constant weights of products as f16; "int8w" and "int4w" store constant matrices as integers
        of 8 and 4 bits with a scale for every 32 steps of the sum; everything else stays f32, as do
        all products by default.
        "auto" rounds those of most gain, as far as ``error`` allows.  None: the Schedule's.
    error: how far outputs may be from those of f32 at a lower precision, as a share of each one's
        range: "auto" keeps it on the inputs measured, ``aotc verify`` judges by it.
    inputs: path of an .npz of arrays by input name that "auto" measures errors on (default: random
        ones that suit the model).
    machine: name of a GPU (``aotc targets`` lists them) or path of a machine file (``aotc targets
        --probe``) to decide for.
    fix: {"sr": 16000} makes an input a constant: a number, list, array or path of a .npy file;
        branches of an If that then cannot run disappear.  None: an initializer's own value.
    input_default: initializers that are also inputs and shall be inputs that may be left out.
        Small ones are in any case, unless the model lists every one of many as an input.
    lists: what inputs that are sequences or optionals hold, each tensor then being an input of its
        own: {"x": 3} tensors, or their shapes, {"x": [[2, 3], [4]]}; {"o": None}: nothing.
    shapes: {"x": (1, 3, "h", "w")}: the extents of an input of which the model leaves them open, or
        says no shape at all: numbers, and names of dimensions.
    bound: {"keep": 1000}: the most elements that data may give the results of a node, by its name
        or that of a result; memory is for so many, and more are a fault at run time.
    variants: {"seq": [(1, 16), (17, 512)]}: kernels decided for each of these ranges of a dynamic
        dimension, all in one bundle; a call takes the first whose range its extent lies in.  For
        several dimensions one for each combination of their ranges.
    alias: {"past_key_values.*": "present.*"}: these outputs are these inputs with entries behind
        them, and the caller holds both in one buffer with room for more (the dimension
        "capacity"), which grows in place; "auto": every output that has the form.
    io: "quantised": inputs that are rounded to 8 bits at once, and outputs that come out of 8 bits,
        are 8-bit tensors; scale and zero point of each are in the manifest, the header and
        ``Model.inputs`` and ``outputs``.  "model" (the default): as the model has them.
    unaligned: kernels that take tensors of callers at any address, element by element; on GPUs they
        otherwise ask for multiples of 16 bytes (AOTC_TENSOR_MISALIGNED).
    arena: the most that NAME_arena_size may be, bytes or text such as "64M" ("64M:4": with four
        workers); what does not fit is computed tile by tile in fewer kernels, again where needed.
    """

    source: Any
    out: str | Path | None = _option(None, "the bundle's folder")
    target: str = _option("native", "see `aotc targets`")
    name: str | None = _option(None, "prefix of everything the bundle exports")
    dims: Dims = _option(
        None, "range (seq=1..512) or value (batch=4) of a dynamic dimension, by name or by input "
        "and axis (x:3=48..320)")
    schedule: Any = _option(None, "use these decisions")
    schedule_out: str | Path | None = _option(None, "write the decisions used")
    dump: str | Path | None = _option(None, "write the text of every stage")
    stop_after: str = _option("write", "the last stage to run")
    progress: Callable[[int, int, str], object] | None = _option(None, "")
    inputs: str | Path | None = _option(
        None, "measure errors on these inputs (--precision auto)")
    weights: str | None = _option(
        None, "in NAME_weights.bin, or linked into the library (default: file; embed without an "
        "operating system, and in modules)", (None, *WEIGHTS))
    profile: bool = _option(
        False, "count what every kernel costs (for aotc bench DIR --profile)")
    bundle_version: str = _option(
        BUNDLE_VERSION, f"of the bundle's interface and its library (default: {BUNDLE_VERSION})")
    flash: Any = _option(
        None, "the most that code, tables and weights may take: 256K; else nothing is written")
    ram: Any = _option(
        None, "the most that arena, stack, inputs and outputs may take: 64K; else nothing is "
        "written")
    connect: str = _decision(
        "all", "which intermediate tensors stay inside a kernel: none, those that fit registers, "
        "all that pay by the cost model (default: all), or sub-graphs by GraphTurbo's rules on "
        "dsa:stcp920", (*CONNECT, GRAPHTURBO))
    winograd: Any = _decision(
        "auto", "convolutions with fewer multiplications: outputs per tile at most, or off "
        "(default: where a cost and an error estimate agree)", WINOGRAD)
    math: str | None = _decision(
        None, "exact: libm for exp, erf, tanh and the like in place of polynomials, and no "
        "--winograd unless given", (None, *MATH))
    optimize: str | None = _decision(
        None, "size: less code and smaller weights (default: speed)", (None, *OPTIMIZE))
    precision: str | None = _decision(
        None, "bf16: operands of products rounded to bf16, sums in f32; tf32: to that (GPUs); "
        "auto: of those that --error allows; f16: weights stored as f16; int8w, int4w: weights in "
        "groups of so many bits (default: f32)",
        (None, *PRECISION, AUTO))
    error: float | None = _decision(
        None, "how far outputs may be from f32 at a lower precision, as a share of their range "
        f"(default: {ERROR:g} for auto)")
    machine: str | Path | None = _decision(
        None, "decide for this GPU, by name, or the machine of this file (see targets, "
        "targets --probe)")
    fix: Mapping[str, Any] | None = _decision(
        None, "make an input a constant: a number, a list 1,2,3 or a .npy file; NAME alone, if it "
        "is an initializer: its own value")
    input_default: tuple[str, ...] = _decision(
        (), "an initializer that is also an input: it may be fed, its value is the default")
    lists: Mapping[str, Any] | None = _decision(
        None, "what an input that is a sequence or an optional holds: 3 tensors, their shapes "
        "[[2,3],[4]], or null (nothing)")
    shapes: Mapping[str, Sequence[int | str | None]] | None = _decision(
        None, "the extents of an input whose shape the model does not say, numbers or names: "
        "1,3,h,w")
    bound: Mapping[str, int] | None = _decision(
        None, "the most elements that data may give the results of a node")
    variants: Variants = _decision(
        None, "kernels of their own for these ranges of a dynamic dimension, in one bundle; auto: "
        "for the ranges that they pay for")
    dim_samples: Any = _decision(
        None, "extents that calls were seen with, a .json file: [{\"seq\": 12, \"batch\": 1}, ..]; "
        "what they count is decided for, as with variants=auto")
    alias: Mapping[str, str] | str | None = _decision(
        None, "an input and the output that is it with entries behind it, * for any text: kept in "
        "one buffer with room for more, written in place; auto: all that have the form")
    io: str = _decision(
        IO[0], "quantised: inputs that the model rounds to 8 bits at once, and outputs that it "
        "makes of 8 bits, are 8-bit tensors (default: as the model has them)", IO)
    unaligned: bool = _decision(
        False, "kernels for tensors at any address (CUDA; default: of callers' tensors, multiples "
        "of 16 bytes)")
    arena: Any = _decision(
        None, "the most memory for tensors and scratch: 64M, 800K (for calls with one worker; "
        "64M:4 with four)")


def option(name: str) -> Field[Any]:
    """The field of an option by its name."""
    return next(f for f in fields(Options) if f.name == name)


def decisions() -> tuple[str, ...]:
    """Names of the options that say how a model runs."""
    return tuple(f.name for f in fields(Options) if f.metadata.get("decides"))


def asked_precision(options: Options) -> str:
    """The precision that products may have; ``MIXED``: any."""
    return MIXED if options.precision == AUTO else options.precision or PRECISION[0]


def measures(precision: str | None, error: float | None) -> bool:
    """True if errors are measured to decide what is rounded: of all at ``auto``, of the rows that
    meet weights of few bits if a budget is given."""
    return precision == AUTO or precision in WEIGHT_BITS and error is not None


def check_choices(options: Options) -> None:
    """AotcError with the choices for an option that has others."""
    if options.error is not None and not 0 < options.error < 1:
        raise AotcError(f"error {options.error!r}: a share of an output's range, between 0 and 1")
    if not is_version(options.bundle_version):
        raise AotcError(f"bundle_version {options.bundle_version!r}: one to three numbers, as in "
                        "2.1.0")
    if options.inputs is not None and not measures(options.precision, options.error):
        raise AotcError(f"inputs {options.inputs}: errors are measured for precision {AUTO!r} "
                        f"only, and for {', '.join(WEIGHT_BITS)} with an error")
    for f in fields(Options):
        given, choices = getattr(options, f.name), f.metadata.get("choices")
        if choices and given not in choices and not isinstance(given, tuple):
            raise AotcError(f"{f.name} {given!r}: choose one of " + ", ".join(
                repr(c) for c in choices if c is not None))
    if isinstance(options.alias, str) and options.alias != AUTO:
        raise AotcError(f"alias {options.alias!r}: choose {AUTO!r}, or pairs of an input and an "
                        'output: {"past_key_values.*": "present.*"}')
    if isinstance(options.variants, str) and options.variants != AUTO:
        raise AotcError(f"variants {options.variants!r}: choose {AUTO!r}, or ranges by dimension: "
                        '{"seq": [(1, 16), (17, 512)]}')

"""The command line.  ``main(argv)`` returns an exit code: 0 done, 1 an error or a mismatch, 2
wrong usage; results go to stdout, progress (on a terminal only) and errors to stderr."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from aotc.cli_values import (
    alias_of,
    arena_of,
    dim_of,
    extent_of,
    file_of,
    fixed_of,
    list_of,
    ranges_of,
    shape_of,
    words_of,
)
from aotc.errors import AotcError
from aotc.options import AUTO, Options, decisions, option
from aotc.stage_names import SHOWN, STAGE_NAMES
from aotc.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the only place where errors become text and an exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.command(args) or 0
    except BrokenPipeError:
        raise  # the reader went away: nothing to report, see entry()
    except (AotcError, OSError, ValueError) as err:
        clear_progress()
        print(f"aotc: error: {_clipped(str(err))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        clear_progress()
        print("aotc: interrupted", file=sys.stderr)
        return 130


def _clipped(text: str, width: int = 1000, lines: int = 100) -> str:
    """An error for a screen: attributes of a hostile model can be megabytes long."""
    rows = text.split("\n")
    more = [f"... and {len(rows) - lines} lines more"] if len(rows) > lines else []
    return "\n".join([r if len(r) <= width else r[:width] + "..." for r in rows[:lines]] + more)


def entry() -> NoReturn:
    """Console script; a closed pipe behind us (``aotc show ... | head``) is no error."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # the interpreter would otherwise complain again when it flushes stdout at exit
        sys.stdout = None
        code = 0
    sys.exit(code)


def show_progress(text: str) -> None:
    """Show ``text`` in place on a terminal; nothing in a pipe."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Clear the progress line."""
    show_progress("")


def _stage_progress(number: int, of: int, stage: str) -> None:
    show_progress(f"[{number}/{of}] {stage}")


def _file_progress(done: int, of: int, name: str) -> None:
    show_progress(f"[{done}/{of}] cc {name}")


# ---------------------------------------------------------------- commands

def _compile(args: argparse.Namespace) -> None:
    from aotc.api import print_notes, run_compiler
    if args.out is None and args.stop_after == "write":
        args.usage("give the bundle's folder with -o DIR (or --stop-after STAGE)")
    given = {f.name: getattr(args, f.name) for f in fields(Options) if hasattr(args, f.name)}
    work = run_compiler(Options(args.model, progress=_stage_progress, **given))
    clear_progress()
    print_notes(work)
    took = sum(work.seconds.values())
    if work.path is None:
        print(f"stopped after {args.stop_after} ({took:.1f} s)")
        return
    kernels = " + ".join(str(len(a.plan.kernels)) for a in next(work.plans.sets()))
    print(f"{work.path}: {work.bundle.name} for {work.target.name}, {kernels} kernels, "
          f"{work.plan.weights_bytes / 1e6:.1f} MB of weights ({took:.1f} s)")


def _build(args: argparse.Namespace) -> None:
    from aotc.runtime.compile_bundle import build
    library = build(args.bundle, jobs=args.jobs, progress=_file_progress)
    clear_progress()
    print(library)


def _run(args: argparse.Namespace) -> None:
    import numpy as np

    from aotc.api import load
    from aotc.runtime.compile_bundle import build
    feeds = {}
    for name, path in args.input.items():
        try:
            feeds[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as err:
            raise AotcError(f"run: input {name}: {path} is no .npy file: {err}") from None
    build(args.bundle, progress=_file_progress)
    clear_progress()
    outputs = load(args.bundle, threads=args.threads).run(feeds, args.dim)
    for index, (name, array) in enumerate(outputs.items()):
        span = f"  min {array.min():.6g} max {array.max():.6g}" if array.size else ""
        print(f"{name}: {array.dtype}{list(array.shape)}{span}")
        if args.output_dir is not None:
            folder = Path(args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            # tensor names may hold anything, file names may not
            safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip(".") or f"output_{index}"
            np.save(folder / f"{safe}.npy", array)


def _verify(args: argparse.Namespace) -> int:
    from aotc.runtime.status import DeviceError
    from aotc.tools.verify import verify
    if args.per_node:
        from aotc.tools.nodes import verify_nodes
        for option in ("out", "vlen", "simulate"):
            if getattr(args, option):
                args.usage(f"--per-node runs on this machine and keeps nothing; leave out "
                           f"--{option}")
        found = verify_nodes(args.model, args.target, args.dims, args.threads, _report,
                             _stage_progress, args.runs, args.inputs, **_decisions(args))
        return 0 if all(f.ok for f in found) else 1
    try:
        results = verify(args.model, args.target, args.runs, args.dims, args.inputs, args.threads,
                         args.out, _report, _stage_progress, _file_progress, args.vlen,
                         args.simulate, **_decisions(args))
    except DeviceError as err:
        args.usage(str(err))
    return 0 if all(match.ok for _, match in results) else 1


def _report(line: str) -> None:
    clear_progress()
    print(line)


def _bench(args: argparse.Namespace) -> None:
    from aotc.tools.bench import bench, profile, profile_lines
    if args.profile:
        if args.compare:
            args.usage("--profile looks into aotc's own kernels; leave out --compare")
        found = profile(args.model, args.threads, args.target, args.dims, args.seconds,
                        _stage_progress, _file_progress, **_decisions(args))
        clear_progress()
        print("\n".join(profile_lines(found)))
        return
    rows = bench(args.model, args.threads, words_of(args.compare), args.target, args.dims,
                 args.seconds, _stage_progress, _file_progress, **_decisions(args))
    clear_progress()
    width = max(len(r.name) for r in rows)
    for r in rows:
        if r.fault:
            print(f"{r.name:{width}}  does not count: {r.fault}")
            continue
        print(f"{r.name:{width}}  median {r.median_ms:9.3f} ms  min {r.min_ms:9.3f} ms  "
              f"{r.median_ms / rows[0].median_ms:6.2f}x of {rows[0].name}")


def _show(args: argparse.Namespace) -> None:
    from aotc.tools.engine_times import show_timeline
    from aotc.tools.show import show_stage
    if args.stage == "timeline":
        text = show_timeline(args.model, args.target, args.dims, args.picture, _stage_progress,
                             **_decisions(args))
        clear_progress()
        print(text)
        return
    text = show_stage(args.model, args.stage, args.target, args.dims, args.json,
                      _stage_progress, **_decisions(args))
    clear_progress()
    print(text)


def _check(args: argparse.Namespace) -> int:
    from aotc.tools.check_model import check_model
    found = check_model(Options(args.model, target=args.target, dims=args.dims,
                                **_decisions(args)), partial(print, flush=True))
    return 1 if found.refusal else 0


def _size(args: argparse.Namespace) -> None:
    from aotc.footprint.bundle_size import check_limits, limits_of, size_of
    from aotc.footprint.memory_picture import draw_memory
    from aotc.footprint.size_report import describe_size, size_json
    given = {name: getattr(args, name) for name in ("flash", "ram", "weights", "profile")}
    options = Options(args.model, target=args.target, dims=args.dims, progress=_stage_progress,
                      **given, **_decisions(args))
    limits = limits_of(options)
    found = size_of(args.model, options)
    clear_progress()
    print(size_json(found) if args.json else describe_size(found))
    if args.picture is not None:
        Path(args.picture).write_text(draw_memory(found.memory, found.name), encoding="utf-8")
    check_limits(found, limits)


def _tune(args: argparse.Namespace) -> None:
    from aotc.api import tune
    found = tune(args.model, args.out, args.budget, args.target, args.dims, args.records, args.seed,
                 args.threads, args.plot, show_progress, args.simulate, **_decisions(args))
    clear_progress()
    before, after, sites = found.correlation
    if args.simulate:
        print("a dry run: times are the simulator's and say nothing of a GPU's")
    print(f"{args.out}: {found.untuned_ms:.3f} -> {found.tuned_ms:.3f} ms a call "
          f"({found.tuned_ms / found.untuned_ms:.3f}), {found.trials} candidates measured, "
          f"{len(found.changed)} groups changed")
    if sites:
        print(f"rank correlation of predicted and measured times in {sites} kinds of groups held "
              f"back: {before:.2f} analytic, {after:.2f} corrected")


def _targets(args: argparse.Namespace) -> None:
    from aotc.target import TARGETS, get_target
    from aotc.target.gpus import GPUS
    if args.probe is not None:
        from aotc.target.machine_file import machine_json
        from aotc.tools.probe import probe
        target = probe(get_target(args.target))
        Path(args.probe).write_text(machine_json(target))
        rates = ", ".join(f"{x.name} {x.bandwidth / 1e9:.0f}" for x in target.machine.memories
                          if x.scope != "thread")
        print(f"{args.probe}: {target.name}, {target.machine.workers} CPUs, "
              f"{target.machine.flops / 1e9:.0f} GFLOP/s each, GB/s: {rates}")
        return
    for name in TARGETS:
        target = get_target(name)
        print(f"{name:12} {target.description}  [{' '.join(target.cflags)}]")
    print(f"{'native':12} the widest of them that this machine runs: {get_target('native').name}")
    for name, gpu in GPUS.items():
        print(f"--machine {name:12} {gpu.about}, for cuda:sm_{gpu.capability} and cuda")


# ---------------------------------------------------------------- arguments

class _Pairs(argparse.Action):
    """Collect ``NAME=VALUE`` options into a dict; ``type`` has split them already."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        pairs = dict(getattr(namespace, self.dest) or {})
        pairs[values[0]] = values[1]
        setattr(namespace, self.dest, pairs)


class _Ranges(_Pairs):
    """The same; ``auto`` stands alone."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before and AUTO in (before, values[0]):
            parser.error(f"{option_string}: auto stands alone")
        if values[0] == AUTO:
            setattr(namespace, self.dest, AUTO)
        else:
            super().__call__(parser, namespace, values, option_string)


class _Words(argparse.Action):
    """Collect the values of an option that may stand several times."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), values))


def _threads(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aotc", description="Compile ONNX models into readable, self-contained C.")
    parser.add_argument("--version", action="version", version=f"aotc {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, function: Callable[[argparse.Namespace], int | None],
                about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(command=function, usage=sub.error)
        return sub

    _compile_arguments(command("compile", _compile, "model.onnx -> a C bundle"))
    sub = command("build", _build, "compile a bundle's C with the C compiler")
    sub.add_argument("bundle", metavar="DIR")
    sub.add_argument("--jobs", type=_threads, default=2)
    sub = command("run", _run, "run a bundle on .npy inputs")
    sub.add_argument("bundle", metavar="DIR")
    sub.add_argument("--input", action=_Pairs, type=file_of, default={}, metavar="NAME=F.npy")
    sub.add_argument("--dim", action=_Pairs, type=extent_of, metavar="NAME=EXTENT",
                     help="of a dimension that no input's shape tells")
    sub.add_argument("--output-dir", metavar="D", help="write each output as NAME.npy")
    sub.add_argument("--threads", type=_threads, default=1)
    sub = _model_arguments(command("verify", _verify, "compare with a reference executor"))
    sub.add_argument("--runs", type=_threads, default=1, help="random inputs per shape")
    sub.add_argument("--inputs", metavar="X.npz", help="these inputs instead of random ones")
    sub.add_argument("--per-node", action="store_true",
                     help="judge every kernel by itself and name the first that is wrong")
    sub.add_argument("--threads", type=_threads, default=1)
    sub.add_argument("--vlen", type=_threads, metavar="BITS", help="of a target whose vectors have "
                     "no fixed length, emulate this one only (default: every length it lists)")
    sub.add_argument("--simulate", action="store_true", help="run a CUDA target's sources on the "
                     "CPU, with every access to shared memory checked")
    sub.add_argument("-o", "--out", metavar="DIR", help="keep the bundle here")
    _decision_arguments(sub)
    sub = _model_arguments(command("bench", _bench, "time a model, beside peers"),
                           metavar="MODEL|DIR")
    sub.add_argument("--threads", type=_threads, default=1)
    sub.add_argument("--compare", metavar="PEERS", help="onnxruntime,openvino,ncnn")
    sub.add_argument("--seconds", type=float, default=3.0, help="measuring time per system")
    sub.add_argument("--profile", action="store_true", help="time, GFLOP/s and GB/s per kernel")
    _decision_arguments(sub)
    _decision_arguments(_model_arguments(
        command("check", _check, "what is supported of a model, without compiling it")))
    _size_arguments(command("size", _size, "what a bundle takes of flash and of RAM"))
    sub = command("show", _show, "print what a stage of the compiler makes")
    _model_arguments(sub)
    sub.add_argument("stage", metavar="STAGE", choices=SHOWN + _VIEWS,
                     help=", ".join(SHOWN + _VIEWS))
    _decision_arguments(sub)
    sub.add_argument("--json", action="store_true", help="as data")
    sub.add_argument("-o", "--picture", type=_svg, metavar="FILE.svg",
                     help="of a timeline: a picture")
    _tune_arguments(command("tune", _tune, "search a faster schedule by measuring"))
    sub = command("targets", _targets, "list the targets")
    sub.add_argument("--probe", metavar="FILE", help="measure this machine into a machine file")
    _option_arguments(sub, ("target",))
    return parser


_VIEWS = ("kernels", "layouts", "variants", "precision", "source", "timeline")  # for readers


def _model_arguments(sub: argparse.ArgumentParser,
                     metavar: str = "MODEL") -> argparse.ArgumentParser:
    sub.add_argument("model", metavar=metavar)
    _option_arguments(sub, ("target", "dims"))
    return sub


# how an option is written on the command line, where that is more than a word
_WRITTEN: dict[str, dict[str, Any]] = {
    "out": {"metavar": "DIR"}, "inputs": {"metavar": "X.npz"},
    "dims": {"action": _Pairs, "type": dim_of, "metavar": "NAME=LO..HI"},
    "winograd": {"type": lambda text: int(text) if text.isdigit() else text},
    "machine": {"metavar": "GPU|FILE"}, "error": {"type": float, "metavar": "SHARE"},
    "fix": {"action": _Pairs, "type": fixed_of, "metavar": "NAME=VALUE"},
    "bound": {"action": _Pairs, "type": extent_of, "metavar": "NODE=MOST"},
    "shapes": {"action": _Pairs, "type": shape_of, "metavar": "NAME=N,N,.."},
    "lists": {"action": _Pairs, "type": list_of, "metavar": "NAME=COUNT"},
    "input_default": {"action": _Words, "metavar": "NAME"},
    "alias": {"action": _Ranges, "type": alias_of, "metavar": "INPUT=OUTPUT"},
    "variants": {"action": _Ranges, "type": ranges_of, "metavar": "NAME=LO..HI,LO..HI"},
    "arena": {"type": arena_of, "metavar": "LIMIT"},
    "flash": {"metavar": "BYTES"}, "ram": {"metavar": "BYTES"},
    "bundle_version": {"metavar": "2.1.0"},
    "profile": {"action": "store_true"}, "unaligned": {"action": "store_true"},
    "schedule": {"metavar": "S.json"}, "schedule_out": {"metavar": "S.json"},
    "dump": {"metavar": "DIR"},
    "stop_after": {"metavar": "STAGE", "choices": STAGE_NAMES, "help": ", ".join(STAGE_NAMES)},
}
# the others are called as the option is
_FLAGS = {"out": ("-o", "--out"), "dims": ("--dim",), "lists": ("--list",), "shapes": ("--shape",)}


def _option_arguments(sub: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Arguments for options of ``aotc.options.Options``."""
    for name in names:
        f = option(name)
        written = {"default": f.default, "dest": name, "help": f.metadata["about"],
                   **_WRITTEN.get(name, {})}
        choices = tuple(c for c in f.metadata["choices"] if c is not None)
        if choices:
            written["choices"] = choices
        sub.add_argument(*_FLAGS.get(name, ("--" + name.replace("_", "-"),)), **written)


def _decision_arguments(sub: argparse.ArgumentParser) -> None:
    """What ``_decisions`` collects."""
    _option_arguments(sub, decisions())


def _decisions(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in decisions()}


def _seconds(text: str) -> float:
    """"120s", "120" or "2m" as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|)", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text}: write seconds (120s) or minutes (2m)")
    return float(match[1]) * (60 if match[2] == "m" else 1)


def _svg(text: str) -> str:
    if not text.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text}: the picture is an SVG; write NAME.svg")
    return text


def _size_arguments(sub: argparse.ArgumentParser) -> None:
    _model_arguments(sub, metavar="MODEL|DIR")
    _option_arguments(sub, ("flash", "ram", "weights", "profile"))
    _decision_arguments(sub)
    sub.add_argument("--json", action="store_true", help="as data")
    sub.add_argument("-o", "--picture", type=_svg, metavar="FILE.svg",
                     help="who lives where in the arena, kernel by kernel")


def _tune_arguments(sub: argparse.ArgumentParser) -> None:
    _model_arguments(sub)
    sub.add_argument("-o", "--out", metavar="SCHEDULE.json", required=True,
                     help="where the schedule goes; compile takes it with --schedule")
    sub.add_argument("--budget", type=_seconds, default=120.0, metavar="120s",
                     help="time to search; the check of the whole model comes on top")
    sub.add_argument("--records", metavar="FILE",
                     help="measurements, read first and appended to: a later run goes on from them")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--threads", type=_threads, default=1, help="workers to measure with")
    sub.add_argument("--plot", type=_svg, metavar="FILE.svg", help="a picture of the search")
    sub.add_argument("--simulate", action="store_true", help="a dry run for a CUDA target, on the "
                     "simulator, whose times say nothing of a GPU's")
    _decision_arguments(sub)


def _compile_arguments(sub: argparse.ArgumentParser) -> None:
    _model_arguments(sub)
    _option_arguments(sub, ("out", "name", "weights", "bundle_version", "profile", "flash", "ram",
                            *decisions(), "inputs", "schedule", "schedule_out", "dump",
                            "stop_after"))


__all__ = ["entry", "main"]

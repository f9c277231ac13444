"""Fuzzing the compiler's door: whatever bytes come as a model, the answer is a bundle or one clear
error, in bounded time and memory, with no file left behind.

    python tests/fuzz/run_bytes.py --seconds 600 --seed 0 [--atheris]

Seeds are small valid models; mutations flip bits, cut, splice, and edit the parsed message (names,
shapes, attributes, edges, opsets).  With ``--atheris`` coverage of the frontend guides the
mutations of libFuzzer (``pip install atheris``).  Findings are written to the folder given by
``--findings`` and make the exit status 1.
"""

import argparse
import gc
import random
import resource
import signal
import sys
import time
import types
import warnings
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from onnx_graphs import random_graph

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline

SECONDS, GIGABYTES = 20, 4  # of CPU time and memory that one model may take
GUIDES = ("aotc.frontend", "aotc.passes.inline")  # modules whose coverage guides libFuzzer
HUGE = (0, 1, -1, 2, 7, 1 << 31, (1 << 62), -(1 << 62), (1 << 63) - 1)
WORDS = ("", "x", "a\0b", "../../x", "\" ; rm -rf /", "*/ int x;", "\n#include", "é" * 300)


class TooLong(Exception):
    """A model took longer than it may."""


def _expired(signum, frame):
    raise TooLong(f"more than {SECONDS} s")


def offend(data, seconds=SECONDS, stage="bundle"):
    """None if the compiler takes the bytes or refuses them properly, else what it did instead.
    ``seconds`` 0: somebody else watches the time.  ``stage``: the last that runs."""
    if seconds:
        signal.signal(signal.SIGPROF, _expired)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        run_pipeline(Options(data, target="c", name="m", stop_after=stage))
    except AotcError as err:
        text = str(err)
        return None if text.strip() and len(text) < 20_000 else f"unclear error: {text[:200]!r}"
    except Exception as err:  # anything else is a finding, whatever it is
        where = err.__traceback__
        while where.tb_next:
            where = where.tb_next
        code = where.tb_frame.f_code
        return f"{type(err).__name__}: {err} ({Path(code.co_filename).name}:{where.tb_lineno})"
    finally:
        if seconds:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def flipped(rng, data):
    """Bits flipped, a piece cut out, doubled, or replaced."""
    data = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice((0, 1, 127, 128, 255))
            case 2:
                del data[at:at + rng.choice((1, 2, 8, 200))]
            case 3:
                data[at:at] = data[at:at + rng.randrange(1, 40)]
            case 4:
                data = data[:max(1, at)]
        if not data:
            break
    return bytes(data)


def edited(rng, data):
    """The message changed where it means something."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            rng.choice(_EDITS)(rng, model)
        return model.SerializeToString()
    except (DecodeError, UnicodeError):  # no message, or text in it that is none
        return flipped(rng, data)


def _node(rng, model):
    return rng.choice(model.graph.node) if model.graph.node else None


def _rewire(rng, model):
    """An edge to anything: cycles, missing tensors, twice the same output."""
    node = _node(rng, model)
    names = [n for m in model.graph.node for n in list(m.input) + list(m.output)]
    if node and names:
        end = rng.choice([e for e in (node.input, node.output) if e] or [node.output])
        if end:
            end[rng.randrange(len(end))] = rng.choice(names + ["nowhere", ""])


def _attribute(rng, model):
    node = _node(rng, model)
    if node and node.attribute:
        a = rng.choice(node.attribute)
        if a.ints:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(HUGE)
        a.i, a.f = rng.choice(HUGE), rng.choice((0.0, -1.0, 1e38, float("nan")))
        if rng.random() < 0.3:
            a.type = rng.randrange(12)
        if rng.random() < 0.2:
            a.name = rng.choice(WORDS)


def _operator(rng, model):
    node, other = _node(rng, model), _node(rng, model)
    if node:
        node.op_type = rng.choice((other.op_type, "NoSuchOperator", "Loop", "TopK", "Einsum"))
        if rng.random() < 0.2:
            node.domain = rng.choice(("ai.onnx.ml", "com.microsoft", "nowhere"))


def _shape(rng, model):
    where = list(model.graph.input) + list(model.graph.output)
    if where:
        kind = rng.choice(where).type.tensor_type
        if kind.shape.dim:
            dim = rng.choice(kind.shape.dim)
            if rng.random() < 0.3:
                dim.dim_param = rng.choice(WORDS + ("N",))
            else:
                dim.dim_value = rng.choice(HUGE)
        if rng.random() < 0.3:
            kind.elem_type = rng.randrange(24)


def _constant(rng, model):
    if model.graph.initializer:
        t = rng.choice(model.graph.initializer)
        match rng.randrange(5):
            case 0 if t.dims:
                t.dims[rng.randrange(len(t.dims))] = rng.choice(HUGE)
            case 1:
                t.data_type = rng.randrange(24)
            case 2:
                t.raw_data = t.raw_data[:rng.randrange(len(t.raw_data) + 1)]
            case 3:
                t.raw_data = bytes(rng.randrange(256) for _ in t.raw_data)
            case _:
                t.data_location = TensorProto.EXTERNAL
                t.external_data.add(key="location", value=rng.choice(WORDS + ("/etc/passwd",)))


def _names(rng, model):
    node = _node(rng, model)
    if node:
        node.name, node.doc_string = rng.choice(WORDS), rng.choice(WORDS)
    model.graph.name = rng.choice(WORDS)


def _drop(rng, model):
    for part in rng.sample(("initializer", "node", "input", "output"), 1):
        field = getattr(model.graph, part)
        if field:
            del field[rng.randrange(len(field))]


def _opset(rng, model):
    for o in model.opset_import:
        o.version = rng.choice((0, 1, 6, 7, 9, 11, 13, 17, 18, 23, 99, -1, 1 << 40))


_EDITS = (_rewire, _rewire, _attribute, _attribute, _attribute, _operator, _shape, _shape,
          _constant, _constant, _names, _drop, _opset)


def corpus(count):
    """Serialised small models."""
    return [random_graph(seed, nodes=4 + seed % 5).model.SerializeToString()
            for seed in range(count)]


def report(data, fault, folder):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{abs(hash(data)):016x}.onnx"
    path.write_bytes(data)
    print(f"{path}: {fault}", flush=True)


def run_mutations(args):
    rng, seeds, found, tried = random.Random(args.seed), corpus(200), 0, 0
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        data = rng.choice((edited, edited, edited, flipped))(rng, rng.choice(seeds))
        fault = offend(data)
        tried += 1
        if fault:
            found += 1
            report(data, fault, args.findings)
    print(f"{tried} models from seed {args.seed}: {found} findings")
    return 1 if found else 0


def _guided():
    """The functions whose coverage guides libFuzzer.  Counting in all of them, those of libraries
    too, leaves less than one run a second."""
    return [f for f in gc.get_objects() if isinstance(f, types.FunctionType)
            and (f.__module__ or "").startswith(GUIDES)]


def run_atheris(args):
    """libFuzzer's loop; it exits the process itself.  Stops after the last stage that looks at
    what models say: what comes behind it has fuzzers of its own."""
    import atheris
    for function in _guided():
        atheris.instrument_func(function)
    folder = args.findings / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus(100)):
        (folder / f"{number:03d}").write_bytes(data)

    def one(data):
        fault = offend(data, 0, "inline")
        if fault:
            report(data, fault, args.findings)
            raise AssertionError(fault)

    def mutate(data, size, seed):
        rng = random.Random(seed)
        new = edited(rng, data) if rng.random() < 0.5 else atheris.Mutate(data, size)
        return new[:size]
    atheris.Setup([sys.argv[0], str(folder), f"-max_total_time={int(args.seconds)}",
                   f"-seed={args.seed + 1}", "-max_len=100000", f"-timeout={6 * SECONDS}",
                   f"-artifact_prefix={args.findings}/",
                   f"-rss_limit_mb={GIGABYTES << 10}"], one,
                  custom_mutator=mutate)
    atheris.Fuzz()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    limit = GIGABYTES << 30
    if not args.atheris:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return run_atheris(args) if args.atheris else run_mutations(args)


if __name__ == "__main__":
    sys.exit(main())

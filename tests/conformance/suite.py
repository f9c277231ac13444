"""The official ONNX backend suite (of the installed onnx package) through the whole product.

    python tests/conformance/suite.py [--shard K/N] [--filter TEXT] [--update]

runs the cases that passing.txt does not list (with --filter: all that contain TEXT), prints what
became of them, and with --update adds those that pass to the list.  A case is called
``group/name``, the groups being node, node-expanded, simple, pytorch-converted, pytorch-operator
and real.
"""

import argparse
import os
import sys
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

LIST = Path(__file__).with_name("passing.txt")
FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class SuiteCase:
    """``sets``: a function that gives [(inputs, outputs)], lists of arrays or whatever else the
    suite passes; ``model``: a function that gives the ModelProto."""

    name: str
    rtol: float
    atol: float
    model: object = field(compare=False, repr=False)
    sets: object = field(compare=False, repr=False)


@cache
def suite():
    """{group/name: SuiteCase} of everything the onnx package has."""
    from onnx.backend.test import loader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = list(loader.load_node_model_tests())
    out = {}
    for c in node:
        group = "node-expanded" if "_expanded" in c.name else "node"
        out[f"{group}/{c.name}"] = SuiteCase(f"{group}/{c.name}", c.rtol, c.atol,
                                             lambda c=c: c.model, lambda c=c: c.data_sets)
    for kind in FOLDERS:
        for c in loader.load_model_tests(kind=kind):
            out[f"{kind}/{c.name}"] = _stored(f"{kind}/{c.name}", c)
    for c in loader.load_model_tests(kind="real"):
        if c.url and "data/light/" in c.url:
            path = Path(loader.DATA_DIR) / "light" / os.path.basename(c.url)
            out[f"real/{c.name}"] = _light(f"real/{c.name}", c, path)
    return out


def _stored(name, c):
    """A case that lies in a folder of the package."""
    folder = Path(c.model_dir)

    def model():
        return onnx.load(str(folder / "model.onnx"))

    def sets():
        out = []
        for d in sorted(folder.glob("test_data_set*")):
            out.append(tuple([_tensor(d / f"{kind}_{k}.pb")
                              for k in range(len(list(d.glob(f"{kind}_*.pb"))))]
                             for kind in ("input", "output")))
        return out
    return SuiteCase(name, c.rtol, c.atol, model, sets)


def _light(name, c, path):
    """One of the CNNs with made-up weights; its input is made as the package's runner does."""
    def model():
        return onnx.load(str(path))

    def sets():
        from onnx.backend.test.runner import Runner
        made = model()
        held = {t.name for t in made.graph.initializer}
        inputs = [Runner.generate_dummy_data(i, seed=0, name=c.model_name)
                  for i in made.graph.input if i.name not in held]
        stem = str(path)[:-len(".onnx")]
        return [(inputs, [_tensor(Path(f"{stem}_output_{k}.pb"))
                          for k in range(len(made.graph.output))])]
    return SuiteCase(name, c.rtol, c.atol, model, sets)


def _tensor(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def passing():
    """Names in passing.txt, in order."""
    return [n for n in LIST.read_text().split("\n") if n] if LIST.exists() else []


def shard(names, text):
    """Every N-th name from the K-th on, for ``text`` = "K/N"."""
    k, n = map(int, text.split("/"))
    return names[k::n]


def outcome(case, backend):
    """"" if the case passes, else why not.  Values are compared as the package's runner does."""
    from onnx.backend.test.runner import Runner
    try:
        prepared = backend.prepare(case.model())
    except NotImplementedError as err:
        return f"unsupported: {str(err).splitlines()[0]}"
    for inputs, wanted in case.sets():
        inputs = [numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a
                  for a in inputs]
        wanted = [numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a
                  for a in wanted]
        got = list(prepared.run(inputs))
        if list(map(_length, got)) != list(map(_length, wanted)):
            return f"lists: {list(map(_length, got))}"
        got, wanted = _tensors(got), _tensors(wanted)
        if [(a.dtype, a.shape) for a in got] != [(a.dtype, a.shape) for a in wanted]:
            return f"types: {[(str(a.dtype), a.shape) for a in got]}"
        try:
            Runner.assert_similar_outputs(wanted, got, rtol=case.rtol, atol=case.atol)
        except AssertionError as err:
            return f"values: {' '.join(str(err).split())[:160]}"
    return ""


def _length(value):
    """The number of a list's tensors, None for a tensor."""
    return len(value) if isinstance(value, list) else None


def _tensors(values):
    """The arrays of a list of arrays and of lists of arrays."""
    return [np.asarray(a) for v in values for a in (v if isinstance(v, list) else [v])]


def main(arguments=None):
    """The command of the module's text; exit code 1 if a listed case fails."""
    import aotc.onnx_backend as backend
    from aotc.errors import AotcError
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shard", default="0/1", metavar="K/N")
    parser.add_argument("--filter", default="", metavar="TEXT")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args(arguments)
    listed, gained, lost = set(passing()), [], []
    names = [n for n in suite() if (options.filter in n if options.filter else n not in listed)]
    for name in shard(names, options.shard):
        try:
            why = outcome(suite()[name], backend)
        except (AotcError, ValueError, TypeError, AttributeError, KeyError) as err:
            why = f"{type(err).__name__}: {str(err).splitlines()[0]}"
        print(f"{'pass' if not why else 'FAIL'} {name} {why}", flush=True)
        if not why and name not in listed:
            gained.append(name)
        if why and name in listed:
            lost.append(name)
    if options.update and gained:
        LIST.write_text("".join(f"{n}\n" for n in sorted({*passing(), *gained})))
    print(f"{len(gained)} more than the list, {len(lost)} fewer")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())

"""Names of kernels, from what they do and where in the model: ``k002_layer0_attention``.

The model's own words say both: names of nodes that are paths (``/layer1/layer1.0/conv1/Conv``), or
those of the weights that are read (``encoder.layer.0.output.dense.bias``).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from aotc.ir.category import PRODUCTS, category
from aotc.ir.expr import Unary, walk
from aotc.ir.program import Compute, LibCall, Program, Step
from aotc.ir.schedule import Group

LONGEST = 28  # letters of what follows the number
Path = tuple[str, ...]  # words, the outermost first


def kernel_names(program: Program, groups: Sequence[Group]) -> list[str]:
    """Names of the kernels of groups, in order: numbers, and words in ASCII."""
    paths = {s.outs[0]: _paths(program, s) for s in program.steps}
    root = _root([p for found in paths.values() for p in found])
    out = []
    for number, group in enumerate(groups):
        steps = [program.producer[c] for c in group.computes]
        where = _place([p for s in steps for p in paths[s.outs[0]]], len(root))
        out.append("_".join([f"k{number:03d}", *_short(where, _deed(steps))]))
    return out


def _short(where: Path, what: Path) -> Path:
    """Words of both in at most ``LONGEST`` letters: the innermost parts, and what is done."""
    what = () if "".join(what) in "".join(where) else tuple(w for w in what if w not in where)
    while len("_".join((*where, *what))) > LONGEST:
        where, what = (where[1:], what) if where else (where, what[:-1])
    return (*where, *what)


def _deed(steps: Sequence[Step]) -> Path:
    """What a kernel does, in words: its last product, or what comes last."""
    last = steps[-1]
    if isinstance(last, LibCall):
        return _words(last.kernel)
    products = [i for i, s in enumerate(steps) if _is_product(s)]
    between = steps[products[0]:products[-1]] if products else ()
    if any(isinstance(n, Unary) and n.op == "exp" for s in between
           if isinstance(s, Compute) and not _is_product(s) for n in walk(s.body)):
        return ("attention",)
    main = steps[products[-1]] if products else last
    label = re.split(r"[/.]", main.origin[0].rstrip("/"))[-1] if main.origin else ""
    words = [w for w in _words(label) if w != "node"]
    while words and words[-1].isdigit():  # which tells nodes of one kind apart
        words.pop()
    return tuple(words)


def _is_product(s: Step) -> bool:
    return isinstance(s, Compute) and category(s.axes, s.raxes, s.fold, s.body) in PRODUCTS


def _place(paths: Sequence[Path], root: int) -> Path:
    """The innermost part of the model that most ``paths`` lead into, without its first ``root``
    words: () if there is none."""
    here: Path = ()
    while True:
        inside = Counter(p[:len(here) + 1] for p in paths
                         if p[:len(here)] == here and len(p) > len(here))
        best, votes = max(inside.items(), key=lambda x: x[1], default=((), 0))
        if 2 * votes <= len(paths):
            return _joined(here[root:])
        here = best


def _paths(program: Program, s: Step) -> list[Path]:
    """Where the nodes of a step are, or else the weights that it reads."""
    found = [_split(label.split("/")[:-1]) for label in s.origin if "/" in label]
    if found:
        return found
    names = [program.buffers[b].onnx for b in s.inputs if b in program.consts]
    return [_split(n.split(".")[:-1]) for n in names if "." in n]


def _split(parts: Iterable[str]) -> Path:
    """The words of a path.  A part that repeats the one before it (``layer1/layer1.0``) replaces
    it."""
    kept: list[str] = []
    for part in parts:
        if kept and part.startswith(kept[-1] + "."):
            kept.pop()
        kept += [part] if part else []
    return tuple(word for part in kept for word in _words(part))


def _words(text: str) -> Path:
    """The words in a text of the model, of ASCII letters and digits."""
    return tuple(w.lower() for w in re.findall(r"[A-Za-z0-9]+", text))


def _joined(path: Path) -> Path:
    """A path with numbers behind what they count: layer0."""
    out: list[str] = []
    for word in path:
        if word.isdigit() and out and not out[-1][-1].isdigit():
            out[-1] += word
        else:
            out.append(word)
    return tuple(out)


def _root(paths: Sequence[Path]) -> Path:
    """What all paths of a model begin with, which tells nothing."""
    root = paths[0] if len(set(paths)) > 1 else ()
    for p in paths:
        while p[:len(root)] != root:
            root = root[:-1]
    return root


__all__ = ["kernel_names"]

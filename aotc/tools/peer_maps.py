"""Maps of a model, which are matrices in a bundle, as ONNX Runtime is given them and gives them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aotc.frontend import load_model
from aotc.frontend.read.maps import ML, Key, maps_of
from aotc.frontend.read.read_nodes import contents, reader_of
from aotc.ir.dtypes import Array
from aotc.samples import Feeds

_Call = Callable[[dict[str, Any]], dict[str, Any]]


def with_maps(path: str | Path, call: _Call) -> _Call:
    """``call`` for the model at ``path``, given and giving a matrix for each map: of an input the
    columns are its keys, row after row is a call of its own; of scores, the class labels."""
    model = load_model(path)
    nodes, _ = contents(model.graph, reader_of(model))
    keys = maps_of(model.graph.input, nodes, []).keys
    labels: dict[str, Sequence[Key]] = {
        n.outputs[0]: n.attr("classlabels_int64s") or n.attr("classlabels_strings") or ()
        for n in nodes if n.domain == ML and n.op == "ZipMap"}

    def matrices(outputs: Mapping[str, Any]) -> Feeds:
        return {n: _matrix(a, labels[n]) if n in labels else a for n, a in outputs.items()}

    def run(feeds: dict[str, Any]) -> Feeds:
        if not keys:
            return matrices(call(feeds))
        rows = {len(feeds[n]) for n in keys}
        made = [matrices(call({**feeds, **{n: _map(feeds[n][k], own) for n, own in keys.items()}}))
                for k in range(min(rows))]
        return {n: np.concatenate([m[n] for m in made]) for n in made[0]}
    return run


def _map(row: Array, keys: Sequence[Key]) -> dict[Key, Any]:
    return dict(zip(keys, row.tolist()))


def _matrix(rows: Sequence[Mapping[Key, float]], labels: Sequence[Key]) -> Array:
    return np.array([[row[k] for k in labels] for row in rows], np.float32).reshape(
        len(rows), len(labels))

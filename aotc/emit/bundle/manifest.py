"""What a bundle's manifest says."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from aotc.emit.bundle.describe import tensor_json
from aotc.ir.bundle import FORMAT_VERSION
from aotc.ir.dtypes import Array, dtype_of

SHOWN = 64  # elements of a fixed input that the manifest states


def _settings(settings: Any) -> dict[str, Any]:
    """What the manifest says about inputs that are none: values of the small ones."""
    if settings is None:
        return {}
    return {"fixed": {name: {"dtype": dtype_of(a), "shape": list(a.shape),
                             **({"value": _plain(a)} if a.size <= SHOWN else {})}
                      for name, a in settings.fixed.items()},
            "held": list(settings.held),
            **({"lists": {"inputs": settings.given, "outputs": settings.made}}
               if settings.given or settings.made else {}),
            **({"keys": {name: list(keys) for name, keys in settings.keys.items()}}
               if settings.keys else {})}


def _plain(array: Array) -> Any:
    """An array as JSON lists; what JSON has no number for as text."""
    return array.tolist() if array.dtype.kind != "f" or np.isfinite(array).all() else str(
        array.tolist())


def _choices(variant: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says of a target's variants for extents, in the order of their choice."""
    if len(variant["choices"]) == 1:
        return {}
    return {"when": [{"extents": s["when"], "kernels": len(s["kernels"]),
                      **({"why": s["why"]} if s["why"] else {})} for s in variant["choices"]]}


def manifest(name: str, m: Mapping[str, Any], info: Mapping[str, Any],
              files: Mapping[str, bytes | bytearray]) -> bytes:
    data = {"aotc_bundle": FORMAT_VERSION, "name": name, "graph": m["graph"],
            "onnx_sha256": info.get("onnx_sha256", ""),
            "model_hash": info["model_hash"], "weights_hash": m["weights_hash"],
            "target": m["target"], "version": m["version"],
            "variants": [{"target": v["target"], "schedule": f"schedule{v['suffix']}.json",
                          "schedule_hash": v["schedule_hash"], **_choices(v)}
                         for v in m["variants"]],
            "symbols": [{"onnx": s.name, "name": s.name, "c": s.c_name, "lo": s.lo, "hi": s.hi}
                        for s in m["syms"]],
            **({"texts": list(m["texts"])} if m["texts"] else {}),
            "profile": m["profile"],
            **({"precision": m["precision"]} if m["precision"] else {}),
            "kernels": [{"c": f"{v['prefix']}_{k['name']}", "onnx": k["origin"],
                         "rows": k["rows"], "plain": k["plain"],
                         "target": v["target"],
                         **({"when": k["when"]} if k["when"] else {})}
                        for v in m["variants"] for k in v["kernels"]],
            **_settings(info.get("settings")),
            "inputs": [tensor_json(t) for t in m["inputs"]],
            "outputs": [tensor_json(t) for t in m["outputs"]],
            "weights": m["weights"], "weights_bytes": m["weights_bytes"],
            "arena_bytes_max": m["arena_max"], "slab_bytes_per_worker": m["slab_bytes"],
            "build": {"arch": m["arch"], "compiler": m["compiler"], "cross": m["cross"],
                      **({"board": m["board"]} if m["board"] else {}),
                      **({"link": list(m["link"])} if m["link"] else {}),
                      "others": m["other_files"],
                      "kernels": [{"cflags": list(v["cflags"]), "files": v["kernel_files"]}
                                  for v in m["variants"]]},
            "files": {f: hashlib.sha256(b).hexdigest() for f, b in sorted(files.items())}}
    return (json.dumps(data, indent=1, ensure_ascii=True) + "\n").encode()



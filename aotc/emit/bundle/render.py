"""Plan -> Bundle: everything a user receives, as bytes.  The same Plan gives the same bytes."""

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import jinja2
import numpy as np

from aotc.emit.bundle.alignment import aligned_tensors
from aotc.emit.bundle.call_tree import round_fields
from aotc.emit.bundle.describe import (
    Tensor,
    about_lines,
    arena_max,
    counts_workers,
    parameters,
    slab_bytes,
    symbols_and_tensors,
)
from aotc.emit.bundle.device_needs import device_needs
from aotc.emit.bundle.kits import KITS, Kit, kit_name
from aotc.emit.bundle.magnitude import checked_sizes
from aotc.emit.bundle.manifest import manifest
from aotc.emit.bundle.map_memory import map_most
from aotc.emit.bundle.runtime_files import C_FILES, runtime_headers, runtime_sources
from aotc.emit.bundle.system_files import exports, module_facts
from aotc.emit.bundle.variants import TargetVariant, variants
from aotc.emit.bundle.weights import HEADER_BYTES, find_untouched, image, needs_file, write_words
from aotc.emit.c.includes import has_groups
from aotc.emit.dsa.device_text import device_lines
from aotc.emit.text.c_names import c_comment, c_string, prefix
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.wrapped import wrap_lines
from aotc.errors import AotcError
from aotc.installed import TEMPLATES
from aotc.ir.bundle import (
    BUNDLE_VERSION,
    FORMAT_VERSION,
    MANIFEST,
    MEMORY,
    WEIGHTS,
    Bundle,
    Sample,
    emulators,
)
from aotc.ir.dtypes import BF16, DTYPES, Array
from aotc.ir.expr import Expr, as_expr
from aotc.ir.plan import Plan
from aotc.ir.plans import Plans
from aotc.ir.schedule import MIXED, PRECISION, Schedule
from aotc.ir.simplify import simplify

COST_BYTES = 32  # of what a profile counts of one kernel: NAME_cost
MOST_BYTES = 1 << 62  # of anything: index arithmetic has 64 bits


def render_bundle(plan: Plan, schedule: Schedule, info: Mapping[str, Any],
                  samples: Sequence[Sample] = (), kernel_files: Mapping[str, str] | None = None,
                  weights: str = "file", profile: bool = False) -> Bundle:
    """``render_plans`` of one Plan for every call."""
    return render_plans(Plans.of(plan, schedule), info, samples, kernel_files, weights, profile)


def render_plans(plans: Plans, info: Mapping[str, Any], samples: Sequence[Sample] = (),
                 kernel_files: Mapping[str, str] | None = None, weights: str = "file",
                 profile: bool = False, version: str = BUNDLE_VERSION) -> Bundle:
    """The Bundle of a model's Plans.

    ``info``: {"model_hash": hex SHA-256 of the model, "graph": its name}, and "settings", the
    inputs held as constants or with a default.  ``samples``: recorded
    runs with ``syms``, ``inputs`` and ``outputs`` by ONNX name, for the bundle's own test.
    ``kernel_files``: {file name: C text} of the first target's kernels, default: rendered ones.
    ``weights``: "file" (mapped at run time) or "embed" (linked into the library).
    ``profile``: the bundle counts what every kernel costs, in its arena.
    ``version``: of the bundle's interface and shared library.
    AotcError if a plan or a sample contradicts itself.
    """
    if weights not in WEIGHTS:
        raise AotcError(f"weights {weights!r}: unknown; choose one of {', '.join(WEIGHTS)}")
    name = prefix(plans.main.plan.name)
    parts = variants(name, plans, kernel_files)
    seen = plans.seen(parts[0].plans[-1])
    weights_hash = _weights_hash(parts, info)
    m = _context(seen, parts, info, name, weights_hash, weights, profile)
    m["version"] = version
    files: dict[str, bytes | bytearray] = {
        f: text.encode() for part in parts for f, text in part.files.items()}
    weights_image = image(_plans(parts), weights_hash)
    if m["weights_file"]:
        files[f"{name}_weights.bin"] = weights_image
    files[f"test_{name}.bin"] = _recording(m, samples)
    for part in parts:
        files[f"schedule{part.suffix}.json"] = part.schedule.to_json().encode()
    if m["kit"] in ("c", "board", "module"):
        most = {s.name: s.reach for s in plans.syms}
        files[MEMORY] = map_most(parts, most, m["front"]).to_json().encode()
    files.update(runtime_sources(name, m))
    files.update(_rendered(name, m, weights_image))
    files.update(runtime_headers(m, files))
    files[MANIFEST] = manifest(name, m, info, files)
    return Bundle(name, dict(sorted(files.items())))


def _plans(parts: Iterable[TargetVariant]) -> list[Plan]:
    return [plan for part in parts for plan in part.plans]


def _rendered(name: str, m: Mapping[str, Any],
              weights_image: bytes | bytearray) -> dict[str, bytes]:
    """The files made from templates."""
    kit = KITS[m["kit"]]
    env, common = _environment(m["kit"]), {"name": name, "upper": name.upper(), "m": m}
    files = {}
    for template, file in kit.templates.items():
        text = env.get_template(template).render(**common)
        files[file.format(name)] = (wrap_lines(text) if file.endswith(C_FILES) else text).encode()
    if m["cross"] and m["kit"] not in ("simt", "board", "module"):
        text = env.get_template("toolchain.cmake.j2").render(**common)
        files["toolchain.cmake"] = text.encode()
    if m["embedded"]:
        words = "" if m["weights_file"] else write_words(weights_image)
        text = env.get_template("image.c.j2").render(words=words, **common)
        files[f"{name}_image.c"] = text.encode()
    for v in m["variants"] if len(m["variants"]) > 1 else ():
        text = env.get_template("variant.h.j2").render(v=v, **common)
        files[f"{v['prefix']}_internal.h"] = text.encode()
    if kit.exports:
        files[f"{name}.def"] = exports(name, files[f"{name}.h"].decode()).encode()
    return files


def _context(seen: Plan, parts: Sequence[TargetVariant], info: Mapping[str, Any], name: str,
             weights_hash: bytes, weights: str, profile: bool) -> dict[str, Any]:
    plans = _plans(parts)
    syms, inputs, outputs = symbols_and_tensors(
        seen, name, plans, [m for p in parts for s in p.choices for m in ("", s.mark) if s.mark])
    payload = -(-max(p.weights_bytes for p in plans) // 64) * 64
    hexes = [f"0x{b:02x}" for b in weights_hash]
    rows = [p.row() for p in parts]
    cost_rows = max(1, *(len(r["kernels"]) for r in rows), 1)
    target = ", ".join(p.target.name for p in parts)
    cross = asdict(parts[0].target.cross) if parts[0].target.cross else None
    emitter = parts[0].target.emitter
    kit = KITS[kit_name(parts[0].target)]
    front = _front(kit, cost_rows if profile else 0)
    precision = next((p.schedule.precision for p in parts if p.schedule.precision != PRECISION[0]),
                     "")
    return {"about": f"{info.get('graph') or seen.name}, compiled by aotc for {target}",
            "target": target, "variants": rows, "any_rules": any(r["rules"] for r in rows),
            "embedded": weights == "embed",
            "profile": profile, "cost_rows": cost_rows,
            "weights": weights, "weights_file": needs_file(weights, payload),
            "graph": info.get("graph") or "", "model_hash": info["model_hash"],
            "format_version": FORMAT_VERSION, "arch": parts[0].target.arch,
            "cross": cross, "runner": next(iter(emulators(cross).values()), []),
            "syms": syms, "inputs": inputs, "outputs": outputs,
            "texts": seen.texts,
            "aliases": ", ".join(f"{{{t.alias}, {k}}}" for k, t in enumerate(outputs)
                                 if t.alias >= 0),
            "about_lines": about_lines(syms, inputs, outputs),
            # one more than the largest rank: C has no arrays of no elements
            "shape_slots": 1 + max((len(t.dims) for t in (*inputs, *outputs)), default=0),
            "params": parameters(syms, inputs, outputs), "aligned": aligned_tensors(plans),
            "needs": device_needs(plans, parts[0].target) if emitter == "simt" else None,
            "slot_count": max(1, *(len(p.slots) for p in plans)),
            "counts_workers": any(map(counts_workers, plans)),
            "slab_bytes": _slab_bytes(plans), **round_fields(plans, profile),
            "front": front, "arena_max": _arena_max(plans, front),
            "magnitudes": checked_sizes(_sizes((*plans, seen), kit.most_elements)),
            "size_limit": f"{kit.most_elements or MOST_BYTES}.0",
            "size_refusal": "dimensions: a tensor would be larger than memory can be"
            if not kit.most_elements else
            f"dimensions: a tensor of {kit.most_elements} elements or more; make smaller calls",
            "payload_bytes": payload, "untouched": find_untouched(plans),
            "weights_bytes": payload + HEADER_BYTES, "weights_hash": weights_hash.hex(),
            "checks": [{"cond": c_index(simplify(c.cond)), "why": c.why} for c in seen.checks],
            "hash_rows": [", ".join(hexes[i:i + 8]) for i in range(0, 32, 8)],
            "kernel_files": [f for row in rows for f in row["kernel_files"]],
            "folders": sorted({*(p.target.folder for p in parts),
                               *["bf16"] * (precision in (BF16, MIXED)),
                               *["grouped"] * any(map(has_groups, plans)),
                               *["tiles"] * any(r["tiles"] for r in rows),
                               *[f"boards/{parts[0].target.board}"] * bool(
                                   parts[0].target.board)}),
            "kit": kit_name(parts[0].target), "precision": precision,
            "board": parts[0].target.board, "link": parts[0].target.link,
            "device": device_lines(parts[0].target) if kit.device else "",
            "compiler": kit.compiler, "module": module_facts(parts[0].target, inputs, outputs),
            "other_files": [f.format(name) for f in (kit.host, *kit.copied.values())]
            + ([f"{name}_image.c"] if weights == "embed" else [])}


def _sizes(plans: Iterable[Plan], elements: int) -> Iterator[Expr]:
    """Bytes of everything that a call of plans touches, as index expressions; or, if
    ``elements``, elements of every tensor."""
    for plan in plans:
        if elements:
            yield from (place.elements for place in plan.places)
            continue
        yield from plan.slots
        yield as_expr(slab_bytes(plan))
        for place in plan.places:
            yield place.elements * DTYPES[place.dtype].size


def _slab_bytes(plans: Sequence[Plan]) -> int:
    """Bytes of scratch of one worker at most; -1 where that depends on the dimensions."""
    sizes = [n for n in map(slab_bytes, plans) if isinstance(n, int)]
    return max(sizes) if len(sizes) == len(plans) else -1


def _front(kit: Kit, cost_rows: int) -> int:
    """Bytes of the arena in front of its slots."""
    return kit.reserved + -(-cost_rows * kit.costs_in_arena * COST_BYTES // 64) * 64


def _arena_max(plans: Sequence[Plan], front: int) -> int | None:
    """Bytes of the arena's slots at most, and of what lies in ``front``; None where that depends
    on the dimensions."""
    sizes = [n for n in map(arena_max, plans) if n is not None]
    return max(sizes) + front if len(sizes) == len(plans) else None


def _weights_hash(parts: Sequence[TargetVariant], info: Mapping[str, Any]) -> bytes:
    """Ties an image to its code: the model, every decision, and where each constant lies."""
    layout = [str(p.place(n)) for p in _plans(parts) for n, _ in p.weights]
    text = json.dumps([info["model_hash"], [p.schedule.hash for p in parts], layout])
    return hashlib.sha256(text.encode()).digest()


@cache
def _environment(kit_of: str) -> jinja2.Environment:
    """The templates of a kit's bundles: parsed once, they take longer than a small model."""
    kit = KITS[kit_of]
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES / f for f in kit.folders]),
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined)
    cstring = partial(c_string, longest=kit.longest_string)
    env.filters.update(comment=c_comment, cstring=cstring, wrapped=_wrapped,
                       uint=lambda n: f"UINT64_C({n})", markdown=_markdown,
                       json=json.dumps)
    return env


def _wrapped(words: str) -> str:
    """Words on lines of a Makefile."""
    return words.replace(" ", " \\\n    ")


def _markdown(text: str) -> str:
    """Plain text inside Markdown: one line, no markup."""
    return "".join(c if c.isalnum() or c in " ,.-_/:" else f"&#{ord(c)};" for c in text)


def _recording(m: Mapping[str, Any], samples: Sequence[Sample]) -> bytes:
    """The recorded runs as aotc_test.c reads them."""
    out = [b"AOTCTST1", struct.pack("<Q", len(samples))]
    for sample in samples:
        out += [struct.pack("<q", sample.syms[s.name]) for s in m["syms"]]
        for tensors, arrays in ((m["inputs"], sample.inputs), (m["outputs"], sample.outputs)):
            out += [_raw(t, arrays) for t in tensors]
    return b"".join(out)


def _raw(tensor: Tensor, arrays: Mapping[str, Array]) -> bytes:
    if tensor.onnx not in arrays:
        raise AotcError(f"sample: {tensor.onnx} is missing; it has {', '.join(arrays)}")
    array = np.asarray(arrays[tensor.onnx])
    want = DTYPES[tensor.dtype].numpy
    fits = array.ndim == len(tensor.dims) and all(
        d.lo <= n and (d.hi is None or n <= d.hi) for d, n in zip(tensor.dims, array.shape))
    if array.dtype != want or not fits:
        raise AotcError(f"sample: {tensor.onnx} is {array.dtype}{list(array.shape)}, "
                        f"expected {tensor.type_text}")
    return np.ascontiguousarray(array, want.newbyteorder("<")).tobytes()

"""What a bundle's manifest holds, as a form that JSON data is held against: a manifest is a file,
and files get damaged.

A form is a type, a tuple of forms of which one fits, a list of the form of every item, or a dict of
the form of every key; ``key?`` may be missing, ``*`` stands for all keys that the form does not
name.
"""

from typing import Any

from aotc.ir.bundle import WEIGHTS
from aotc.ir.dtypes import DTYPES

_EXTENT = {"text": str, "symbol": (str, None), "lo": int, "hi": (int, None)}
_TENSOR = {"onnx": str, "c": str, "dtype": tuple(DTYPES), "shape": [(int, _EXTENT)],
           "stored?": str, "default?": bool, "alias?": int, "counts?": [[(str, int)]],
           "scale?": float, "zero?": int, "real?": str}
_CROSS = {"cc": [str], "ldflags": [str], "emulator": [str], "packages": [str], "cflags": [str],
          "vlens": [int], "emulated": [str]}
_FORM = {
    "name": str, "target": str, "weights": WEIGHTS, "files": {"*": str}, "profile?": bool,
    "symbols": [{"name": str, "c": str, "onnx": str, "lo": int, "hi": (int, None)}],
    "inputs": [_TENSOR], "outputs": [_TENSOR], "texts?": [str], "held?": [str],
    "fixed?": {"*": {}}, "lists?": {"inputs": list, "outputs": list},
    "variants": [{"target": str}], "kernels": [{"c": str, "target": str}],
    "build": {"arch": str, "compiler?": str, "cross": (_CROSS, None), "others": [str],
              "board?": str, "link?": [str],
              "kernels": [{"cflags": [str], "files": [str]}]},
}


def manifest_fault(data: Any) -> str:
    """What of a manifest is not as aotc writes it, in words; "" if nothing is."""
    fault = _fault(data, _FORM, "manifest")
    if fault:
        return fault
    name = data["name"]
    if not name.isidentifier() or f"{name}.h" not in data["files"] or not data["variants"]:
        return f"no bundle is called {name[:80]!r} and has these files"
    return ""


def _fault(value: Any, form: Any, where: str) -> str:
    """The first thing that does not fit the form; "" if all does."""
    if isinstance(form, dict):
        return _fault_of_keys(value, form, where)
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where}: {str(value)[:60]!r} is no list"
        return next((f for i, v in enumerate(value) if (f := _fault(v, form[0], f"{where}[{i}]"))),
                    "")
    if isinstance(form, tuple):
        fits = any(not _fault(value, f, where) for f in form)
    elif isinstance(form, type):
        fits = isinstance(value, form) and not (form is int and isinstance(value, bool))
    else:  # the value itself
        fits = value == form
    return "" if fits else f"{where}: {str(value)[:60]!r}"


def _fault_of_keys(value: Any, form: dict[str, Any], where: str) -> str:
    if not isinstance(value, dict):
        return f"{where}: {str(value)[:60]!r} is no object"
    lost = next((k for k in form if k != "*" and not k.endswith("?") and k not in value), "")
    if lost:
        return f"{where}: it has no {lost!r}"
    own = {k.removesuffix("?"): f for k, f in form.items()}
    return next((f for k, v in value.items() if k in own or "*" in own
                 if (f := _fault(v, own.get(k, own.get("*")), f"{where}.{k}"))), "")

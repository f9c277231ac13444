"""What some systems ask of a bundle besides: what a DLL exports, and ES modules."""

import re
from collections.abc import Sequence
from typing import Any

from aotc.emit.bundle.describe import Tensor
from aotc.target.base import Target

_COMMENTS = re.compile(r"/\*.*?\*/", re.S)
# typed arrays of ES modules
MODULE_ARRAYS = {"f64": "Float64Array", "f32": "Float32Array", "i64": "BigInt64Array",
                 "i32": "Int32Array", "i16": "Int16Array", "i8": "Int8Array",
                 "u64": "BigUint64Array", "u32": "Uint32Array", "u16": "Uint16Array",
                 "u8": "Uint8Array", "bool": "Uint8Array", "f16": "Uint16Array"}


def exports(name: str, header: str) -> str:
    """What a DLL exports, for linkers of Windows: all that the bundle's header declares."""
    functions = dict.fromkeys(re.findall(rf"\b({name}_\w+)\(", _COMMENTS.sub("", header)))
    tables = dict.fromkeys(re.findall(rf"^extern .*?\b({name}_\w+)\[|^extern .*?({name}_\w+);",
                                      header, re.M))
    return "\n".join(["EXPORTS", *functions, *(f"{a or b} DATA" for a, b in tables)]) + "\n"


def module_facts(target: Target, inputs: Sequence[Tensor],
            outputs: Sequence[Tensor]) -> dict[str, Any] | None:
    """What the templates of an ES module say of tensors; None for other bundles."""
    if not target.module:
        return None
    return {"arrays": MODULE_ARRAYS, "dtypes": sorted({t.dtype for t in (*inputs, *outputs)})}

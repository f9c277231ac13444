"""What a bundle has of the runtime: sources with its prefix, its own test, the headers they
include."""

import re
from collections.abc import Mapping
from typing import Any

from aotc.emit.bundle.kits import KITS
from aotc.installed import runtime_c

C_FILES = (".c", ".h", ".hpp", ".cu", ".cuh")


def runtime_sources(name: str, m: Mapping[str, Any]) -> dict[str, bytes]:
    """Copies of the runtime; the C files are given the bundle's prefix in their first lines."""
    folder, kit = runtime_c(), KITS[m["kit"]]
    files: dict[str, bytes] = {}
    head = f'#define AOTC_NAME(x) {name}_##x\n#define AOTC_HEADER "{name}.h"\n'
    head += "#define AOTC_EMBEDDED\n" if m["embedded"] else ""
    head += m["device"]
    for source in kit.plain:
        files[source.rpartition("/")[2]] = (folder / source).read_bytes()
    for source, file in (*kit.copied.items(), *kit.apart):
        files[file.format(name)] = head.encode() + (folder / source).read_bytes()
    smallest = ", ".join(str(s.lo) for s in m["syms"]) or "0"
    head += "".join(f"#define AOTC_{k} {v}\n" for k, v in (
        ("INPUTS", len(m["inputs"])), ("OUTPUTS", len(m["outputs"])),
        ("SYMBOLS", len(m["syms"])), ("SMALLEST", smallest)))
    if m["aliases"]:
        head += f"#define AOTC_SHARED {', '.join(str(t.alias) for t in m['outputs'])}\n"
    head += f"#define AOTC_{kit.test}\n" if kit.test else ""
    head += "#define AOTC_LOW_PRECISION\n" if m["precision"] else ""
    if m["board"]:
        head += f'#define AOTC_RECORDING "test_{name}.bin"\n'
        files["aotc_board.ld"] = (folder / "boards" / m["board"] / "aotc_board.ld").read_bytes()
    files[f"test_{name}.c"] = head.encode() + (folder / kit.tests).read_bytes()
    return files


def runtime_headers(m: Mapping[str, Any],
                    files: Mapping[str, bytes | bytearray]) -> dict[str, bytes]:
    """The runtime's headers that the sources in ``files`` include, and those that these do."""
    patterns = KITS[m["kit"]].headers + tuple(f"{f}/*.h" for f in m["folders"])
    known = {h.name: h for p in patterns for h in sorted(runtime_c().glob(p))}
    found: dict[str, bytes] = {}
    sources = [text for f, text in files.items() if f.endswith(C_FILES)]
    while sources:
        named = re.findall(rb'^ *# *include "(\w+\.h)"', sources.pop(), re.M)
        for header in {n.decode() for n in named} & known.keys() - found.keys():
            found[header] = known[header].read_bytes()
            sources.append(found[header])
    return found

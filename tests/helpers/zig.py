"""Other systems' compilers and headers: zig, which pip installs (``ziglang``), has all of them."""

import importlib.util
import os
import subprocess
import sys

import pytest
from product_models import sources

from aotc.runtime.compile_bundle import read_manifest

MISSING = importlib.util.find_spec("ziglang") is None
needs_zig = pytest.mark.skipif(MISSING, reason="not installed: ziglang (pip)")
# what the kernels' flags of gcc and clang are called there
_AS_ZIG = {"x86-64": "x86_64", "x86-64-v3": "x86_64_v3", "x86-64-v4": "x86_64_v4"}


def zig(target):
    """The command, as a list, of the C compiler for an architecture and system."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def as_zig(flags):
    """Flags of gcc and clang in zig's words."""
    return [f"-march={_AS_ZIG.get(f[7:], f[7:].replace('-', '_'))}" if f.startswith("-march=x86")
            else f for f in flags]


def objects(folder, target, out, flags=()):
    """Compile all of a bundle and its own test; the objects' paths."""
    name, made = read_manifest(folder)["name"], []
    for file, cflags in [*sources(folder), (f"test_{name}.c", [])]:
        made.append(os.path.join(out, file + ".o"))
        done = subprocess.run([*zig(target), "-std=c11", "-O1", *flags, *as_zig(cflags), "-c", file,
                               "-o", made[-1]], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{file}: {done.stderr[:2000]}"
    return made


def program(folder, target, out, flags=()):
    """Build a bundle's own test for another system; its path."""
    path = os.path.join(out, "test.exe")
    subprocess.run([*zig(target), *flags, *objects(folder, target, out, flags), "-o", path],
                   cwd=folder, check=True, capture_output=True)
    return path

"""Targets by name.  ``get_target("native")`` picks the widest one this machine can run."""

import platform

from aotc.errors import UnsupportedError
from aotc.target.base import Machine, Target
from aotc.target.cpu import (
    AARCH64,
    AARCH64_ANDROID,
    AARCH64_BF16,
    AARCH64_DOT,
    AARCH64_I8MM,
    X86,
    X86_V1,
    X86_V3,
    X86_V4,
    X86_V4_AMX,
    X86_V4_BF16,
    X86_V4_VNNI,
    C,
)
from aotc.target.cuda import CUDA, SM_80, SM_86, SM_87, SM_89, SM_90, SM_120
from aotc.target.dsa import STCP920
from aotc.target.microcontrollers import MICROCONTROLLERS
from aotc.target.riscv import RISCV, RISCV64, RISCV64_ZVFH
from aotc.target.wasm import WASM32

TARGETS = {t.name: t for t in (C, X86_V1, X86_V3, X86_V4, X86_V4_VNNI, X86_V4_BF16, X86_V4_AMX, X86,
                               AARCH64, AARCH64_DOT, AARCH64_I8MM, AARCH64_BF16,
                               AARCH64_ANDROID, *RISCV, WASM32, CUDA, SM_80, SM_86, SM_87, SM_89,
                               SM_90, SM_120, STCP920, *MICROCONTROLLERS)}


_AS_COMPILERS = {"avx512_vnni": "avx512vnni",
                 "avx512_bf16": "avx512bf16"}  # the kernel's name -> __builtin_cpu_supports's


def flags_of(text: str) -> frozenset[str]:
    """What a CPU can do by its /proc/cpuinfo: x86's flags, Arm's features, or RISC-V's extensions:
    letters, and names of several."""
    for line in text.splitlines():
        name, _, value = map(str.strip, line.partition(":"))
        if name == "flags":
            return frozenset(_AS_COMPILERS.get(f, f) for f in value.split())
        if name == "Features":  # Arm
            return frozenset(value.split())
        if name == "isa":
            letters, *names = value.split("_")
            return frozenset(letters.removeprefix("rv64")) | set(names)
    return frozenset()


def _cpuinfo() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""  # no such file on this system: only the portable target is certain


def _cpu_flags() -> frozenset[str]:
    return flags_of(_cpuinfo())


def runs_here(target: Target) -> bool:
    """True if this machine's CPU can run the code of a target (of all variants, if it has any)."""
    arch = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
    return target.arch in ("", arch) and _cpu_flags().issuperset(target.cpu_flags)


def maker_of(text: str) -> str:
    """Who made a CPU by its /proc/cpuinfo; "" where it does not say."""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "vendor_id"), "")


def pays_here(target: Target) -> bool:
    """True if the instructions of a target are known to pay on this machine's CPU."""
    return not target.makers or maker_of(_cpuinfo()) in target.makers


def native_target(precision: str = "f32") -> Target:
    """The widest target that this machine can run; ``c`` if its machine is unknown.  precision: of
    products; rows of lower ones are nothing to look for where none are asked for."""
    own = filter(pays_here, (X86_V4_AMX, X86_V4_BF16, AARCH64_BF16)) if precision in (
        "bf16", "mixed") else ()
    return next(filter(runs_here, (
        *own, X86_V4_VNNI, X86_V4, X86_V3, X86_V1, AARCH64_I8MM, AARCH64_DOT, AARCH64,
                        RISCV64_ZVFH, RISCV64)), C)


def get_target(name: str, precision: str = "f32") -> Target:
    """Target by name or ``native``, for a ``precision`` of products.  UnsupportedError lists the
    names there are."""
    if name == "native":
        return native_target(precision)
    if name not in TARGETS:
        raise UnsupportedError(f"target {name!r}: unknown; choose one of native, "
                               + ", ".join(TARGETS))
    return TARGETS[name]


__all__ = ["TARGETS", "Machine", "Target", "flags_of", "get_target", "maker_of", "native_target",
           "pays_here", "runs_here"]

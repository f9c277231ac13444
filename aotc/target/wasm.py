"""WebAssembly: vectors of 128 bits (SIMD128), in an engine that compiles them for its CPU."""

from dataclasses import replace

from aotc.target.base import Cross, Target
from aotc.target.cpu import AARCH64, byte_dots, lane_nests, widened_groups
from aotc.target.micro_kernels import contraction

# wasi-libc is what the test program reads its recording with; the ES module needs no system
_CROSS = Cross(("clang-19", "clang-20", "clang-21", "clang"),
               ("-Wl,-z,stack-size=1048576",), ("node", "--no-warnings", "aotc_wasi.mjs"),
               ("clang-19", "lld-19", "wasi-libc", "libclang-rt-19-dev-wasm32", "nodejs"),
               ("--target=wasm32-wasi",))

# what x64 leaves of 16 registers: 4x8 sums, as SSE2; multiply and add are two instructions
WASM32 = Target(
    "wasm32", "WebAssembly with SIMD128, an ES module for browsers and node", 4, ("-msimd128",),
    "c", replace(AARCH64.machine, workers=1),
    tuple(contraction("simd128", 4, m, n) for m, n in ((4, 2), (1, 4), (1, 1)))
    + byte_dots("simd128", 4, (3, 2), (1, 2)) + widened_groups("simd128", 4, (4, 2), (1, 4))
    + lane_nests("simd128"),
    "defined(__wasm_simd128__)", (), "wasm32", cross=_CROSS, lane_steps=(1, 2), part_loads=True,
    module=True)

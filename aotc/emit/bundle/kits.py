"""What a bundle is made of beside its kernels, per emitter: templates, copied sources, headers."""

from dataclasses import dataclass

from aotc.target.base import Target


@dataclass(frozen=True)
class Kit:
    """folders: of templates, the first that has one counts.  templates: template -> file, where {}
    is the bundle's prefix.  copied: runtime source -> file; copies start with the bundle's prefix.
    headers: patterns of the runtime's headers.  host: the file that checks, lays out and calls.
    compiler: of the kernels.  reserved: bytes at the start of the arena that are no slot.
    longest_string: bytes of the longest string literal.  costs_in_arena: what a profile counts lies
    there; else in the context.  test: what the test program is told about the bundle (a macro).
    small: the compiler's flags for kernels where size counts; they follow and override the level of
    the other files.
    tests: the test program's source.  exports: there is a list of what a DLL exports.  apart:
    sources and files as ``copied``, which are no part of the library; plain: copied as they are.
    most_elements: of a tensor, where kernels count them in 32 bits (0: as many as there are).
    device: copied sources are told about the machine, which may refuse accesses."""

    folders: tuple[str, ...]
    templates: dict[str, str]
    copied: dict[str, str]
    headers: tuple[str, ...]
    host: str
    compiler: str = "cc"
    test: str = ""
    reserved: int = 0
    longest_string: int = 4000
    costs_in_arena: bool = True
    small: tuple[str, ...] = ("-Os",)
    most_elements: int = 0
    device: bool = False
    tests: str = "aotc_test.c"
    exports: bool = False
    apart: tuple[tuple[str, str], ...] = ()
    plain: tuple[str, ...] = ()


_COMMON = {"model.h.j2": "{}.h", "internal.h.j2": "{}_internal.h", "Makefile.j2": "Makefile",
           "CMakeLists.txt.j2": "CMakeLists.txt", "README.md.j2": "README.md",
           "LICENSE-NOTE.j2": "LICENSE-NOTE"}
_MAKES = {**_COMMON, "model.hpp.j2": "{}.hpp", "model.c.j2": "{}.c", "pc.j2": "{}.pc"}
_PARTS = {"aotc_weights.c": "{}_weights.c", "aotc_pool.c": "{}_pool.c"}
KITS = {
    "c": Kit(("bundle",), _MAKES, _PARTS, ("*.h",), "{}.c", exports=True),
    "module": Kit(("bundle/module", "bundle"),
                  {**_MAKES, "module.mjs.j2": "{}.mjs", "module.d.ts.j2": "{}.d.ts"}, _PARTS,
                  ("*.h",), "{}.c", apart=(("wasm/aotc_module.c", "{}_module.c"),),
                  plain=("wasm/aotc_wasi.mjs",)),
    "board": Kit(("bundle/board", "bundle"),
                 {k: f for k, f in _COMMON.items() if k != "CMakeLists.txt.j2"}
                 | {"model.c.j2": "{}.c"}, _PARTS,
                 ("*.h", "boards/*.h"), "{}.c", tests="boards/aotc_board_test.c"),
    "dsa": Kit(("bundle",), _MAKES,
               {**_PARTS,
                "dsa/aotc_dsa_sim.c": "{}_dsa.c", "dsa/aotc_dsa_kept.c": "{}_dsa_kept.c",
                "dsa/aotc_dsa_units.c": "{}_units.c"},
               ("*.h", "dsa/*.h"), "{}.c", device=True, exports=True),
    "simt": Kit(("cuda/bundle", "bundle"), {**_COMMON, "model.cu.j2": "{}.cu"},
                {"aotc_weights.c": "{}_weights.c"},
                ("aotc_rt.h", "aotc_index.h", "aotc_num.h", "aotc_os.h", "aotc_compiler.h",
                 "aotc_files.h", "cuda/*.h"), "{}.cu", "nvcc", "ON_DEVICE",
                64, 1 << 16, False, (), 1 << 31),
}


def kit_name(target: Target) -> str:
    """The key of ``KITS`` for a target's bundles."""
    return "board" if target.board else "module" if target.module else target.emitter

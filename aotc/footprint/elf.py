"""What a relocatable ELF file has: its sections, the symbols in them, and who refers to whom."""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aotc.errors import AotcError

_WRITE, _ALLOC, _EXEC = 1, 2, 4  # flags of sections
_RELOCATIONS = ("SHT_REL", "SHT_RELA")


@dataclass(frozen=True)
class ElfSection:
    """``kind``: "code", "tables" (constants), "data" (variables with a value), "zeros" (variables
    without), "" for what no memory holds.  ``functions``, ``objects``: names of its symbols.
    ``refers``: what is referred to from it, numbers of sections of the file, and names of symbols
    that others have."""

    name: str
    kind: str
    bytes: int
    functions: tuple[str, ...]
    objects: tuple[str, ...]
    refers: tuple[int | str, ...]


@dataclass(frozen=True)
class ElfObject:
    """An object file; ``exports``: {symbol that others may refer to: its section}."""

    sections: tuple[ElfSection, ...]
    exports: dict[str, int]


def read_elf(data: bytes, name: str) -> ElfObject:
    """The ElfObject of a file's bytes.  AotcError with ``name`` if it is none, or without
    pyelftools."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise AotcError("object files are read by pyelftools, which is not installed: "
                        "pip install 'aotc[size]'") from None
    try:
        return _read(ELFFile(BytesIO(data)))
    except (ELFError, ValueError, IndexError, KeyError) as err:
        raise AotcError(f"{name}: no ELF object file ({err})") from None


def _read(file: Any) -> ElfObject:
    sections = list(file.iter_sections())
    symbols = [s for table in sections if table["sh_type"] == "SHT_SYMTAB"
               for s in table.iter_symbols()]
    if not symbols:
        raise ValueError("it has no symbols")
    refers: dict[int, dict[int | str, None]] = {}
    for table in sections:
        if table["sh_type"] in _RELOCATIONS:
            found = refers.setdefault(table["sh_info"], {})
            for r in table.iter_relocations():
                symbol = symbols[r["r_info_sym"]]
                if (to := _place(symbol) or symbol.name):
                    found[to] = None
    named: dict[tuple[int, str], list[str]] = {}
    for s in symbols:
        named.setdefault((_place(s), s["st_info"]["type"]), []).append(s.name)
    return ElfObject(
        tuple(ElfSection(x.name, _kind(x), x["sh_size"], tuple(named.get((n, "STT_FUNC"), ())),
                         tuple(named.get((n, "STT_OBJECT"), ())), tuple(refers.get(n, ())))
              for n, x in enumerate(sections)),
        {s.name: _place(s) for s in symbols if s["st_info"]["bind"] != "STB_LOCAL" and _place(s)})


def _place(symbol: Any) -> int:
    """The number of a symbol's section; 0 for that of another file, or none."""
    section = symbol["st_shndx"]
    return section if isinstance(section, int) else 0


def _kind(section: Any) -> str:
    flags, kind = section["sh_flags"], section["sh_type"]
    if not flags & _ALLOC or kind in _RELOCATIONS:
        return ""
    if flags & _EXEC:
        return "code"
    if not flags & _WRITE:
        return "tables"
    return "zeros" if kind == "SHT_NOBITS" else "data"


__all__ = ["ElfObject", "ElfSection", "read_elf"]

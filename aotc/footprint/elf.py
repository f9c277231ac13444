"""What a relocatable ELF file has: its sections, the symbols in them, and who refers to whom."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from aotc.errors import AotcError

_SYMTAB, _RELA, _NOBITS, _REL = 2, 4, 8, 9  # kinds of sections
_WRITE, _ALLOC, _EXEC = 1, 2, 4  # flags of sections
_FUNCTION, _SECTION = 2, 3  # kinds of symbols


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


@dataclass(frozen=True)
class _Header:
    """Of a section, as the file has it."""

    name: int
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    outside: bool  # others may refer to it
    section: int  # 0: that of another file


def read_elf(data: bytes, name: str) -> ElfObject:
    """The ElfObject of a file's bytes; AotcError with ``name`` if it is none."""
    try:
        return _Reader(data).read()
    except (struct.error, IndexError, ValueError) as err:
        raise AotcError(f"{name}: no ELF object file ({err})") from None


class _Reader:
    """The file's numbers in its own order and width."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] not in (1, 2):
            raise ValueError("it starts otherwise")
        self.data, self.wide = data, data[4] == 2
        self.order = "<" if data[5] == 1 else ">"
        at = self._get("Q", 40)[0] if self.wide else self._get("I", 32)[0]
        size, count, self.names = self._get("HHH", 58 if self.wide else 46)
        if not count:
            raise ValueError("it has no sections")
        self.headers = [self._header(at + n * size) for n in range(count)]

    def _get(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self.order + form, self.data, at)

    def _header(self, at: int) -> _Header:
        form = "IIQQQQII" if self.wide else "IIIIIIII"
        name, kind, flags, _, offset, size, link, info = self._get(form, at)
        return _Header(name, kind, flags, offset, size, link, info)

    def _text(self, section: int, at: int) -> str:
        first = self.headers[section].offset + at
        return self.data[first:self.data.index(b"\0", first)].decode(errors="replace")

    def read(self) -> ElfObject:
        symbols = [s for n, h in enumerate(self.headers) if h.type == _SYMTAB
                   for s in self._symbols(h)]
        refers: dict[int, dict[int | str, None]] = {}
        for h in self.headers:
            if h.type in (_REL, _RELA):
                found = refers.setdefault(h.info, {})
                found.update((t.section or t.name, None) for t in (
                    symbols[i] for i in self._referred(h)) if t.section or t.name)
        sections = tuple(ElfSection(
            self._text(self.names, h.name), _kind(h), h.size,
            tuple(s.name for s in symbols if s.section == n and s.kind == _FUNCTION),
            tuple(s.name for s in symbols if s.section == n and s.kind == 1),
            tuple(refers.get(n, ()))) for n, h in enumerate(self.headers))
        return ElfObject(sections, {s.name: s.section for s in symbols if s.outside and s.section})

    def _symbols(self, table: _Header) -> Iterator[_Symbol]:
        for at in range(table.offset, table.offset + table.size, 24 if self.wide else 16):
            if self.wide:
                name, info, _, section = self._get("IBBH", at)
            else:
                (name,), (info, _, section) = self._get("I", at), self._get("BBH", at + 12)
            # numbers from 0xff00 on stand for no section
            yield _Symbol(self._text(table.link, name), info & 15, info >> 4 != 0,
                          section if section < 0xff00 else 0)

    def _referred(self, table: _Header) -> Iterator[int]:
        """Numbers of symbols."""
        form, size, shift = ("QQ", 16, 32) if self.wide else ("II", 8, 8)
        step = size + (8 if self.wide else 4) * (table.type == _RELA)
        for at in range(table.offset, table.offset + table.size, step):
            yield self._get(form, at)[1] >> shift


def _kind(h: _Header) -> str:
    if not h.flags & _ALLOC or h.type in (_REL, _RELA):
        return ""
    if h.flags & _EXEC:
        return "code"
    if not h.flags & _WRITE:
        return "tables"
    return "zeros" if h.type == _NOBITS else "data"


__all__ = ["ElfObject", "ElfSection", "read_elf"]

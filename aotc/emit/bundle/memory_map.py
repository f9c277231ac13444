"""MemoryMap: who lives where in a call's arena, and when; a bundle's memory.json.

    map    = MemoryMap(extents, front, slots, tenants, users, constants)
    tenant = Tenant(name, onnx, bytes, offset, first, last)    a tensor of the arena
    user   = MemoryUser(name, scratch)                         a kernel, in call order
    moment = Moment(kernel, stored, scratch, tenants)          while a kernel runs
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any, Self

LINE = 64  # bytes that tensors and scratch are multiples of, and the least arena


@dataclass(frozen=True)
class Tenant:
    """A tensor in bytes ``offset`` .. ``offset + bytes`` - 1 of the arena while kernels ``first``
    .. ``last`` run; ``onnx``: its name in the model, "" if it has none there."""

    name: str
    onnx: str
    bytes: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryUser:
    """A kernel by its C name, with the bytes of scratch that one worker needs for it."""

    name: str
    scratch: int


@dataclass(frozen=True)
class StoredConstant:
    """Bytes of the weights image, and the numbers of the kernels that read them."""

    name: str
    onnx: str
    bytes: int
    users: tuple[int, ...]


@dataclass(frozen=True)
class Moment:
    """While kernel number ``kernel`` runs: bytes of tensors, of its scratch, and the tensors, the
    largest first."""

    kernel: int
    stored: int
    scratch: int
    tenants: tuple[Tenant, ...]

    @property
    def bytes(self) -> int:
        """All of them."""
        return self.stored + self.scratch

    @property
    def own(self) -> tuple[tuple[Tenant, int], ...]:
        """The tensors with their bytes, without those where a larger one lies: what is written
        over an input takes nothing more."""
        taken: list[tuple[int, int]] = []
        found = []
        for t in self.tenants:
            before = _covered(taken)
            taken.append((t.offset, t.offset + t.bytes))
            found.append((t, _covered(taken) - before))
        return tuple(found)


@dataclass(frozen=True)
class MemoryMap:
    """Of a call with these ``extents`` on one worker: ``front`` bytes in front of the tensors,
    ``slots`` bytes of tensors."""

    extents: Mapping[str, int] = field(hash=False)
    front: int
    slots: int
    tenants: tuple[Tenant, ...]
    users: tuple[MemoryUser, ...]
    constants: tuple[StoredConstant, ...]

    @property
    def scratch(self) -> int:
        """Bytes of scratch of a worker: of the kernel that needs most."""
        return max((u.scratch for u in self.users), default=0)

    @property
    def arena(self) -> int:
        """Bytes of the arena of this call."""
        return max(LINE, self.front + self.slots + self.scratch)

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """What every kernel finds in the arena, in call order."""
        return tuple(self._moment(n) for n in range(len(self.users)))

    def _moment(self, kernel: int) -> Moment:
        alive = sorted((t for t in self.tenants if t.first <= kernel <= t.last),
                       key=lambda t: (-t.bytes, t.offset))
        return Moment(kernel, _covered((t.offset, t.offset + t.bytes) for t in alive),
                      self.users[kernel].scratch, tuple(alive))

    @property
    def peak(self) -> Moment | None:
        """The first moment that needs most; None without kernels."""
        return max(self.moments, key=lambda m: m.bytes, default=None)

    def to_json(self) -> str:
        """Its text, a line for each row."""
        rows = {kind: [json.dumps(astuple(x)) for x in getattr(self, kind)] for kind in _ROWS}
        parts = [f' "extents": {json.dumps(dict(self.extents))}', f' "front": {self.front}',
                 f' "slots": {self.slots}']
        parts += [f' "{kind}": [\n  ' + ",\n  ".join(found) + "\n ]" if found else
                  f' "{kind}": []' for kind, found in rows.items()]
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The MemoryMap of JSON data.  ValueError, KeyError or TypeError for what is none."""
        rows = {kind: tuple(make(*(tuple(v) if isinstance(v, list) else v for v in row))
                            for row in data[kind]) for kind, make in _ROWS.items()}
        return cls(dict(data["extents"]), int(data["front"]), int(data["slots"]), **rows)


_ROWS: dict[str, Any] = {"tenants": Tenant, "users": MemoryUser, "constants": StoredConstant}


def _covered(ranges: Iterable[tuple[int, int]]) -> int:
    """Bytes in any of the ranges: what is written over an input lies where that did."""
    total = end = 0
    for low, high in sorted(ranges):
        total += max(0, high - max(low, end))
        end = max(end, high)
    return total


__all__ = ["MemoryMap", "MemoryUser", "Moment", "StoredConstant", "Tenant"]

"""Where a Place lies, in C: expressions over the frame ``f``."""

from aotc.emit.text.cexpr import c_index, plus
from aotc.ir.dtypes import DTYPES
from aotc.ir.plan import Place
from aotc.ir.simplify import simplify

# storages that are pointers of the frame -> the array of the frame that has them
POINTERS = {"input": "in", "output": "out", "round_in": "round_in", "round_out": "round_out"}


def pointer(place: Place) -> str:
    """The frame's pointer to a place that has one."""
    return f"f->{POINTERS[place.storage]}[{place.index}]"


def address(place: Place) -> str:
    """The address of any place, as a pointer to bytes."""
    if place.storage in POINTERS:
        const = "const " if place.storage in ("input", "round_in") else ""
        return f"({const}uint8_t *){pointer(place)}"
    base = "f->weights" if place.storage == "weights" else f"f->slot[{place.slot}]"
    return plus(base, place.offset)


def cast_address(place: Place) -> str:
    """The address of a place in the arena or among the weights, behind a cast."""
    return f"({address(place)})" if place.offset else address(place)


def place_text(place: Place) -> str:
    """C text of the address of any place in a kernel, as a pointer to void."""
    if place.storage in ("input", "round_in"):
        return f"AOTC_{place.storage.upper()}({place.index})"
    if place.storage in POINTERS:
        return pointer(place)
    return (f"AOTC_WEIGHTS({place.offset})" if place.storage == "weights" else
            f"AOTC_ARENA({place.slot}, {place.offset})")


def bytes_of(place: Place) -> str:
    """Its size in bytes."""
    return c_index(simplify(place.elements * DTYPES[place.dtype].size))

"""When Python looks for rings of objects that nothing else refers to, and what has been dropped is
given back."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SELDOM = (100_000, 50, 100)  # of the collector's thresholds
HEAVY = 16 << 20  # bytes of weights from which making sure that dropped ones are gone is worth it
_MMAP_THRESHOLD, _ALONE = -3, 1 << 20  # mallopt's number of what has pages of its own, and bytes


@contextmanager
def collect_seldom() -> Iterator[None]:
    """What stages make lives for long: looking through it again and again for rings of objects
    takes a seventh of their time and finds little."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _of_the_library(name: str) -> Any:
    """A function of the C library by its name; None where it has none such, as on Windows."""
    return None if sys.platform == "win32" else getattr(ctypes.CDLL(None), name, None)


def keep_apart(weights: int) -> None:
    """Have the C library give large arrays of a model with so many bytes of weights, if they are
    many, pages of their own, which are free as soon as they are dropped: it would otherwise put
    them among others after the first ones were, where they leave holes.  It does so from then on,
    whatever else the process allocates."""
    allocation = _of_the_library("mallopt")
    if weights >= HEAVY and allocation is not None:
        allocation(_MMAP_THRESHOLD, _ALONE)


def free_dropped(weights: int) -> None:
    """Free what was dropped of a model with so many bytes of weights, if they are many: rings of
    objects hold it until they are collected, and the C library keeps its pages, takes what is made
    next from elsewhere, until it is told to give them back."""
    if weights < HEAVY:
        return
    gc.collect()
    give_back = _of_the_library("malloc_trim")
    if give_back is not None:
        give_back(0)

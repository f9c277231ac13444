"""When Python looks for rings of objects that nothing else refers to."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (100_000, 50, 100)  # of the collector's thresholds


@contextmanager
def seldom_collected() -> Iterator[None]:
    """What stages make lives for long: looking through it again and again for rings of objects
    takes a seventh of their time and finds little."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)

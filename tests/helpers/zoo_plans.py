"""What several tests ask of a zoo model, decided once for all of them."""

from functools import lru_cache

from aotc.options import Options
from aotc.pipeline import run_pipeline

TARGET = "x86-64-v4"


@lru_cache(maxsize=1)  # a Work holds the weights: of one model at a time
def planned(path):
    """Work of a model for ``TARGET`` up to its plan, as users get it; the Program as it was before
    the Schedule's rewrites."""
    return run_pipeline(Options(path, target=TARGET, stop_after="plan"))

"""The CPUs that this process may use, and staying on some of them, where the system knows."""

import os


def usable_processors() -> list[int]:
    """Numbers of the CPUs that this process may use, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def stay_on(processors: list[int]) -> None:
    """Run on these CPUs alone, threads to come too; on systems without such a call (macOS,
    Windows) anywhere."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)


__all__ = ["stay_on", "usable_processors"]

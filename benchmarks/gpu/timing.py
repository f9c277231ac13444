"""Times on a GPU: calls are started one after the other until they take a while, then waited for;
systems take turns.  A call may be a CUDA graph that is replayed."""

import time
from dataclasses import dataclass
from itertools import cycle

import cffi

from aotc.errors import AotcError
from aotc.tools.bench import interleave

BATCH_SECONDS = 0.02  # calls started before waiting: enough to fill so much time


@dataclass(frozen=True)
class System:
    """``call()`` starts ``runs`` inferences, ``wait()`` is for all that were started."""

    call: object
    wait: object
    runs: int = 1


def batched(call, wait):
    """``call`` so often that a batch takes BATCH_SECONDS, then ``wait``: (batch(), size)."""
    def batch(n):
        for _ in range(n):
            call()
        wait()
    batch(3)
    size = 1
    while size < 1 << 16:
        start = time.perf_counter()
        batch(size)
        took = time.perf_counter() - start
        if took >= BATCH_SECONDS:
            break
        size = max(size + 1, int(size * min(8.0, 1.1 * BATCH_SECONDS / max(took, 1e-6))))
    return (lambda: batch(size)), size


def time_systems(systems, seconds):
    """{name: milliseconds of one inference, the median of batches}, systems taking turns for so
    many seconds each."""
    batches = {name: batched(s.call, s.wait) for name, s in systems.items()}
    timings = interleave({n: b for n, (b, _) in batches.items()}, seconds)
    return {t.name: t.median_ms / batches[t.name][1] / systems[t.name].runs for t in timings}


def in_turn(calls):
    """One call after the other, so that no cache holds what the next one reads."""
    turn = cycle(calls)
    return lambda: next(turn)()


_DRIVER = """
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
"""


class Graph:
    """What ``starts`` (functions of a stream, a number) start, as a CUDA graph to replay.  All have
    run before, on any stream, so that nothing is allocated meanwhile.  AotcError with the driver's
    number if it cannot be captured."""

    def __init__(self, starts):
        self.ffi = cffi.FFI()
        self.ffi.cdef(_DRIVER)
        self.driver = self.ffi.dlopen("libcuda.so.1")
        self.stream = self._made("cuStreamCreate", 1)  # waits for no other stream
        self._do("cuStreamBeginCapture_v2", self.stream, 0)
        try:
            for start in starts:
                start(int(self.ffi.cast("uintptr_t", self.stream)))
        finally:
            graph = self.ffi.new("void **")
            ended = self.driver.cuStreamEndCapture(self.stream, graph)
        if ended:
            raise AotcError(f"cuStreamEndCapture: error {ended}")
        self.graph = self._made("cuGraphInstantiateWithFlags", graph[0], 0)
        self.runs = len(starts)

    def _do(self, function, *args):
        status = getattr(self.driver, function)(*args)
        if status:
            raise AotcError(f"{function}: error {status}")

    def _made(self, function, *args):
        out = self.ffi.new("void **")
        self._do(function, out, *args)
        return out[0]

    def system(self):
        """The System that replays it."""
        return System(lambda: self._do("cuGraphLaunch", self.graph, self.stream),
                      lambda: self._do("cuStreamSynchronize", self.stream), self.runs)


__all__ = ["Graph", "System", "batched", "in_turn", "time_systems"]

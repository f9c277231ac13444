"""What benchmarks of ranges of extents share: peers, calls in turns, sizes of bundles, means."""

import time
from statistics import geometric_mean, median

import numpy as np

from aotc.errors import AotcError
from aotc.tools.peers import open_peer

PEERS = ("onnxruntime", "openvino")
# seconds before a system's calls, for threads of the system before to go to sleep
REST = 0.02
WARM = 0.03  # seconds of calls that do not count, of every shape
CLOSE = 2e-3  # of the largest element: how far results may be apart and count as equal


def opened(path, threads):
    """{peer: run} of those that are installed and take the model; why another does not is
    printed."""
    found = {}
    for peer in PEERS:
        try:
            found[peer] = open_peer(peer, path, threads)
        except AotcError as err:
            print(f"  {err}", flush=True)
    return found


def in_turns(systems, rounds, calls=2, until=None):
    """Seconds of every call that counts, per system and shape: {name: [[seconds], ..]}.

    ``systems``: {name: [function of a shape, or None]}.  A system goes through all its shapes, each
    called ``calls`` times behind those of the first ``WARM`` seconds, one at least, which do not
    count (the shape before has other memory, and threads that slept may share a CPU at first), then
    it is the next one's turn.  No round begins after ``until`` (of ``time.perf_counter``) but
    the first."""
    times = {name: [[] for _ in shapes] for name, shapes in systems.items()}
    for turn in range(rounds):
        if turn and until is not None and time.perf_counter() > until:
            break
        for name, shapes in systems.items():
            time.sleep(REST)
            for row, call in zip(times[name], shapes):
                if call:
                    _warm(call)
                for _ in range(calls if call else 0):
                    start = time.perf_counter()
                    call()
                    row.append(time.perf_counter() - start)
    return times


def _warm(call):
    start = time.perf_counter()
    call()
    while time.perf_counter() - start < WARM:
        call()


def speeds(times, how=median):
    """({name: [its seconds by the first system's, None where one has none]}, the first's)."""
    first, *others = times
    mine = [how(row) if row else None for row in times[first]]
    return {name: [how(row) / own if row and own else None
                   for row, own in zip(times[name], mine)] for name in others}, mine


def report(labels, times, how=median):
    """Print a line for every shape, and for every other system geometric mean and worst of its
    time by the first one's."""
    ratios, mine = speeds(times, how)
    for i, label in enumerate(labels):
        print(f"  {label:22}{mine[i] * 1e3:9.2f} ms  " + "  ".join(
            f"{n} {'-' if row[i] is None else format(row[i], '.2f'):>5}"
            for n, row in ratios.items()), flush=True)
    for name, row in ratios.items():
        found = [r for r in row if r is not None]
        if found:
            print(f"  {name}: geometric mean {geometric_mean(found):.3f}, worst {min(found):.3f} "
                  f"of {len(found)}", flush=True)


def apart(ours, theirs):
    """The largest difference of two results by name, as a share of the largest element."""
    worst = 0.0
    for name, a in ours.items():
        a, b = np.asarray(a, np.float64), np.asarray(theirs[name], np.float64)
        if a.shape != b.shape:
            return np.inf
        if a.size:
            worst = max(worst, float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)))
    return worst


def bytes_of(folder):
    """(bytes of C, bytes of weights) of a bundle."""
    c = sum(p.stat().st_size for p in folder.iterdir() if p.suffix in (".c", ".h"))
    return c, sum(p.stat().st_size for p in folder.glob("*_weights.bin"))

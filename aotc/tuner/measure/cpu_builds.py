"""What building for CPUs and timing on them needs: a header that is compiled once, a clock that
counts what a thread has run, CPUs to stay on."""

import hashlib
import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

from aotc.ir.bundle import Bundle
from aotc.runtime.compile_bundle import read_manifest, tools_of
from aotc.runtime.processors import stay_on, usable_processors
from aotc.tuner.measure.portable import HEAD

CLOCK = b"""#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

static uint64_t thread_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#define AOTC_CLOCK() thread_nanoseconds()
"""


def time_by_thread(bundle: Bundle) -> Bundle:
    """The Bundle counting what its thread has run, so that being interrupted costs nothing."""
    main = f"{bundle.name}.c"
    return replace(bundle, files=bundle.files | {main: CLOCK + bundle.files[main]})


def precompile_header(folder: Path, objects: Path) -> None:
    """The header of all kernels, compiled once for all bundles: it is most of a small file.  A
    compiler that does not know how reads the header itself."""
    manifest = read_manifest(folder)
    flags, tools = manifest["build"]["kernels"][0]["cflags"], tools_of(manifest)
    text = repr(tools.command(Path(f"{HEAD}.c"), flags)).encode() + b"".join(
        (folder / f).read_bytes() for f in sorted(manifest["files"]) if f.startswith("zz"))
    kept = objects / f"{hashlib.sha256(text).hexdigest()[:24]}.gch"
    if not kept.exists():
        command = tools.command(folder / f"{HEAD}.c", flags)
        made = folder / f"{HEAD}.made"
        command[-1:] = ["-x", "c-header", str(folder / HEAD), "-o", str(made)]
        if subprocess.run(command, capture_output=True).returncode == 0:
            os.replace(made, kept)
    if kept.exists():
        os.link(kept, folder / f"{HEAD}.gch")


def use_cpus(threads: int) -> None:
    """Stay on as many CPUs as there are threads."""
    stay_on(usable_processors()[:threads])


def cpu_name() -> str:
    """The CPU of this machine, and how many there are."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {os.cpu_count()} CPUs"
    except OSError:
        return platform.machine()
    return platform.machine()


__all__ = ["cpu_name", "precompile_header", "time_by_thread", "use_cpus"]

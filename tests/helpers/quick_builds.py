"""What makes the bundles of a test run compile quickly.

Object files are kept by what they are made from, for all processes of the run.  The compiler's own
headers, which take it longer to read than most kernels, are read once and kept for the flags of
harness.py; where a command has others, or before they are there, they are read as usual.  In the
quicker suites all bundles are compiled with these flags."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from aotc.runtime.simulate import compile_command
from aotc.runtime.tools import c_tools
from aotc.target import TARGETS, runs_here

LEVEL = "-Og"
# only where a command asks for its instructions: other files and machines see nothing of it
INTRINSICS = "#if defined(__AVX2__)\n#include <immintrin.h>\n#endif\n"
SIMULATED = ("cmath", "cstddef", "cstdint", "cstring", "functional", "math.h", "string", "tuple",
             "type_traits", "vector")  # of the simulator and what is compiled against it
# environment variables: the flags that use C's header; the folder of the run
KEPT, RUN = "AOTC_TEST_KEPT_HEADER", "AOTC_TEST_RUN"


class QuickBuilds:
    """The folders of one test run and the environment that names them, until ``close``."""

    def __init__(self, quicker):
        self._folder, self._running = Path(tempfile.mkdtemp(prefix="aotc-tests-")), []
        os.environ[RUN] = str(self._folder)
        objects = self._folder / "objects"
        objects.mkdir()
        os.environ.setdefault("AOTC_OBJECTS", str(objects))
        targets = [t for t in TARGETS.values() if runs_here(t) and not t.variants]
        os.environ[KEPT] = self._keep("kept.h", INTRINSICS, "gcc", "cc", [
            (*c_tools(["gcc"]).compile[".c"], LEVEL, *flags)
            for flags in sorted({t.cflags for t in targets if "avx2" in t.cpu_flags})])
        plain = "-O0" if quicker else ""
        os.environ.setdefault("CXXFLAGS", f"{plain} " + self._keep("kept.hpp", "".join(
            f"#include <{h}>\n" for h in SIMULATED), "g++", "c++", [
            [*compile_command(["g++"], ""), *plain.split()]]))
        if quicker:
            os.environ.setdefault("CFLAGS", f"{LEVEL} {os.environ[KEPT]}")

    def _keep(self, name, includes, compiler, used, commands):
        """The flags with which ``used`` reads these lines as ``compiler`` has left them, which
        starts to do so for every command; "" where these are two compilers."""
        found = [shutil.which(c) for c in (compiler, used)]
        if not commands or not all(found) or not os.path.samefile(*found):
            return ""
        text, kept = self._folder / name, self._folder / f"{name}.gch"
        text.write_text(includes)
        kept.mkdir()
        for k, command in enumerate(commands):
            made = self._folder / f"{name}{k}"
            kind = "c++-header" if used == "c++" else "c-header"
            whole = shlex.join([*command, "-c", "-x", kind, str(text), "-o", str(made)])
            # moved when it is whole: compilers look into the folder at any time
            self._running.append(subprocess.Popen(
                ["sh", "-c", f"{whole} && mv {shlex.join([str(made), str(kept)])}"],
                start_new_session=True))
        return f"-include {shlex.quote(str(text))}"

    def close(self):
        """Stop what is still being made, remove everything."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

"""Bundles of which one statement that keeps threads apart can be changed at a time, while they run
on the simulator: every change must be noticed, by the simulator or by a wrong result."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from aotc.runtime.status import RunError

SWITCH = "aotc_mutant"
_WAIT = re.compile(r"aotc_cp_wait<(\d+)>\(\);")
_GUARD = re.compile(r"aotc_(?:syncthreads|syncwarp|cp_commit)\(\);")
# the place of a step among the stages of an array, such as "step % 3 * A_STEP"
_RING = re.compile(r"% (\d+) \* (\w+_STEP)\b")
_KERNEL = re.compile(r"^static __global__ .*?^}$", re.M | re.S)
_NAME = re.compile(r"\b(\w+)_device\(")


@dataclass(frozen=True)
class Mutant:
    """A kernel with something else in place of ``text``, while ``aotc_mutant`` is ``number``."""

    number: int
    kernel: str
    text: str
    change: str

    def __str__(self):
        return f"{self.kernel}: {self.text} {self.change}"


def plant_mutants(folder) -> list[Mutant]:
    """Change the kernels of a bundle, which is not built yet, so that the library's number
    ``aotc_mutant`` picks what is changed: nothing while it is 0."""
    mutants, numbers = [], count(1)
    for path in sorted(folder.glob("*_kernels_*.cu")):
        text = _KERNEL.sub(lambda m: _planted(m.group(), numbers, mutants), path.read_text())
        path.write_text(f'extern "C" int {SWITCH};\n{text}')
    header = next(p for p in folder.glob("*.h") if (folder / f"{p.stem}.cu").exists())
    end = "/* end declarations */"
    header.write_text(header.read_text().replace(end, f"extern int {SWITCH};\n{end}"))
    host = folder / f"{header.stem}.cu"
    host.write_text(f"{host.read_text()}\nint {SWITCH} = 0;\n")
    return mutants


def _planted(kernel: str, numbers: Iterator[int], mutants: list[Mutant]) -> str:
    name = _NAME.search(kernel)[1]

    def mutant(text, change):
        mutants.append(Mutant(next(numbers), name, text, change))
        return mutants[-1].number

    def guard(m):
        return f"if ({SWITCH} != {mutant(m.group(), 'left out')}) {m.group()}"

    def wait(m):
        left_out, early = mutant(m.group(), "left out"), mutant(m.group(), "for a group less")
        return (f"if ({SWITCH} == {early}) aotc_cp_wait<{int(m[1]) + 1}>(); "
                f"else if ({SWITCH} != {left_out}) {m.group()}")

    rings = {r: mutant(f"% {r[0]} * {r[1]}", "in a stage less")
             for r in dict.fromkeys(_RING.findall(kernel)) if int(r[0]) > 1}

    def ring(m):
        if m.groups() not in rings:
            return m.group()
        return f"% ({m[1]} - ({SWITCH} == {rings[m.groups()]})) * {m[2]}"

    return _GUARD.sub(guard, _WAIT.sub(wait, _RING.sub(ring, kernel)))


def unnoticed(model, mutants, right, before=lambda: None) -> list[str]:
    """Mutants with which ``model`` reports nothing and ``right()`` finds its results right;
    ``before``: what to run unchanged before each."""
    library, missed = model._library.lib, []
    for mutant in mutants:
        before()
        library.aotc_mutant = mutant.number
        try:
            if right():
                missed.append(str(mutant))
        except RunError as err:
            assert err.status == "AOTC_CUDA_ERROR" and "block (" in str(err), err
        finally:
            library.aotc_mutant = 0
    return missed

"""What rewrite rules of single computes have in common: who they fit, and what is wrong where they
do not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aotc.errors import ScheduleError
from aotc.ir.program import Compute, Program

M = TypeVar("M")


@dataclass(frozen=True)
class ComputeRule(Generic[M]):
    """A rule, by its name in a Schedule.  match: what is found in a compute of a Program, None if
    the rule does not fit; lacks: what a compute is then not; legal: {parameter: its values} ({}: it
    has none)."""

    name: str
    match: Callable[[Program, Compute], M | None]
    lacks: str
    legal: Mapping[str, tuple[Any, ...]]

    def found(self, program: Program, name: str) -> tuple[Compute, M] | None:
        """(the compute that writes ``name``, what was found in it); None if the rule does not
        fit."""
        c = program.producer.get(name)
        if not isinstance(c, Compute) or len(c.outs) != 1:
            return None
        found = self.match(program, c)
        return None if found is None else (c, found)

    def candidates(self, program: Program) -> tuple[str, ...]:
        """Names of the computes that the rule fits, in program order."""
        return tuple(o for s in program.steps for o in s.outs
                     if self.found(program, o) is not None)

    def faults_of(self, program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
        """What speaks against the rule for the compute that writes ``name``."""
        where = f"rewrites: {self.name} {name}"
        if set(parameters) != set(self.legal) or any(
                isinstance(parameters[k], bool) or parameters[k] not in values
                for k, values in self.legal.items()):
            each = ", ".join(f'"{k}": one of {", ".join(map(str, v))}'
                             for k, v in self.legal.items())
            return [f"{where}: parameters are {{{each}}}" if each else
                    f"{where}: it takes no parameters"]
        if self.found(program, name) is None:
            legal = ", ".join(self.candidates(program)) or "no compute of this program"
            return [f"{where}: no {self.lacks}; choose from {legal}"]
        return []

    def matched(self, program: Program, name: str,
                parameters: Mapping[str, Any]) -> tuple[Compute, M]:
        """(the compute that writes ``name``, what was found in it).  ScheduleError if the rule does
        not fit."""
        found = self.found(program, name)
        if found is None:
            raise ScheduleError(self.faults_of(program, name, parameters))
        return found


__all__ = ["ComputeRule"]

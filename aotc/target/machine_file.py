"""A Machine as a JSON file: what was measured on one machine, read back for every compile."""

import json
from dataclasses import asdict, fields, replace
from typing import Any

from aotc.errors import ScheduleError
from aotc.target.base import Level, Machine, Target


def machine_json(target: Target) -> str:
    """Text of a target's machine; it names the target whose instructions it was measured with."""
    return json.dumps({"target": target.name, "machine": asdict(target.machine)}, indent=1) + "\n"


def with_machine(target: Target, text: str) -> Target:
    """The target with the machine of a file's text; of a target with variants, the variant that
    the file names.  ScheduleError says what is wrong with the text."""
    try:
        data = json.loads(text)
        name, machine = data["target"], _machine(data["machine"])
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise ScheduleError(f"machine file: {type(err).__name__} {err}; write one with aotc "
                            "targets --probe FILE") from None
    if name == target.name:
        target = replace(target, machine=machine)
    elif name not in [v.name for v in target.variants]:
        raise ScheduleError(f"machine file is for target {name}, compiling for {target.name}; "
                            f"choose --target {name} or probe again")
    return replace(target, variants=tuple(replace(v, machine=machine) if v.name == name else v
                                          for v in target.variants))


def _machine(data: Any) -> Machine:
    levels = tuple(Level(**{k: _value(Level, k, v) for k, v in row.items()})
                   for row in data["levels"])
    if len(levels) < 3 or any(x.capacity <= 0 or x.bandwidth <= 0 for x in levels):
        raise ValueError("levels: at least memory, one cache and registers, all larger than 0")
    rest = {k: _value(Machine, k, v) for k, v in data.items() if k != "levels"}
    machine = Machine(levels=levels, **rest)
    if machine.workers < 1 or machine.flops <= 0:
        raise ValueError("workers and flops must be positive")
    names = [x.name for x in levels]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"levels: {twice!r} is there twice")
    if machine.scratch not in names[1:-1]:
        raise ValueError(f"scratch {machine.scratch!r} is none of the levels between memory and "
                         f"registers: {', '.join(names[1:-1])}")
    return machine


def _value(kind: type[Level] | type[Machine], name: str, value: Any) -> Any:
    """A field's value, with the type its class says."""
    want: Any = next((f.type for f in fields(kind) if f.name == name), None)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {str: isinstance(value, str), bool: isinstance(value, bool), float: number,
            int: number and value == int(value)}.get(want, False)
    if not fits:
        raise ValueError(f"{kind.__name__}.{name}: {value!r}")
    return value


__all__ = ["machine_json", "with_machine"]

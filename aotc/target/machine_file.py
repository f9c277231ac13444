"""A Machine as a JSON file: what was measured on one machine, read back for every compile."""

import json
from dataclasses import asdict, fields, replace
from math import isfinite
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.schedule import REGISTER
from aotc.json_text import read_json
from aotc.target.base import KINDS, SCOPES, Engine, Machine, Memory, Target, Unit
from aotc.target.tuning import read_tuning, tuning_json

_ROWS = {"memories": Memory, "stores": Memory, "engines": Engine, "units": Unit}


def machine_json(target: Target) -> str:
    """Text of a target's machine; it names the target whose instructions it was measured with.  Of
    its tuning what is not as usual."""
    data = asdict(target.machine)
    data["tuning"] = tuning_json(target.tuning)
    return json.dumps({"target": target.name, "machine": data}, indent=1) + "\n"


def with_machine(target: Target, text: str) -> Target:
    """The target with the machine of a file's text; of a target with variants, the variant that
    the file names.  What the file does not say stays.  ScheduleError says what is wrong with the
    text."""
    try:
        data = read_json(text)
        name = data["target"]
        own = next((v for v in target.variants if v.name == name), target)
        machine = _machine(_object("machine", data["machine"]), own)
    except (ValueError, KeyError, TypeError) as err:
        raise ScheduleError(f"machine file: {type(err).__name__} {err}; write one with aotc "
                            "targets --probe FILE") from None
    if name == target.name:
        target = replace(target, machine=machine)
    elif name not in [v.name for v in target.variants]:
        raise ScheduleError(f"machine file is for target {name}, compiling for {target.name}; "
                            f"choose --target {name} or probe again")
    return replace(target, variants=tuple(replace(v, machine=machine) if v.name == name else v
                                          for v in target.variants))


def _machine(data: Any, target: Target) -> Machine:
    """The target's machine with what a file says of it."""
    given = {k: _value(Machine, k, v) for k, v in data.items() if k not in (
        *_ROWS, "tuning")}
    for kind, of in _ROWS.items():
        if kind in data:
            given[kind] = tuple(of(**{k: _value(of, k, v) for k, v in row.items()})
                                for row in _objects(kind, data[kind]))
    machine = replace(target.machine, tuning=read_tuning(target.tuning, data.get("tuning", {})),
                      **given)
    _check_numbers(machine, "workers clusters flops grain_flops items item_points row_points "
                   "item_tiles",
                   "launch step fork_join overlap threads threads_max")
    for x in machine.memories + machine.stores:
        _check_numbers(x, "capacity bandwidth usable transaction", "latency banks")
    for e in machine.engines:
        _check_numbers(e, "bandwidth", "latency")
        if not {e.source, e.target} <= {
                x.name for x in machine.memories + machine.stores}:
            raise ValueError(f"engine {e.name}: copies from {e.source!r} to {e.target!r}, which "
                             "are no memories of the machine")
    for u in machine.units:
        _check_numbers(u, "flops rows columns", "")
        if u.memory != machine.scratch:
            raise ValueError(f"unit {u.name}: its operands are in {u.memory!r}; choose "
                             f"{machine.scratch!r}")
    _check_memories(machine)
    _check_kind(machine, target.machine)
    return machine


def _object(what: str, data: Any) -> dict[str, Any]:
    """A JSON object; ValueError for anything else."""
    if not isinstance(data, dict):
        raise ValueError(f"{what}: {str(data)[:80]} is no object")
    return data


def _objects(what: str, data: Any) -> list[dict[str, Any]]:
    """A list of JSON objects; ValueError for anything else."""
    if not isinstance(data, list):
        raise ValueError(f"{what}: {str(data)[:80]} is no list")
    return [_object(f"{what}[{i}]", row) for i, row in enumerate(data)]


def _check_kind(machine: Machine, own: Machine) -> None:
    """ValueError for a machine of another kind than the target's own: its kernels are written for
    what that has."""
    wrong = [k for k in ("threads", *_ROWS) if k != "memories"
             and bool(getattr(machine, k)) != bool(getattr(own, k))]
    if wrong or (machine.clusters > 1) != (own.clusters > 1):
        raise ValueError(f"{(*wrong, 'clusters')[0]}: a machine of another kind than the target's")
    if machine.workers % machine.clusters:
        raise ValueError(f"workers: {machine.workers} are no multiple of {machine.clusters} "
                         "clusters")


def _check_numbers(of: Machine | Memory | Engine | Unit, positive: str, others: str) -> None:
    """ValueError unless fields are ``positive``, and ``others`` at least 0."""
    wrong = [k for k in positive.split() if getattr(of, k) <= 0] + [
        k for k in others.split() if getattr(of, k) < 0]
    if wrong:
        raise ValueError(f"{type(of).__name__}.{wrong[0]}: {getattr(of, wrong[0])!r} must be "
                         + ("positive" if wrong[0] in positive.split() else "0 or more"))


def _check_memories(machine: Machine) -> None:
    """ValueError for memories, outermost first, that deciders cannot use."""
    memories = machine.memories
    if len(memories) < 3:
        raise ValueError("memories: at least one that holds everything, one for scratch, and "
                         "registers")
    for x in memories:
        for field, legal in (("scope", SCOPES), ("kind", KINDS)):
            if getattr(x, field) not in legal:
                raise ValueError(f"memory {x.name}: {field} {getattr(x, field)!r}; choose from "
                                 + ", ".join(legal))
    reach = [SCOPES.index(x.scope) for x in memories]
    if reach != sorted(reach, reverse=True) or reach[-1] != 0 or reach[-2] == 0:
        raise ValueError("memories: outermost first, each shared by no more than the one before, "
                         "and the last one alone, the registers, of scope thread")
    names = [x.name for x in memories]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"memories: {twice!r} is there twice")
    if REGISTER in names[:-1]:
        raise ValueError(f"memories: {REGISTER!r} is what a Schedule calls the last one")
    if machine.scratch not in names[1:-1]:
        raise ValueError(f"scratch {machine.scratch!r} is none of the memories between the first "
                         f"and the registers: {', '.join(names[1:-1])}")
    if machine.threads and not machine.managed:
        raise ValueError(f"scratch {machine.scratch!r} is a cache; threads of a work item share "
                         "managed memory")


def _value(kind: type[Memory | Machine | Engine | Unit], name: str, value: Any) -> Any:
    """A field's value, with the type its class says."""
    types: dict[str, Any] = {f.name: f.type for f in fields(kind)}
    if name not in types:
        raise ValueError(f"{kind.__name__}.{name}; there are {', '.join(types)}")
    want = types[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    fits = {str: isinstance(value, str), bool: isinstance(value, bool), float: number,
            int: number and value == int(value)}.get(want, False)
    if not fits:
        raise ValueError(f"{kind.__name__}.{name}: {value!r}")
    return value


__all__ = ["machine_json", "with_machine"]

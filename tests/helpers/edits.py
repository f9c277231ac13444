"""Edits of a Schedule, as somebody makes them in its JSON."""

from dataclasses import replace

from aotc.ir.stage_choice import TABLES, StageChoice


def with_tables(group, **fields):
    """A Group with other ``fields``; those that JSON has tables of stages for (``ukernel``,
    ``loops``, ``split``, ``reuse``) as the whole table."""
    rows, loops, split, reuse = (
        fields.pop(name) if name in fields else tables(group)[name] for name in TABLES)
    stages = dict.fromkeys((*rows, *loops, *split, *reuse))
    return replace(group, **fields, choices={
        s: StageChoice(rows.get(s, ""), split=split.get(s, {}), reuse=reuse.get(s, ""),
                       **loops.get(s, {})) for s in stages})


def tables(group):
    """{table of a Group's JSON: {stage: what it has}}."""
    found = {name: {} for name in TABLES}
    for stage, choice in group.choices.items():
        for name, value in choice.tables():
            found[name][stage] = value
    return found


def loops(group):
    """{stage: {choice of its loops: value}} of a Group."""
    return {s: c.said for s, c in group.choices.items()}

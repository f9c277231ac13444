"""Storage: slots of the arena for stored temps, scratch of a work item.

The storey above the facts: where things lie, by lifetimes and sizes alone.

Imports of ``sched``: model, rows.
"""

"""Deciders that make candidates and ask a Judge for them: rewrites, groups, work items of calls.

The uppermost deciders of one Schedule; ``decide.py`` runs them in order.

Imports of ``sched``: model, within, rows, shape_variants, memory, cost, precision, check, writing,
choose, judge, accelerator.places.
"""

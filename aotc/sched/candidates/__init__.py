"""Deciders that make candidates and ask a Judge for them: rewrites, groups, work items of calls.

The uppermost deciders of one Schedule; ``decide.py`` runs them in order.

Imports of ``sched``: model, narrowed_program, rows, shape_variants, memory, cost, precision, check,
text_choices, choose, judge, accelerator.places.
"""

"""The decider of texts: how the statements of every stage are written, where that is not said.

It runs last, and stands below the others because they ask what it would choose.

Imports of ``sched``: model, rows, shape_variants, common_groups, cost, items, check, expand,
lowering.
"""

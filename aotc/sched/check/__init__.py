"""Legality: every fault of a Schedule, with the legal choices.

``check_schedule`` asks of a whole one, ``check_group`` of one group.  It reads facts; no fault
depends on a cost or on what a decider would choose.

Imports of ``sched``: model, rows, shape_variants, memory, items, accelerator.kernels.
"""

"""Lowered stages as the statements of a Plan: loops, vectors, packing, prefetches.

The last step of lowering, and the lower of its two storeys: it sees the stages of one kernel, with
their places and what the Schedule says of each.

Imports of ``sched``: model, rows.
"""

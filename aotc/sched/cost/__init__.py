"""The one cost: seconds of a group, of a stage's accesses, of a product on a row, of a call.

Whoever wants to know what takes less time asks here; nobody above reads a speed or a weight.  It
knows no decider.

Imports of ``sched``: model, narrowed_program, rows.
"""

"""Lowering: (Program, Schedule) to Plan; decides nothing.

Groups that are legal become stages with places and loops, then statements (``expand``).

Imports of ``sched``: model, rows, memory, items, accelerator.kernels,
check, expand, shared_functions.
"""

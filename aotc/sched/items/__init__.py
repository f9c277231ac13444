"""Work items: a group opened, what each of its work items touches, turns of them.

Between a Schedule and its lowering: where buffers of a group live (``Context``), and its boxes
(``opened``).  The checks, lowering and deciders of copies read the same.

Imports of ``sched``: model, rows, memory, cost.
"""

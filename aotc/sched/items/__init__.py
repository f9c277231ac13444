"""Work items: a group opened.

Between a Schedule and its lowering: where buffers of a group live (``Context``), and its boxes
(``open_group``).

Imports of ``sched``: model, rows, memory.
"""

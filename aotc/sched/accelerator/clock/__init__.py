"""When everything of a Plan happens: what engines are told, and the seconds of that.

Read from a Plan's statements alone, beside ``cost``.

Imports of ``sched``: nothing.
"""

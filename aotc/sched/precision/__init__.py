"""Which products of a model may be rounded within a budget of error.

Levels are values; those of a model are found by running it, and by the cost of what they save.

Imports of ``sched``: cost.
"""

"""Deciders of one group at a time: rows, layouts, tiles, copies, rewrites by precision.

They ask the cost, and make what is not said of groups that are given.

Imports of ``sched``: model, rows, cost, precision, accelerator.kernels, text_choices.
"""

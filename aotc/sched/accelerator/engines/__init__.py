"""What a group copies and gives to units, its faults, and what engines are told of it.

Below legality and lowering, which ask here for what is the accelerator's alone.

Imports of ``sched``: model, rows, memory, cost, items, accelerator.items.
"""

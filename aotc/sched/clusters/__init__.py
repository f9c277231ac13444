"""Machines with clusters of workers: what is stored in the memory of each, and what runs there.

Deciders of places, turns, copies ahead; groups from the instances of ``instances``.

Imports of ``sched``: model, rows, memory, cost, items, check, lowering, choose, judge, instances.
"""

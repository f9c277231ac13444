"""A limit on the arena: what a user may ask for, and a Schedule that keeps it.

On the top storey: it takes groups as ``decide`` makes them and computes some again.

Imports of ``sched``: model, memory, cost, precision, text_choices, choose, judge, candidates,
decide.
"""

"""Schedules and Plans told to people: why, how stored, in what time.

On the top storey; nothing else reads it.

Imports of ``sched``: model, cost, lowering, judge.
"""

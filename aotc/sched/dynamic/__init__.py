"""Dynamic shapes (DietCode): variants and a dispatcher for the calls of a range.

On the top storey: candidates are Schedules that ``decide`` made.

Imports of ``sched``: model, within, shape_variants, memory, cost, check, components, writing,
choose.
"""

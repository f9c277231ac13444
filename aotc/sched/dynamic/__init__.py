"""Dynamic shapes (DietCode): variants and a dispatcher for the calls of a range.

On the top storey: candidates are Schedules that ``decide`` made.

Imports of ``sched``: model, narrowed_program, shape_variants, memory, cost, check,
independent_parts, text_choices, choose.
"""

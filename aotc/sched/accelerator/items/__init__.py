"""What work items touch and copy: boxes, parts of clusters, turns, rings, operands of units.

Facts of groups that are opened; the checks, lowering and deciders of the accelerator read the same.

Imports of ``sched``: model, items, accelerator.clock.
"""

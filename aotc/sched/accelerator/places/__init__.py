"""What is stored in the memory of each cluster and worker, what is copied ahead, turns.

Deciders on a Schedule's kernels; groups from the instances of ``instances``.

Imports of ``sched``: model, memory, cost, items, check, lowering, choose, judge, accelerator.clock,
accelerator.items, accelerator.engines, accelerator.instances.
"""

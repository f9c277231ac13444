"""What is stored in the memory of each cluster and worker, what is copied ahead, turns.

Deciders on a Schedule's kernels; groups from the instances of ``instances``.

Imports of ``sched``: model, memory, cost, items, check, text_choices, choose, judge,
accelerator.items, accelerator.kernels, accelerator.instances.
"""

from aotc.sched.accelerator.places.choose_places import places
from aotc.sched.accelerator.places.instance_groups import instance_groups, target_for_tiles
from aotc.sched.accelerator.places.instance_report import instance_report

__all__ = ["instance_groups", "instance_report", "places", "target_for_tiles"]

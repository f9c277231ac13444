"""Facts of a Program and its groups: stages, boxes, sizes, numbers of a tile.

The lowest storey, which knows no cost and no decision: what a group computes and reads, as
expressions (``stages.py``, ``boxes.py``, ``slide.py``), as numbers of a tile (``group_model.py``,
``group_numbers.py``), and what stored tensors take (``stored_sizes.py``).

Imports of ``sched``: nothing.
"""

"""GraphTurbo: sub-graphs split into instances, their order, places and moves.

Decided on a plain graph of tensors (``tensor_graph.py``); only ``from_program.py`` knows Programs.

Imports of ``sched``: model, choose.
"""

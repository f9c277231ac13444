"""Machines of clusters of workers, whose engines copy between memories that the program fills.

    clock       when everything of a Plan happens there
    items       what work items touch and copy, and which run before which
    kernels     what a group copies, its faults, what engines are told of kernels and of a Plan
    instances   sub-graphs, split into instances
    places      what lies where, and in which turns kernels run

Each stands on a storey of its own.  Others import from ``kernels``, ``places`` and ``clock`` what
their ``__init__`` has: of machines of another kind it does nothing there.
"""

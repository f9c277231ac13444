"""Machines of clusters of workers, whose engines copy between memories that the program fills.

    clock       when everything of a Plan happens there
    items       what work items touch and copy, and which run before which
    engines     the lower door: what a group copies, its faults, what engines are told of it
    instances   sub-graphs, split into instances
    places      the upper door: what lies where, and in which turns kernels run

No other folder of ``sched`` is of one kind of machine.  Each of these stands on a storey of its
own.
"""

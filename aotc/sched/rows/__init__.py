"""Facts of stages that rows of a target compute: operands, panels, what is settled of them.

Which form a row wants a stage in, and which its operands may have: narrow products, units beside
the vectors, panels, sums in slices, transforms, exchanges.  ``Settled`` (``settled_choices.py``) is
the value that deciders of rows fill in.

Imports of ``sched``: model.
"""

"""What groups cost, asked of the one cost: by deciders, for the candidates they make.

Candidates are completed by ``choose`` first: they are compared as they would be built.

Imports of ``sched``: model, rows, narrowed_program, memory, cost, accelerator.kernels, lowering,
text_choices, choose.
"""

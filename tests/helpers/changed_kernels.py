"""Kernels of a Plan with something else in what they are lowered to, for planted faults."""

from dataclasses import replace


def relowered(kernel, **changes):
    """The Kernel with changes to its LoweredKernel; its statements stay."""
    return replace(kernel, lowered=replace(kernel.lowered, **changes))


def dealt_otherwise(kernel, clusters):
    """The Kernel dealt to another number of clusters."""
    return relowered(kernel, dealt=replace(kernel.lowered.dealt, clusters=clusters))


def without_barrier(kernel, number):
    """The Kernel lowered without the barrier in front of a stage."""
    block = kernel.lowered.block
    return relowered(kernel, block=replace(block, barriers=tuple(
        b for b in block.barriers if b != number)))

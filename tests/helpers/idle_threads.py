"""What threads have to do in the kernels of a Plan: which have nothing, which make long folds
alone."""

from math import prod

from aotc.ir.kernel.plan_stages import Nest, points
from aotc.ir.simplify import upper
from aotc.target import get_target

MOST_ALONE = 256  # terms that a thread of a nest makes one after another
LONGEST = 2 * MOST_ALONE  # .. where a few threads of the GPU have some at all
FLOPS = 1e6  # of a kernel that is looked at
WARP = 32


def idle(plan, target="cuda:sm_80"):
    """What is wrong with the kernels of a Plan: half of the threads of a block have nothing to do
    in a nest of many operations; a thread makes a long fold alone, in a plain nest or where others
    of the GPU have none to make."""
    machine, wrong = get_target(target).machine, []
    for kernel in plan.kernels:
        k = kernel.lowered
        for s in (s for s in k.stages if isinstance(s, Nest)):
            each = s.team * (WARP if s.folds_lanes else 1)
            terms = _terms(s)
            outputs, items = points(s.ranges) or k.threads, upper(k.tiles)
            few = items is not None and outputs * items < machine.workers * machine.threads
            items = items or 1  # of any number, at least
            large = outputs * items * terms >= FLOPS
            if large and outputs * each < k.threads / 2:
                wrong.append(f"{k.name}: {outputs * each} of {k.threads} threads at work\n{s}")
            alone = -(-terms // each)
            if alone > MOST_ALONE and s.row == "loops" or alone > LONGEST and large and few:
                wrong.append(f"{k.name}: a thread makes {alone} terms alone, {outputs * items} "
                             f"outputs\n{s}")
    return wrong


def _terms(nest):
    """Steps of a fold; of ranges whose ends data says, what they may be; 1 of a map."""
    return prod(points((r,)) or upper(r.axis.extent) or MOST_ALONE + 1 for r in nest.reduce)


__all__ = ["idle"]

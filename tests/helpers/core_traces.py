"""What the simulated accelerator traces of a Plan, as its statements say it."""

from aotc.sched.cost.item_events import COMPUTE, plan_events


def expected_trace(plan, target):
    """Lines of the trace without the kernels' names, as tuples of text."""
    return [(str(i.number), *map(str, divmod(i.worker, target.machine.cores)), e.what,
             str(e.token), str(e.bytes))
            for _, items in plan_events(plan, {}, target.machine) for i in items
            for e in i.events if e.what != COMPUTE]


def read_trace(path):
    """Lines of a trace as ``expected_trace`` has them."""
    return [tuple(x.split()[1:]) for x in path.read_text().splitlines()]

"""What the simulated accelerator traces of a Plan, as its statements say it, and how a fault that
was planted in one is told."""

from harness import differences

from aotc.errors import AotcError
from aotc.sched.accelerator.clock.item_events import plan_events


def expected_trace(plan, target):
    """Lines of the trace without the kernels' names, as tuples of text."""
    return [(str(i.number), *map(str, divmod(i.worker, target.machine.cores)), e.what,
             str(e.token), str(e.bytes))
            for _, items in plan_events(plan, {}, target.machine) for i in items
            for e in i.events]


def read_trace(path):
    """Lines of a trace as ``expected_trace`` has them."""
    return [tuple(x.split()[1:]) for x in path.read_text().splitlines()]


def told(run, want):
    """The text of a fault, "other numbers" for wrong ones, "" where a run passes for right."""
    try:
        got = run()
    except AotcError as err:
        return str(err)
    return "other numbers" if any(differences(got, want, 2e-5)) else ""

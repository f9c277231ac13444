"""How many panels a work item gets."""

import pytest

from aotc.sched.choose.slices import balance_panels


@pytest.mark.parametrize("workers", (1, 2, 7))
def test_workers_end_together(workers):
    """As trying every number has it."""
    for panels in range(1, 50):
        for blocks in (1, 3):
            def ends(each, panels=panels, blocks=blocks):
                items = blocks * -(-panels // each)
                return -(-items // workers) * each, -each
            for most in (1, 4, 64):
                wanted = min(range(1, most + 1), key=ends)
                assert balance_panels(panels, most, workers, blocks) == wanted


def test_any_number_of_panels():
    """A damaged model had 2**30 columns, and trying every number took minutes."""
    assert balance_panels(1 << 30, 1 << 30, 2) == 1 << 29

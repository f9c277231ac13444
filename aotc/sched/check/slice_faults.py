"""What is wrong with the slices that a Schedule runs sums in."""

from aotc.ir.category import Factors
from aotc.ir.schedule import Group
from aotc.sched.accelerator.kernels import unit_slice_faults
from aotc.sched.model.stages import Stage
from aotc.sched.rows.sliced_sums import group_steps, is_sliceable, tap_axes
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, ProductRow


def slice_faults(target: Target, g: Group, s: Stage, f: Factors | None,
                 row: KernelRow) -> list[str]:
    """What is wrong with the Group's ``split`` of stage ``s``, a contraction with Factors ``f``."""
    choice = g.choice(s.name)
    split = choice.split
    if not split:
        return []
    where = f"group {g.name}: split of {s.name}"
    if isinstance(row, ProductRow) and row.unit:
        return [f"{where}: {x}" for x in unit_slice_faults(g, s, choice, f)]
    if not isinstance(row, ProductRow) or f is None or not is_sliceable(target, row, choice, f):
        return [f"{where}: sums run in slices where a contraction reads rows, and panels or "
                "columns, with static reduction axes, on vectors of a fixed length; remove it"]
    taps = tap_axes(f, choice)
    wrong = [a for a, n in split.items() if not isinstance(n, int) or n < 1
             or a != choice.k and (a not in taps or n > 1)]
    choose = f"choose {choice.k} and a positive number of steps" + "".join(
        f", {t} by 1" for t in taps)
    if row.expands_panels and not wrong and split.get(choice.k, 0) % group_steps(f):
        return [f"{where}: {choice.k or None!r} by {split[choice.k]!r}; choose a multiple of "
                f"{group_steps(f)}, whole groups"]
    return [f"{where}: {a!r} by {split[a]!r}; {choose}" for a in wrong] or [
        f"{where}: {a!r} is missing; {choose}" for a in sorted({*taps, choice.k} - set(split))]


__all__ = ["slice_faults"]

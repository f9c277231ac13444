"""What a group copies and gives to units, its faults, and what engines are told of it.

Below legality and lowering, which ask here for what is the accelerator's alone.

Imports of ``sched``: model, rows, memory, cost, items, accelerator.items.
"""

from aotc.sched.accelerator.items.unit_operands import sum_elements, tap_step, unit_rows
from aotc.sched.accelerator.kernels.copy_choice import add_in_place, choose_copies
from aotc.sched.accelerator.kernels.copy_faults import (
    copy_faults,
    unit_faults,
    unit_slice_faults,
)
from aotc.sched.accelerator.kernels.lower_copies import place_copies
from aotc.sched.accelerator.kernels.lower_engines import engines
from aotc.sched.accelerator.kernels.scratchpad_tile import copied_tile, fitted_tile
from aotc.sched.accelerator.kernels.store_faults import store_faults
from aotc.sched.accelerator.kernels.unit_choice import unit_choice

__all__ = ["choose_copies", "copied_tile", "copy_faults", "engines", "fitted_tile", "place_copies",
           "store_faults", "sum_elements", "tap_step", "unit_choice", "unit_faults", "unit_rows",
           "unit_slice_faults", "add_in_place"]

"""What the C of a bundle is told about the accelerator's device."""

from aotc.target.base import Target
from aotc.target.dsa import DEVICES

_CONTROL = 1 << 18  # bytes of what the simulator knows of the core at work


def machine_bytes(target: Target) -> int:
    """Bytes of a simulated machine: every byte of LB has one of state beside it.  0 for targets
    that need none."""
    of = DEVICES.get(target.name)
    if of is None:
        return 0
    return _CONTROL + 2 * of.clusters * of.cores * target.machine.near.capacity


def device_lines(target: Target) -> str:
    """C lines that tell ``aotc_dsa.h`` about the machine."""
    of = DEVICES[target.name]
    figures = {"CLUSTERS": of.clusters, "CORES": of.cores,
               "LB_BYTES": target.machine.near.capacity, "BYTES": machine_bytes(target)}
    return "".join(f"#define AOTC_DSA_{name} {value}\n" for name, value in figures.items())


__all__ = ["device_lines", "machine_bytes"]

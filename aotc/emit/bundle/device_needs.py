"""What a GPU must have for the kernels of a bundle: what its own code asks before it starts
anything."""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.emit.text.functions import shared_functions
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan
from aotc.target.base import Target
from aotc.target.named_machines import has_compiled_later

_WITHOUT_PERMISSION = 48 << 10  # bytes of shared memory that any block may have


@dataclass(frozen=True)
class DeviceNeeds:
    """``capability`` that the code is for (90: 9.0); ``later``: newer major versions run it, too,
    for their drivers compile it; ``shared``: bytes of shared memory of the block of ``kernel`` that
    has most; ``permitted``: names of functions that need permission for theirs."""

    capability: int
    later: bool
    shared: int
    kernel: str
    permitted: tuple[str, ...]

    @property
    def code(self) -> str:
        """Words for the GPUs that run the code."""
        major, minor = divmod(self.capability, 10)
        return f"{major}.{minor} and later" + ("" if self.later else f" of {major}.x")


def device_needs(plans: Sequence[Plan], target: Target) -> DeviceNeeds:
    """The DeviceNeeds of all kernels of Plans, the base last, for a target of blocks of threads."""
    sizes = {k.name: block_bytes_of(k) for p in plans for k in p.kernels}
    most = max(sizes, key=sizes.__getitem__, default="")
    functions = shared_functions((*plans[-1:], *plans[:-1]))
    return DeviceNeeds(int(target.arch.removeprefix("sm_")), has_compiled_later(target),
                       sizes.get(most, 0), most, tuple(
                           f.written.kernel.name for f in functions
                           if needs_permission(f.written.kernel)))


def block_bytes_of(kernel: Kernel) -> int:
    """Bytes of shared memory of a kernel's block."""
    assert isinstance(kernel.slab_bytes, int), kernel.name
    return kernel.slab_bytes + kernel.lowered.staged


def needs_permission(kernel: Kernel) -> bool:
    """True if a block has more shared memory than a launch gives without being told before."""
    return block_bytes_of(kernel) > _WITHOUT_PERMISSION


__all__ = ["DeviceNeeds", "block_bytes_of", "device_needs", "needs_permission"]

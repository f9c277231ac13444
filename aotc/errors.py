"""Errors a user of aotc can meet.  Every one says what is wrong, where, and what to do instead."""

from collections.abc import Iterable


class AotcError(Exception):
    """Base of all errors that aotc raises on purpose."""


class ModelError(AotcError):
    """The model itself is wrong: not ONNX, contradictory shapes, missing tensors, cycles."""


class UnsupportedError(AotcError, NotImplementedError):
    """The model is legal but holds something aotc does not compile (yet)."""


class ScheduleError(AotcError):
    """A Schedule is illegal; the message lists every fault with the legal choices."""

    def __init__(self, faults: str | Iterable[str]) -> None:
        self.faults = [faults] if isinstance(faults, str) else list(faults)
        super().__init__("\n".join(self.faults))


class LimitError(ScheduleError):
    """No Schedule keeps a limit that was asked for."""


class ToolchainError(AotcError):
    """The C compiler is missing or failed on a bundle."""


class FaultError(AotcError):
    """A program broke its own contract while it was evaluated: an index out of range, a failed
    entry check."""


class InterpreterError(AotcError):
    """A Schedule, executed literally, read or left out what its tiles do not cover."""

"""C statuses as Python errors."""

from aotc.errors import AotcError, FaultError


class DeviceError(AotcError):
    """There is no GPU here to run a CUDA bundle on."""


class RunError(AotcError):
    """A function of the bundle returned a status; ``status`` is its name (``AOTC_...``)."""

    def __init__(self, status: str, text: str) -> None:
        self.status = status
        super().__init__(text)


class WeightsError(RunError):
    """The weights file is missing, damaged or belongs to another model."""


class ShapeError(RunError, FaultError, ValueError):
    """Extents outside their range, that do not fit together, or that data gives otherwise than the
    model declares."""


class IndexFault(RunError, FaultError, IndexError):
    """An index from the data lies outside its table; the text names the node."""


class CpuError(RunError):
    """The CPU lacks instructions the bundle was compiled for."""


class WrongDeviceError(RunError, ValueError):
    """An array, a stream or the current device is another GPU's than the model's."""


class ContextBusyError(RunError):
    """The model serves another call that has not ended, of another stream or thread."""


class CaptureError(RunError):
    """The call is in no CUDA graph: data decides what runs, or it would wait."""


class GraphError(RunError, ValueError):
    """A CUDA graph was captured for other dimensions."""


_ERRORS = {"AOTC_WRONG_DEVICE": WrongDeviceError, "AOTC_CONTEXT_BUSY": ContextBusyError,
           "AOTC_CAPTURE_REFUSED": CaptureError, "AOTC_GRAPH_MISMATCH": GraphError,
           "AOTC_BAD_DIMENSION": ShapeError, "AOTC_BAD_SHAPE": ShapeError,
           "AOTC_SHAPE_MISMATCH": ShapeError,
           "AOTC_INDEX_OUT_OF_RANGE": IndexFault, "AOTC_CPU_UNSUPPORTED": CpuError}
_ADVICE = {"AOTC_WEIGHTS_MISSING": "write the bundle again",
           "AOTC_CPU_UNSUPPORTED": "compile the model for another target, e.g. target='c'"}


def error_of(name: str, status: str, text: str, detail: str) -> RunError:
    """The exception for a status that is not ok: ``name`` is the model's, ``status`` the C
    enumerator, ``text`` its English text and ``detail`` the argument, node or rule behind it."""
    cls = _ERRORS.get(status) or (WeightsError if "_WEIGHTS_" in status else RunError)
    message = f"{name}: {text}" + (f": {detail}" if detail else "")
    advice = _ADVICE.get(status)
    return cls(status, f"{message} ({advice})" if advice else message)

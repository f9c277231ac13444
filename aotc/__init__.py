"""aotc: an ONNX model becomes readable, self-contained C.  See ``compile`` and ``load``."""

from aotc.api import CompiledBundle, compile, load, tune
from aotc.errors import (
                         AotcError,
                         FaultError,
                         ModelError,
                         ScheduleError,
                         ToolchainError,
                         UnsupportedError,
)
from aotc.options import Options
from aotc.version import __version__

__all__ = ["AotcError", "CompiledBundle", "FaultError", "ModelError", "Options", "ScheduleError",
           "ToolchainError", "UnsupportedError", "compile", "load", "tune",
           "__version__"]

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

__version__ = "0.1.0"
__all__ = ["AotcError", "CompiledBundle", "FaultError", "ModelError", "Options", "ScheduleError",
           "ToolchainError", "UnsupportedError", "compile", "load", "tune",
           "__version__"]

"""A bundle's shared library, opened through cffi with the declarations of its own headers."""

import re
from pathlib import Path
from typing import Any

import cffi

from aotc.errors import AotcError
from aotc.ir.bundle import Manifest
from aotc.runtime.status import RunError, error_of

_DECLARATIONS = re.compile(r"/\* begin declarations.*?\*/(.*?)/\* end declarations \*/", re.S)


class Library:
    """Functions by their name without the model's prefix: ``lib.call("init", ...)`` raises on a
    status, ``lib.function("init")`` is the bare C function."""

    def __init__(self, folder: Path, manifest: Manifest, path: Path) -> None:
        self.name = manifest["name"]
        self.ffi = cffi.FFI()
        for header in ("aotc_rt.h", f"{self.name}.h"):
            found = _DECLARATIONS.search((folder / header).read_text())
            if found is None:
                raise AotcError(f"{folder}: {header} has no declarations aotc can read; "
                                "compile the model again")
            self.ffi.cdef(found.group(1))
        try:
            self.lib = self.ffi.dlopen(str(path))
        except OSError as err:
            raise AotcError(f"{folder}: the library cannot be loaded: {err}") from None
        enum = self.ffi.typeof("aotc_status")
        self.statuses = dict(enum.elements)

    def function(self, name: str) -> Any:
        return getattr(self.lib, f"{self.name}_{name}")

    def call(self, name: str, *args: Any, detail: str = "") -> None:
        """Call a function that returns a status; raise its error unless it is AOTC_OK."""
        status = self.function(name)(*args)
        if status:
            raise self.error(status, detail)

    def error(self, status: int, detail: str = "") -> RunError:
        """The exception of a status."""
        name = self.statuses.get(status, f"status {status}")
        text = name.removeprefix("AOTC_").lower().replace("_", " ")
        return error_of(self.name, name, text, detail)

    def detail(self, context: Any) -> str:
        """What the context says about its last failure."""
        text: bytes = self.ffi.string(self.function("detail")(context))
        return text.decode("utf-8", "replace")

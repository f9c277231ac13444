"""A bundle's shared library, opened through cffi with the declarations of its own headers."""

import re

import cffi

from aotc.errors import AotcError
from aotc.runtime.status import error_of

_DECLARATIONS = re.compile(r"/\* begin declarations.*?\*/(.*?)/\* end declarations \*/", re.S)


class Library:
    """Functions by their name without the model's prefix: ``lib.call("init", ...)`` raises on a
    status, ``lib.function("init")`` is the bare C function."""

    def __init__(self, folder, manifest, path):
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

    def function(self, name):
        return getattr(self.lib, f"{self.name}_{name}")

    def call(self, name, *args, detail=""):
        """Call a function that returns a status; raise its error unless it is AOTC_OK."""
        status = self.function(name)(*args)
        if status:
            raise self.error(status, detail)

    def error(self, status, detail=""):
        """The exception of a status."""
        name = self.statuses.get(status, f"status {status}")
        text = name.removeprefix("AOTC_").lower().replace("_", " ")
        return error_of(self.name, name, text, detail)

    def detail(self, context):
        """What the context says about its last failure."""
        return self.ffi.string(self.function("detail")(context)).decode("utf-8", "replace")

"""Where the files lie that are installed with aotc and are not Python: templates and C sources."""

from pathlib import Path

from aotc.errors import AotcError

_PACKAGE = Path(__file__).resolve().parent
TEMPLATES = _PACKAGE / "templates"


def runtime_c() -> Path:
    """Folder of the C files a bundle receives copies of.  AotcError if it is not there."""
    for folder in (_PACKAGE / "_runtime_c", _PACKAGE.parent / "runtime_c"):
        if (folder / "aotc_rt.h").is_file():
            return folder
    raise AotcError("aotc is installed without its C runtime (runtime_c); install it again")

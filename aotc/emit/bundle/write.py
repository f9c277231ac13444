"""Bundle -> folder, whole or not at all."""

import ctypes
import errno
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from aotc.errors import AotcError
from aotc.ir.bundle import FORMAT_VERSION, MANIFEST, Bundle
from aotc.json_text import read_json

fcntl = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

# what building a bundle leaves in its folder
_BUILT = ("build", ".build")
_LIBRARIES = r"lib{0}\.(a|dll\.a|([0-9]+\.)?dylib|so(\.[0-9]+)?)|{0}\.(dll|lib|wasm)"
_LOCK = "lock"


def write_bundle(bundle: Bundle, out_dir: str | Path) -> Path:
    """Write the bundle's files to ``out_dir`` and return its Path.

    An empty or missing folder is filled, an earlier bundle is replaced; anything else is left
    alone: AotcError for a file, or a folder that holds something aotc did not write.  The files
    are written beside the folder and moved into place in one step, so whoever looks there, and
    whenever this is killed, finds the whole earlier bundle or the whole new one.  What a killed
    run left beside the folder is removed by the next one.
    """
    out = Path(os.path.abspath(out_dir))
    if out.is_symlink():
        out = out.resolve()
    mark = f".aotc-{hashlib.sha256(out.name.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}-"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _alone(out.parent) as alone, ExitStack() as stack:
            _check_replaceable(out)
            _remove_leftovers(out.parent, mark, alone)
            work = Path(tempfile.mkdtemp(prefix=mark, dir=out.parent))
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            lock = stack.enter_context(open(work / _LOCK, "wb"))
            _lock(lock)
            cleanup = stack.pop_all()
        with cleanup:
            _fill(work / "new", bundle.files)
            os.chmod(work / "new", 0o777 & ~_umask())
            with _alone(out.parent):
                _place(work, out, _check_replaceable(out))
    except OSError as err:
        raise AotcError(f"bundle {bundle.name}: cannot be written to {out}: {err}") from err
    return out


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one step: whoever reads it finds the earlier file or the whole new one.
    OSError where it cannot be written."""
    path = Path(path)
    if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to keep whole
        path.write_text(text)
        return
    path = path.resolve()
    descriptor, partial = tempfile.mkstemp(prefix=".aotc-", dir=path.parent)
    try:
        with open(descriptor, "w") as f:
            f.write(text)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError:
        os.unlink(partial)
        raise


def _lock(file: int | IO[bytes], wait: bool = True) -> None:
    """Lock a file until it is closed; where a system has no such locks (Windows) an open file
    cannot be removed either, which says the same.  OSError if that would take waiting."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Keep other compilers from looking at, or moving, the bundles in ``folder``: two of them may
    be writing the same one.  A file system without locks on folders (NFS) goes without: False."""
    if fcntl is None:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        locked = True
        try:
            _lock(descriptor)
        except OSError as err:
            if err.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            locked = False
        yield locked
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _place(work: Path, out: Path, old: bool) -> None:
    """Move ``work/new`` to ``out``; an earlier bundle there ends up in ``work``."""
    if not old:
        os.rename(work / "new", out)
    elif not _exchange(work / "new", out):
        os.rename(out, work / "old")
        try:
            os.rename(work / "new", out)
        except OSError:
            os.rename(work / "old", out)
            raise


def _exchange(a: Path, b: Path) -> bool:
    """Let two paths change places in one step; False where the system cannot."""
    if sys.platform != "linux":
        return False
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return swap is not None and swap(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0


def _remove_leftovers(folder: Path, mark: str, alone: bool) -> None:
    """Remove the work folders of runs that were killed: nobody holds their lock any more, or they
    never came to make one.  Who is not ``alone`` cannot tell the latter from one that is about to,
    and waits an hour."""
    for work in folder.glob(f"{mark}*"):
        try:
            if not (work / _LOCK).exists() and (
                    alone or time.time() - work.stat().st_mtime > 3600):
                os.rmdir(work)
                continue
            with open(work / _LOCK, "rb") as lock:
                _lock(lock, wait=False)
                shutil.rmtree(work, ignore_errors=True)
        except OSError:
            continue  # its owner lives, or is about to lock it


def _fill(folder: Path, files: Mapping[str, bytes | bytearray]) -> None:
    folder.mkdir()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _check_replaceable(out: Path) -> bool:
    """True if ``out`` is an earlier bundle, False if it is missing or empty."""
    if not os.path.lexists(out):
        return False
    if not out.is_dir():
        raise AotcError(f"{out}: is a file, not a folder; give another output folder")
    found = {p.name for p in out.iterdir()}
    if not found:
        return False
    if MANIFEST not in found:
        raise AotcError(f"{out}: not empty and no bundle of aotc (it has no {MANIFEST}); "
                        "give another folder or empty this one")
    try:
        manifest = read_json((out / MANIFEST).read_text())
        ours = manifest["aotc_bundle"] <= FORMAT_VERSION and set(manifest["files"])
        name = manifest["name"]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise AotcError(f"{out}: its {MANIFEST} is not one of aotc's ({err!r}); "
                        "give another folder or empty this one") from None
    built = {MANIFEST, *_BUILT}
    foreign = sorted(f for f in found - ours - built if not f.endswith((".o", ".pyc"))
                     and not re.fullmatch(_LIBRARIES.format(re.escape(name)), f))
    if foreign:
        raise AotcError(f"{out}: holds files that aotc did not write: {', '.join(foreign[:5])}; "
                        "move them away or give another folder")
    return True

"""Compile a bundle's C files into a shared library, once per content."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from aotc.errors import AotcError, ToolchainError
from aotc.ir.bundle import FORMAT_VERSION, MANIFEST, Manifest
from aotc.json_text import read_json
from aotc.runtime.feeds import machine
from aotc.runtime.manifest_form import manifest_fault
from aotc.runtime.tools import Tools, c_tools, cuda_tools, simulated_tools

_WORK = ".build-"
_COMPILERS = ("cc", "gcc", "clang")

Progress = Callable[[int, int, str], object]  # files done, of how many, the last one's name
Sources = Sequence[tuple[Path, list[str]]]  # (source, extra flags)


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a bundle folder as a dict.  AotcError if it is missing, damaged or of
    another format version."""
    path = Path(folder) / MANIFEST
    try:
        data: Manifest = read_json(path.read_text())
        version = data["aotc_bundle"]
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise AotcError(f"{folder}: no bundle of aotc here ({path.name}: {err}); "
                        "give the folder that `aotc compile` wrote") from None
    if version != FORMAT_VERSION:
        raise AotcError(f"{folder}: bundle format {version}, this aotc reads {FORMAT_VERSION}; "
                        "compile the model again")
    fault = manifest_fault(data)
    if fault:
        raise AotcError(f"{path} is damaged: {fault}; compile the model again")
    return data


def build(folder: str | Path, jobs: int = 2, progress: Progress | None = None,
          simulate: bool = False, objects: str | Path | None = None) -> Path:
    """Path of the bundle's shared library, compiled if there is none for the present sources,
    compiler and flags.

    ``jobs`` compilers run at a time; ``progress(done, of, file name)`` is called after each file.
    $CC and $CFLAGS are honoured; without $CC a bundle for another machine takes the cross compiler
    its target names.  A CUDA bundle takes $NVCC, else nvcc; with ``simulate`` its library runs on
    the CPU, made by $CXX or a C++ compiler.  If the folder cannot be written, the library lies in
    the user's cache folder.  Any number of processes may build the same bundle at once.
    ``objects``: an existing folder of the caller's own that keeps object files by what they are
    made from, for bundles that share files; without it the one that $AOTC_OBJECTS names, if any.
    ToolchainError if there is no compiler or it fails, AotcError if ``folder`` is no bundle.
    """
    folder = Path(folder).resolve()
    manifest = read_manifest(folder)
    if manifest["build"].get("board"):
        raise AotcError(f"{manifest['name']} is for {manifest['target']}, which has no shared "
                        f"libraries; make -C {folder} builds lib{manifest['name']}.a")
    tools = tools_of(manifest, simulate)
    sources = _sources(manifest) + [(p.format(manifest["name"]), [])
                                    for p in tools.platform.parts]
    key = _key(folder, manifest, sources, tools)
    file = f"{manifest['name']}-{key}{tools.platform.suffix}"
    for place in _places(folder):
        if _trusted(place / file, folder):
            return place / file
    place = _writable(_places(folder))
    _remove_leftovers(place)
    objects = objects or os.environ.get("AOTC_OBJECTS") or None
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=place) as work:
        compiled = [(folder / s, flags) for s, flags in sources] + [(s, []) for s in tools.further]
        made = [os.path.join(work, path.name + ".o") for path, _ in compiled]
        kept = _kept_objects(objects, compiled, made, tools) if objects else {}
        commands = [(path.name, [*tools.command(path, flags), "-o", out])
                    for (path, flags), out in zip(compiled, made)
                    if out not in kept or not kept[out].exists()]
        _compile_all(commands, jobs, progress, folder)
        for _, command in commands if kept else ():
            _keep(command[-1], kept[command[-1]])
        library = os.path.join(work, "library" + tools.platform.suffix)
        exports = [f"{manifest['name']}.def"] * tools.platform.exports
        _run([*tools.link, "-o", library, *(str(kept.get(o, o)) for o in made), *exports,
              *tools.libraries], file, folder)
        os.replace(library, place / file)
    return place / file


_READ = re.compile(rb'''^#include "([^"]+)"|\.incbin \\"([^"\\]+)\\"''', re.M)


def _kept_objects(objects: str | Path, compiled: Sources, made: Sequence[str],
                  tools: Tools) -> dict[str, Path]:
    """{object: where it lies in the folder ``objects``}."""
    common = repr(_compilers(tools)).encode() + b"".join(
        hashlib.sha256(h.read_bytes()).digest() for h in tools.headers)
    return {out: _kept(objects, path, tools.command(Path(path.name), flags), common)
            for (path, flags), out in zip(compiled, made)}


def _kept(objects: str | Path, source: Path, command: Sequence[str], common: bytes) -> Path:
    """Where the object of a source lies in the folder ``objects``: named by what is common to all,
    the command, the text and those of the files beside it that it reads."""
    digest, todo, seen = hashlib.sha256(common + repr(command).encode()), [source], set()
    while todo:
        path = todo.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        text = path.read_bytes()
        digest.update(hashlib.sha256(text).digest())
        todo += [path.parent / (a or b).decode() for a, b in _READ.findall(text)]
    return Path(objects) / f"{digest.hexdigest()[:24]}.o"


def _keep(made: str, kept: Path) -> None:
    """Move an object to where it is kept, which may be another file system: no other build sees
    a part of it."""
    part = f"{kept}.{os.getpid()}.{threading.get_ident()}"
    shutil.move(made, part)
    os.replace(part, kept)


def is_cuda(manifest: Manifest) -> bool:
    """True for a bundle that runs on a GPU."""
    return bool(manifest["build"].get("compiler") == "nvcc")


def tools_of(manifest: Manifest, simulate: bool = False) -> Tools:
    """The Tools for a bundle, here or (a CUDA bundle) for the simulator.  ToolchainError if there
    are none, AotcError if there is nothing to simulate."""
    arch = manifest["build"]["arch"]
    if is_cuda(manifest):
        return (simulated_tools if simulate else cuda_tools)(find_compiler(), arch)
    if simulate:
        raise AotcError(f"{manifest['name']}: compiled for {manifest['target']}; only CUDA bundles "
                        "can be simulated")
    return c_tools(compiler_of(manifest), manifest["build"].get("link", ()))


def compiler_of(manifest: Manifest) -> list[str]:
    """The C compiler's command for a bundle, as a list: $CC, else one of this machine, or of the
    bundle's target where that is another machine.  ToolchainError if there is none."""
    if os.environ.get("CC") or manifest["build"]["arch"] in ("", machine()):
        return find_compiler()
    return cross_compiler(manifest)


def cross_compiler(manifest: Manifest) -> list[str]:
    """The command, as a list, of the first compiler for the bundle's machine that is installed
    here.  ToolchainError with what to install if there is none."""
    cross = manifest["build"]["cross"]
    names = cross["cc"] if cross else []
    for name in names:
        if shutil.which(name):
            return [name, *cross["cflags"]]
    raise missing_tool(manifest, names[0] if names else "a cross compiler")


def missing_tool(manifest: Manifest, tool: str) -> ToolchainError:
    """ToolchainError for a tool that a bundle of another machine needs."""
    packages = (manifest["build"]["cross"] or {}).get("packages", ())
    what = f"; install it (Debian: {', '.join(packages)})" if packages else ""
    return ToolchainError(f"{manifest['name']} is for {manifest['build']['arch']}, this machine is "
                          f"{machine()}: {tool} is not found{what}, or name a compiler in the "
                          "environment variable CC")


def _remove_leftovers(place: Path) -> None:
    """Remove the work folders of builds that were killed: a live one is younger than a day."""
    for work in place.glob(f"{_WORK}*"):
        try:
            if time.time() - work.stat().st_mtime > 86400:
                shutil.rmtree(work, ignore_errors=True)
        except FileNotFoundError:
            continue  # its owner has just finished


def find_compiler() -> list[str]:
    """The C compiler's command as a list: $CC, else cc, gcc or clang.  ToolchainError if none."""
    given = shlex.split(os.environ.get("CC", ""))
    for command in [given] if given else [[c] for c in _COMPILERS]:
        if shutil.which(command[0]):
            return command
    wanted = given[0] if given else ", ".join(_COMPILERS)
    raise ToolchainError(f"no C compiler found (tried {wanted}); install gcc or clang, or name "
                         "yours in the environment variable CC")


def _sources(manifest: Manifest) -> list[tuple[str, list[str]]]:
    """[(file name, extra flags)]: kernels first, they take longest."""
    plan = manifest["build"]
    return ([(s, part["cflags"]) for part in plan["kernels"] for s in part["files"]]
            + [(s, []) for s in plan["others"]])


def _compilers(tools: Tools) -> list[tuple[str, int, int]]:
    """What tells the installed compilers from others: [path, bytes, time of change]."""
    return [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns)
            for path in tools.executables]


def _key(folder: Path, manifest: Manifest, sources: Sequence[tuple[str, list[str]]],
         tools: Tools) -> str:
    """Hash of everything the library is made from: compiled, flags, the compilers' executables."""
    digest = hashlib.sha256()
    digest.update(json.dumps([sorted(tools.compile.items()), tools.link, tools.libraries,
                              sources, _compilers(tools)]).encode())
    for path in (*tools.headers, *tools.further):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    read = sorted(f for f in manifest["files"] if f.endswith(".h"))
    if manifest["weights"] == "embed":
        read += sorted(f for f in manifest["files"] if f.endswith("_weights.bin"))
    for name in read + [s for s, _ in sources]:
        try:
            digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
        except OSError as err:
            raise AotcError(f"{folder}: {name} is missing from the bundle ({err}); "
                            "compile the model again") from None
    return digest.hexdigest()[:16]


def _places(folder: Path) -> tuple[Path, ...]:
    """Where a library may lie: in the bundle, in the user's cache, in a private temporary one."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return (folder / ".build", Path(cache) / "aotc",
            Path(tempfile.gettempdir()) / f"aotc-{_user()}")


def _user() -> int:
    """Who owns what this process makes; on Windows nobody."""
    return os.getuid() if hasattr(os, "getuid") else 0


def _trusted(library: Path, folder: Path) -> bool:
    """True for a library that exists and lies in the bundle or belongs to this user."""
    try:
        owner = library.stat().st_uid
        return library.parent.parent == folder or owner == _user()
    except OSError:
        return False


def _writable(places: Iterable[Path]) -> Path:
    """The first place that exists or can be made, and may be written.  Outside the bundle only a
    folder of this user's own will do: a library found there later is loaded without question."""
    tried = []
    for i, place in enumerate(places):
        try:
            place.mkdir(mode=0o700 if i else 0o777, parents=True, exist_ok=True)
            ours = i == 0 or place.stat().st_uid == _user()
            if ours and os.access(place, os.W_OK | os.X_OK):
                return place
            tried.append(f"{place}: may not be written")
        except OSError as err:
            tried.append(f"{place}: {err.strerror}")
    raise AotcError("no folder to build in: " + "; ".join(tried))


def _compile_all(commands: Sequence[tuple[str, list[str]]], jobs: int, progress: Progress | None,
                 folder: Path) -> None:
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = {pool.submit(_run, c, name, folder): name for name, c in commands}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                if progress:
                    progress(done, len(futures), futures[future])
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _run(command: Sequence[str], name: str, folder: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              cwd=folder)
    except OSError as err:
        raise ToolchainError(f"{command[0]}: cannot be started: {err}") from None
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [x for x in lines if "error" in x][:5] or lines[:5]
        raise ToolchainError("\n".join([f"{command[0]} failed on {name} of {folder} "
                                        f"(exit status {done.returncode}):", *errors,
                                        "command: " + shlex.join(command)]))

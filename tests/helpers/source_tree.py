"""Files of the checkout and what its modules import, for tests of the project's shape."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
parsed = cache(ast.parse)  # several tests walk the tree of a module


def tracked_files(*patterns: str) -> list[Path]:
    """Tracked and new files (not ignored ones) of the checkout that match a suffix."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: which files belong to the project is unknown")
    paths = sorted(set(listed.stdout.splitlines()))
    return [ROOT / p for p in paths if p.endswith(patterns) and (ROOT / p).is_file()]


def owner_of(path: Path) -> str:
    """The row of MAY_IMPORT a file of the package belongs to."""
    return path.relative_to(ROOT / "aotc").parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """Top-level dotted names that a Python file imports anywhere."""
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            if node.module == "aotc":
                yield from (f"aotc.{alias.name}" for alias in node.names)
            else:
                yield node.module


def package_files() -> list[Path]:
    """Python files of the compiler."""
    return [p for p in tracked_files(".py") if p.is_relative_to(ROOT / "aotc")]

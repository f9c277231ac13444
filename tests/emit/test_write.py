"""Writing a bundle: whole or not at all, over an earlier bundle, never over anything else."""

import os

import pytest
from bundle_plans import lookup_bundle

from aotc.emit.bundle import write
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError


@pytest.fixture(scope="module")
def bundle():
    return lookup_bundle()


def _content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_new_empty_and_replaced(bundle, tmp_path):
    out = tmp_path / "a" / "b"
    assert write_bundle(bundle, out) == out and _content(out) == bundle.files
    (out / "lookup.c").write_text("edited")
    (out / "build").mkdir()
    (out / "build" / "x.o").write_text("")
    assert _content(write_bundle(bundle, str(out))) == bundle.files
    assert not (out / "build").exists()
    (tmp_path / "empty").mkdir()
    assert _content(write_bundle(bundle, tmp_path / "empty")) == bundle.files
    assert {p.name for p in tmp_path.iterdir()} == {"a", "empty"}
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_relative_folder_and_symlink(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bundle(bundle, "here")
    (tmp_path / "link").symlink_to("here")
    write_bundle(bundle, "link")
    assert (tmp_path / "link").is_symlink() and _content(tmp_path / "here") == bundle.files


def test_foreign_folders_are_left_alone(bundle, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(AotcError, match="not empty and no bundle"):
        write_bundle(bundle, tmp_path)
    with pytest.raises(AotcError, match="is a file"):
        write_bundle(bundle, tmp_path / "notes.txt")
    out = write_bundle(bundle, tmp_path / "out")
    (out / "main.c").write_text("mine too")
    with pytest.raises(AotcError, match="files that aotc did not write: main.c"):
        write_bundle(bundle, out)
    assert (out / "main.c").read_text() == "mine too"
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text('{"name": "some web app"}')
    with pytest.raises(AotcError, match="manifest.json is not one of aotc's"):
        write_bundle(bundle, other)


def test_a_crash_leaves_the_earlier_bundle(bundle, tmp_path, monkeypatch):
    out = write_bundle(bundle, tmp_path / "out")
    rename = os.rename

    def fails_on_new(source, target):
        if str(source).endswith("new"):
            raise OSError("no space left")
        rename(source, target)
    monkeypatch.setattr(os, "rename", fails_on_new)
    monkeypatch.setattr(write, "_exchange", lambda a, b: False)  # as on other systems
    with pytest.raises(AotcError, match="cannot be written to .*no space left"):
        write_bundle(bundle, out)
    assert _content(out) == bundle.files
    with pytest.raises(AotcError, match="cannot be written"):
        write_bundle(bundle, tmp_path / "second")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]

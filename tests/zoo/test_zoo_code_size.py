"""The code of a real model for GPUs, without its weights and the CUDA runtime, stays small."""

import shutil
import subprocess

import pytest

import aotc
from aotc.target import TARGETS

MOST = 1_000_000  # bytes


@pytest.mark.zoo
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc: install the CUDA toolkit")
@pytest.mark.parametrize("target", [t.name for t in TARGETS.values() if t.emitter == "simt"])
def test_bert_base_is_less_than_a_megabyte(zoo_model, target, tmp_path):
    aotc.compile(zoo_model("bert_base"), tmp_path / "b", target=target, name="bert")
    done = subprocess.run(["make", "-j2", "static"], cwd=tmp_path / "b", capture_output=True,
                          text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    size = (tmp_path / "b" / "libbert.a").stat().st_size
    assert 10_000 < size <= MOST, f"{size} bytes"

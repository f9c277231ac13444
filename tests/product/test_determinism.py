"""The same model, name and options give the same bytes, whoever compiles it, where and when."""

import getpass
import os
import socket
import subprocess
import sys
import time

import pytest
from onnx import save
from product_models import MODELS

PLACES = [{"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C", "HOME": "/"},
          {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"},
          {"PYTHONHASHSEED": "4242", "TZ": "America/New_York", "OMP_NUM_THREADS": "1"}]


def _compile(model, folder, env, options):
    """{file: bytes} of the bundle, compiled with another working folder and output path."""
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "aotc", "compile", str(model), "-o", "b", "--name", "m",
                    *options], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL,
                   env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), **env))
    return {p.name: p.read_bytes() for p in (folder / "b").iterdir()}


@pytest.mark.parametrize("name, places", [("embedding", 2), *(
    pytest.param(n, len(PLACES), marks=pytest.mark.product)
    for n in ("embedding", "attention", "convnet"))])
def test_same_bytes_everywhere(name, places, tmp_path):
    model, dims = MODELS[name]
    options = [f"--dim={n}={lo}..{hi}" for n, (lo, hi) in dims.items()]
    options += ["--target", "x86-64", "--weights", "embed"]
    seen = []
    for k, env in enumerate(PLACES[:places]):
        path = tmp_path / f"model{k}.onnx"
        save(model(), path)
        seen.append(_compile(path, tmp_path / f"place {k}", env, options))
    assert seen[0].keys() == seen[1].keys()
    different = {f for f in seen[0] for other in seen[1:] if other[f] != seen[0][f]}
    assert not different
    words = [str(tmp_path), socket.gethostname(), getpass.getuser() + "@", time.strftime("%Y-%m")]
    for file, data in seen[0].items():
        assert not [w for w in words if len(w) > 3 and w.encode() in data], file

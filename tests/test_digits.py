"""The main job on real input: digits from training to predictions in Python and C++."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import aotc

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "examples" / "digits" / "digits.py"


@pytest.fixture(scope="module")
def bundle(digits_model, tmp_path_factory):
    """The digits bundle for the portable target."""
    return aotc.compile(digits_model[0], out=tmp_path_factory.mktemp("bundle") / "digits",
                        target="c", dims={"batch": (1, 1024)})


@pytest.mark.parametrize("threads", [1, 2])
def test_predictions_are_those_of_scikit_learn(digits_model, bundle, threads):
    _, net, images, labels = digits_model
    outputs = bundle.load(threads=threads).run({"images": images})
    assert list(outputs) == ["logits", "digit"]
    assert np.array_equal(outputs["digit"], net.predict(images / 16))
    assert np.mean(outputs["digit"] == labels) > 0.95


def test_one_image_and_all_images_agree_to_the_bit(digits_model, bundle):
    images, model = digits_model[2], bundle.load(threads=1)
    whole = model.run([images])["logits"].copy()
    singles = [model(images[k:k + 1])["logits"].copy() for k in range(8)]
    assert np.array_equal(whole[:8], np.concatenate(singles))


def test_manifest_names_inputs_and_outputs(bundle):
    text = str(bundle.manifest)
    assert all(word in text for word in ("images", "logits", "digit"))


def _run_example(python, folder, env=None):
    """stdout of the example under ``python``; asserts that both programs agree."""
    done = subprocess.run([python, str(SCRIPT), "--out", str(folder)], capture_output=True,
                          text=True, env=env, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("same as scikit-learn: True", done.stdout)) == 2, done.stdout
    return done.stdout


def test_example_classifies_from_python_and_cpp(tmp_path):
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    assert "accuracy 0.9" in _run_example(sys.executable, tmp_path, env)


@pytest.mark.product
def test_wheel_runs_the_example_in_a_clean_environment(tmp_path):
    """The wheel, its templates and its C runtime are all that an installed aotc needs.

    The environment has its own packages, installed by pip: what aotc forgot to declare is
    missing there."""
    source = tmp_path / "source"  # a copy: setuptools would reuse stale files of build/
    for part in ("aotc", "runtime_c"):
        shutil.copytree(ROOT / part, source / part,
                        ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / part, source / part)
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps",
                           "--wheel-dir", str(tmp_path / "wheel"), str(source)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wheel = next((tmp_path / "wheel").glob("aotc-*.whl"))
    venv.create(tmp_path / "env")
    python = str(tmp_path / "env" / "bin" / "python")
    # without byte code: most of scikit-learn is never imported
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", "--python", python, "install",
                           "--no-compile", f"{wheel}[demo]"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    where = subprocess.run([python, "-c", "import aotc; print(aotc.__file__)"], env=env,
                           cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path / "env") in where
    _run_example(python, tmp_path, env)

"""The examples under examples/ that need more than the C compiler, run as their READMEs say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MISSING_TOOL = 77


def _run(script, out, *more):
    env = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONWARNINGS="ignore")
    done = subprocess.run([sys.executable, str(ROOT / "examples" / script), "--out", str(out),
                           *more],
                          capture_output=True, text=True, env=env, cwd=out.parent, timeout=900)
    if done.returncode == MISSING_TOOL:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.product
def test_two_models_in_one_cpp_program(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("not installed: cmake")
    text = _run("two_models/two_models.py", tmp_path / "demo two")
    assert text.count("same as scikit-learn: True") == 4


@pytest.mark.product
def test_a_schedule_edited_by_hand(tmp_path):
    text = _run("edit_schedule/edit_schedule.py", tmp_path / "demo")
    assert text.count("same logits: True") == 3
    refused = text.partition("a_mistake: refused:\n")[2]
    assert len(refused.splitlines()) == 3 and "contraction_f32_4x4__c" in refused


@pytest.mark.product
def test_text_is_sampled_alike_from_python_and_cpp(tmp_path):
    text = _run("generate/generate.py", tmp_path / "zen demo", "--steps", "3", "--count", "40")
    assert "same text: True" in text and text.count("tokens a second") == 2


@pytest.mark.product
@pytest.mark.parametrize("language", ["rust", "go", "zig", "java"])
def test_a_program_in_another_language(tmp_path, language):
    text = _run("languages/languages.py", tmp_path / "demo", language)
    assert text.startswith(f"{language} (") and text.count("same as scikit-learn: True") == 1

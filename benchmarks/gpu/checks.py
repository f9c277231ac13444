"""What else a GPU is asked for: the tests of rows on it, sanitizers, and the cost beside times."""

import os
import shutil
import subprocess
import sys

import numpy as np

from benchmarks.models import ROOT

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def run_row_tests(seconds, simulate):
    """{"passed": whether, "last line": of pytest} of the tests of all rows, on the GPU; of a dry
    run those that build nothing."""
    which = ["-k", "chosen or illegal"] if simulate else []
    env = os.environ | ({} if simulate else {"AOTC_GPU": "1"})
    try:
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                               "tests/cuda/test_cuda_rows.py", *which], cwd=ROOT, env=env,
                              capture_output=True, text=True, timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return {"passed": False, "last line": f"not done in {seconds:.0f} s"}
    lines = (done.stdout + done.stderr).strip().splitlines() or [""]
    failed = [line for line in lines if line.startswith("FAILED")]
    return {"passed": done.returncode == 0, "last line": lines[-1], "failed": failed}


def sanitize(folder, name, seconds):
    """{tool: "ok" or its last line} of a bundle's own test program under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"skipped": "no compute-sanitizer: it comes with the CUDA toolkit"}
    subprocess.run(["make", "-j4", f"build/test_{name}"], cwd=folder, check=True,
                   capture_output=True, timeout=120)
    weights = [f.name for f in folder.glob("*_weights.bin")]
    found = {}
    for check in TOOLS:
        try:
            done = subprocess.run(
                [tool, "--tool", check, "--error-exitcode", "9", f"build/test_{name}", *weights,
                 f"test_{name}.bin"], cwd=folder, capture_output=True, text=True,
                timeout=max(seconds / len(TOOLS), 1))
        except subprocess.TimeoutExpired:
            found[check] = "not done in time"
            continue
        lines = (done.stdout + done.stderr).strip().splitlines() or [""]
        found[check] = "ok" if done.returncode == 0 else lines[-1]
    return found


def rank_correlation(predicted, measured):
    """Spearman's, of two lists of equal length: 1 where both have one order."""
    ranks = [np.argsort(np.argsort(x)) for x in (predicted, measured)]
    return float(np.corrcoef(*ranks)[0, 1])


def compare_costs(pairs):
    """{"kernels", "rank correlation", "worst"} of {kernel: (predicted, measured)} seconds; the
    worst are those whose ratio is farthest from the usual one."""
    if len(pairs) < 3:
        return {"kernels": len(pairs), "skipped": "fewer than three kernels have times"}
    logs = {n: np.log(m / p) for n, (p, m) in pairs.items()}
    usual = float(np.median([*logs.values()]))
    far = sorted(pairs, key=lambda n: -abs(logs[n] - usual))[:8]
    return {"kernels": len(pairs), "rank correlation": rank_correlation(*zip(*pairs.values())),
            "usual measured by predicted": float(np.exp(usual)),
            "worst": {n: float(np.exp(logs[n])) for n in far}}


__all__ = ["compare_costs", "rank_correlation", "run_row_tests", "sanitize"]

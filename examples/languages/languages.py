"""The digits classifier called from Rust, Go, Zig and Java: each program a page long.

    python examples/languages/languages.py --out demo-languages [rust go zig java]

Exit code 0 only if every program that can be built here classifies every test image as scikit-learn
does; what cannot be built is said, with what is missing; 77 if that is all of them.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import aotc

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "digits"))
from train import write_model  # noqa: E402  (the example beside this one)

MISSING_TOOL = 77  # the exit code by which test programs say "skipped"
CRATES = Path("/usr/share/cargo/registry")  # where Debian's packages put theirs
JAVA = 22  # the first version with java.lang.foreign


class Missing(Exception):
    """A tool that is not installed."""


def run(command, folder, **env):
    """What a command prints."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True,
                          env=dict(os.environ, **{k: str(v) for k, v in env.items()}))
    if done.returncode:
        sys.exit(f"{command[0]} failed (exit status {done.returncode}):\n{done.stdout[-1000:]}"
                 f"{done.stderr[-4000:]}")
    return done.stdout


def need(tool, package):
    """Missing if a command is not there."""
    if shutil.which(tool) is None:
        raise Missing(f"{tool} is not found (Debian: {package})")


def copied(language, work):
    """A copy of a program's folder, to build in."""
    folder = work / language
    shutil.copytree(HERE / language, folder, dirs_exist_ok=True)
    return folder


def rust(bundle, work):
    """With cargo and the crate cc; by rustc alone where that crate is not installed."""
    need("rustc", "rustc cargo librust-cc-dev")
    folder = copied("rust", work)
    if shutil.which("bindgen"):  # what it makes of the header serves as well
        run(["bindgen", bundle / "digits.h", "--allowlist-function", "digits_.*", "-o",
             "src/digits.rs"], folder)
        run(["rustc", "--edition=2021", "--emit=metadata", "-o", "checked", "src/main.rs"], folder)
        folder = copied("rust", work)
    if shutil.which("cargo") and any(CRATES.glob("cc-*")):
        run(["cargo", "build", "--release", "--offline",
             "--config", 'source.crates-io.replace-with="installed"',
             "--config", f'source.installed.directory="{CRATES}"'], folder, BUNDLE=bundle)
        return [folder / "target/release/classify"], "cargo and cc"
    run(["make", "-s", "static"], bundle)
    run(["rustc", "--edition=2021", "-O", "src/main.rs", "-o", "classify", "-L", bundle,
         "-l", "static=digits", "-l", "m"], folder)
    return [folder / "classify"], "rustc and the bundle's make; the crate cc is not installed"


def go(bundle, work):
    """With cgo, over the static library."""
    need("go", "golang-go")
    folder = copied("go", work)
    run(["make", "-s", "static"], bundle)
    run(["go", "build", "-o", "classify", "."], folder, CGO_ENABLED=1,
        CGO_CFLAGS=f"-I{bundle}", CGO_LDFLAGS=f"-L{bundle}", GOFLAGS="-mod=mod",
        GOCACHE=work / "go-cache", GOTOOLCHAIN="local")
    return [folder / "classify"], run(["go", "version"], folder).split()[2]


def zig(bundle, work):
    """With translate-c, which makes a module of the header; $ZIG, zig or PyPI's ziglang.  Over the
    shared library, which has the C compiler's own way to ask for the CPU: Zig's does not tell."""
    command = os.environ.get("ZIG", "").split() or (["zig"] if shutil.which("zig") else [])
    if not command and importlib.util.find_spec("ziglang"):
        command = [sys.executable, "-m", "ziglang"]
    if not command:
        raise Missing("zig is not found (PyPI: ziglang)")
    folder = copied("zig", work)
    env = {"ZIG_GLOBAL_CACHE_DIR": work / "zig-cache", "ZIG_LOCAL_CACHE_DIR": work / "zig-cache"}
    run(["make", "-s", "libdigits.so"], bundle)
    module = run([*command, "translate-c", "-lc", "-I", bundle, "c.h"], folder, **env)
    (folder / "c.zig").write_text(module)
    run([*command, "build-exe", "-OReleaseFast", "-lc", "--dep", "c", "-Mroot=main.zig",
         "-Mc=c.zig", bundle / "libdigits.so", "-rpath", bundle, "-femit-bin=classify"], folder,
        **env)
    return [folder / "classify"], "zig " + run([*command, "version"], folder).strip()


def java(bundle, work):
    """With java.lang.foreign, over the shared library; the newest Java there is."""
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    found = {}
    for tool in [shutil.which("java"), *(h / "bin/java" for h in [
            *homes, *sorted(Path("/usr/lib/jvm").glob("*"))])]:
        if tool and shutil.which(tool):
            said = re.search(r'version "(\d+)', subprocess.run(
                [tool, "-version"], capture_output=True, text=True).stderr)
            found[int(said[1]) if said else 0] = tool
    if not found or max(found) < JAVA:
        raise Missing(f"Java {JAVA} or newer is not found" + (
            f", only {max(found)}, which has no java.lang.foreign" if found else ""))
    folder = copied("java", work)
    library = bundle / "libdigits.so"
    run(["make", "-s", "libdigits.so"], bundle)
    command = [found[max(found)], "--enable-native-access=ALL-UNNAMED", "Classify.java", library]
    return [command[0], *command[1:2], folder / command[2], library], f"Java {max(found)}"


LANGUAGES = {f.__name__: f for f in (rust, go, zig, java)}


def main():
    """Run the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="demo-languages", type=Path,
                        help="folder for all that is made")
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help=", ".join(LANGUAGES))
    args = parser.parse_args()
    unknown = [n for n in args.languages if n not in LANGUAGES]
    if unknown:
        parser.error(f"{unknown[0]}: choose from {', '.join(LANGUAGES)}")
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    net, images, _ = write_model(out / "digits.onnx")
    expected = net.predict(images / 16)
    bundle = aotc.compile(out / "digits.onnx", out / "bundle", dims={"batch": (1, 1024)}).path
    images.astype("<f4").tofile(out / "images.f32")
    good = []
    for name in args.languages or LANGUAGES:
        try:
            command, how = LANGUAGES[name](bundle, out)
        except Missing as err:
            print(f"{name}: skipped: {err}")
            continue
        digits = np.array(run([*command, bundle / "digits_weights.bin", out / "images.f32"],
                              out).split(), np.int64)
        good.append(np.array_equal(digits, expected))
        print(f"{name} ({how}): {len(digits)} images, same as scikit-learn: {good[-1]}")
    return MISSING_TOOL if not good else 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Which sanitizers the C compiler of this machine has."""

import subprocess


def supported(sanitizer, folder):
    """True if a program built with ``-fsanitize=sanitizer`` links and runs; made in ``folder``."""
    (folder / "t.c").write_text("int main(void) { return 0; }\n")
    done = subprocess.run(["cc", f"-fsanitize={sanitizer}", "t.c", "-o", "t"], cwd=folder,
                          capture_output=True)
    return done.returncode == 0 and subprocess.run([folder / "t"]).returncode == 0

"""``python -m aotc``: the same commands as ``aotc``."""

from aotc.cli import entry

if __name__ == "__main__":
    entry()

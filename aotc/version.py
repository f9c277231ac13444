"""The version of aotc, said once."""

__version__ = "0.1.0"

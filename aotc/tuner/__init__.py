"""Tuning by measurement: a Schedule that was searched for.  See docs/tuning.md."""

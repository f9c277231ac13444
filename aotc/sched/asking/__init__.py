"""Deciders that make candidates and ask a Judge for them: rewrites, settled layouts, groups."""

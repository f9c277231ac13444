"""Numbers of few bits: how they lie in bytes, which expressions of them have a form in lanes."""

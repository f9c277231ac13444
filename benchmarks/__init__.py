"""Measurements against other systems; nothing here is part of the compiler."""

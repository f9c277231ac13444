"""Operators along axes of which data says how many elements there are, whatever they do there."""

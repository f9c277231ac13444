"""Machines with clusters of workers: what is stored in the memory of each, and what runs there."""

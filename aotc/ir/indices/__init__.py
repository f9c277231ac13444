"""Arithmetic of indices: the normal form of sums of products, and inverses of maps."""

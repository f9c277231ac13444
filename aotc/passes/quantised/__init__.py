"""Tensors of 8 bits with a scale and a zero point, and what is computed from them."""

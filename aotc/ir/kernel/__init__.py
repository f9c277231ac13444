"""Kernels of a Plan: lowered to stages, then expanded to statements."""

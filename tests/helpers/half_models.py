"""Models of f32 as models in f16 or bf16."""

from benchmarks.gpu.halves import halved

__all__ = ["halved"]

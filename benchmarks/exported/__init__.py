"""Small networks outside the zoo, written node by node as exporters of PyTorch and TensorFlow write
them."""

from benchmarks.exported import images, sequences

MODELS = images.MODELS | sequences.MODELS

__all__ = ["MODELS"]

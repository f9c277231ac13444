"""Loops of a model: what is known of their rounds, and what rounds read of tensors around them."""

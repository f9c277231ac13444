"""Rewrites of images and of what slides or scales over them."""

"""Sums that several kernels or work items share."""

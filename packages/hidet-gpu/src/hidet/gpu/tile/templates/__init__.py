"""Kernels written in tiles."""

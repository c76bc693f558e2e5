"""Passes for NVIDIA's GPUs alone."""

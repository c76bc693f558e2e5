"""Passes over thread IR for CUDA."""

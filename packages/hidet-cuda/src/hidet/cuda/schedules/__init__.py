"""The CUDA schedule pack."""

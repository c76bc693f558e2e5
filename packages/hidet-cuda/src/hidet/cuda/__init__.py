"""hidet's CUDA target."""

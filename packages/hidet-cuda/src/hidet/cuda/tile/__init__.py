"""Kernels in tiles on NVIDIA's GPUs: products by `mma.sync` and `wgmma`, copies by `cp.async` and TMA."""

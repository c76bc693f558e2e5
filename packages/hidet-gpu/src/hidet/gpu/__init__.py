"""What targets for GPUs share: intrinsics, their simulator, names for scripts, tile kernels, checks of bounds."""

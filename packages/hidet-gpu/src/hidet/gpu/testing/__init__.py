"""What tests of kernels for GPUs share."""

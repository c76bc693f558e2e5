"""What tests of the CUDA target need on machines without a GPU."""

"""Passes for every GPU: layouts that its kernels want, and launches as blocks of threads."""

"""Kernels as users write them, each with inputs and what it shall give; see test_script_kernels.py.

Every entry of KERNELS runs in the interpreter, is compiled for GPUs and runs on one; those that use nothing of CUDA but
grids and blocks of threads run on the CPU too.
"""

from tests.script_kernels import boxes, pointers, products, rows, threads

KERNELS = {**products.KERNELS, **rows.KERNELS, **threads.KERNELS, **pointers.KERNELS, **boxes.KERNELS}

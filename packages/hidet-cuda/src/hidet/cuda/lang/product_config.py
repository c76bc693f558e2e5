"""What products of matrix units by name have in common, whoever computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hidet.dtypes import DType
from hidet.ir.intrinsic import MatrixShape


@dataclass(frozen=True, slots=True)
class ProductConfig:
    """D[m, n] = A[m, k] B[k, n] + C[m, n] by `threads` threads, each of which holds as many elements as the others."""

    threads: ClassVar[int]

    shape: MatrixShape

    @property
    def m(self) -> int:
        """Rows of A and of the result."""
        return self.shape.m

    @property
    def n(self) -> int:
        """Columns of B and of the result."""
        return self.shape.n

    @property
    def k(self) -> int:
        """Columns of A, rows of B."""
        return self.shape.k

    @property
    def output_dtype(self) -> DType:
        """Type of the result."""
        return self.shape.accumulator

    @property
    def a_elements(self) -> int:
        """Elements of A that a thread holds, where A lies in registers."""
        return self.m * self.k // self.threads

    @property
    def c_elements(self) -> int:
        """Elements of the result that a thread holds."""
        return self.m * self.n // self.threads

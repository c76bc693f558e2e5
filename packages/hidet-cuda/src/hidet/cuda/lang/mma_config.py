"""Products of a warp by name, and which element of a matrix each of its threads holds.

    config = MmaConfig.m16n8k16_f16_f32()
    for row, column in config.c_store_map.on(lane): ...      the elements of C that a thread holds, in order

With g = lane / 4 and t = lane % 4, a 32-bit register holds r neighbours along k. Register by register, A goes over rows
g and g + 8 first, then over blocks of 4 r columns; B, of which g is the column, over blocks of 4 r rows; C holds
columns 2 t and 2 t + 1, of row g first, then of row g + 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16" and others).
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet.cuda.intrinsics.mma import MMA, matrix_name
from hidet.cuda.lang.product_config import ProductConfig
from hidet.dtypes import DType
from hidet.ir.intrinsic import MatrixShape
from hidet.lang.mapping import TaskMapping, column_repeat, column_spatial, repeat, spatial


@dataclass(frozen=True, slots=True)
class MmaConfig(ProductConfig):
    """D[m, n] = A[m, k] B[k, n] + C[m, n] by the 32 threads of a warp.

    `MmaConfig.m16n8k16_f16_f32()` takes f16 and adds up in f32; `MmaConfig.names()` lists all. Where A and B differ,
    the name has both: m16n8k32_u8_i8_i32.
    """

    threads = 32

    @property
    def intrinsic(self) -> str:
        """The row of `hidet.gpu.intrinsics` that computes it."""
        return matrix_name("mma", self.shape)

    @property
    def input_dtype(self) -> DType:
        """Type of A."""
        return self.shape.a

    @property
    def b_elements(self) -> int:
        """Elements of B that a thread holds."""
        return self.k * self.n // self.threads

    @property
    def a_load_map(self) -> TaskMapping:
        """Row and column of the elements of A that a thread holds, in order."""
        run = _neighbours(self.shape.a)
        return column_repeat(self.m // 8, self.k // (4 * run)) * spatial(8, 4) * repeat(1, run)

    @property
    def b_load_map(self) -> TaskMapping:
        """Row and column of the elements of B that a thread holds, in order."""
        run = _neighbours(self.shape.b)
        return repeat(self.k // (4 * run), 1) * column_spatial(4, 8) * repeat(run, 1)

    @property
    def c_store_map(self) -> TaskMapping:
        """Row and column of the elements of C that a thread holds, in order."""
        return column_repeat(self.m // 8, self.n // 8) * spatial(8, 4) * repeat(1, 2)

    @staticmethod
    def names() -> tuple[str, ...]:
        """What there is: `getattr(MmaConfig, name)()`."""
        return tuple(_CONFIGS)

    def __str__(self) -> str:
        return _name(self.shape)


def _neighbours(dtype: DType) -> int:
    """Elements of a register."""
    return max(4 // dtype.nbytes, 1)


def _name(shape: MatrixShape) -> str:
    inputs = shape.a.short if shape.a is shape.b else f"{shape.a.short}_{shape.b.short}"
    return f"m{shape.m}n{shape.n}k{shape.k}_{inputs}_{shape.accumulator.short}"


_CONFIGS = {_name(row.matrix): MmaConfig(row.matrix) for row in MMA.values() if row.matrix is not None}


for _config_name, _config in _CONFIGS.items():
    setattr(MmaConfig, _config_name, staticmethod(lambda config=_config: config))

"""Matrix products of a warp: `mma.sync`.

Fragments are arrays in registers, `a` and `b` in the order of the registers of the PTX ISA ("Matrix Fragments for
mma.m16n8k16" and its neighbours), packed into 32-bit words; they may be declared as words or as their elements.
"""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import DType, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i32, tf32, u8, u32
from hidet.ir.intrinsic import Intrinsic, MatrixShape, Memory, table
from hidet.ir.types import MemorySpace

_REGISTERS: tuple[MemorySpace, ...] = ("register", "local")

# (a, b, accumulator, the shapes, least architecture)
_PRODUCTS: tuple[tuple[DType, DType, DType, tuple[tuple[int, int, int], ...], int], ...] = (
    (f16, f16, f32, ((16, 8, 8), (16, 8, 16)), 80),
    (f16, f16, f16, ((16, 8, 8), (16, 8, 16)), 80),
    (bf16, bf16, f32, ((16, 8, 8), (16, 8, 16)), 80),
    (tf32, tf32, f32, ((16, 8, 4), (16, 8, 8)), 80),
    (f64, f64, f64, ((8, 8, 4),), 80),
    (i8, i8, i32, ((16, 8, 16), (16, 8, 32)), 80),
    (u8, u8, i32, ((16, 8, 16), (16, 8, 32)), 80),
    (u8, i8, i32, ((16, 8, 16), (16, 8, 32)), 80),
    (i8, u8, i32, ((16, 8, 16), (16, 8, 32)), 80),
    (f8e4m3, f8e4m3, f32, ((16, 8, 32),), 89),
    (f8e5m2, f8e5m2, f32, ((16, 8, 32),), 89),
    (f8e4m3, f8e5m2, f32, ((16, 8, 32),), 89),
    (f8e5m2, f8e4m3, f32, ((16, 8, 32),), 89),
)


def fragment_dtypes(dtype: DType) -> tuple[DType, ...]:
    """What an array of operands of `dtype` may be declared as: its elements, or the words they are packed into."""
    if dtype is tf32:
        return (tf32, f32, u32)
    return (dtype,) if dtype.bits >= 32 else (dtype, u32)


def matrix_name(instruction: str, shape: MatrixShape) -> str:
    """ "cuda.mma.m16n8k16.f32.f16.f16": instruction, shape, accumulator, a, b."""
    types = f"{shape.accumulator.short}.{shape.a.short}.{shape.b.short}"
    return f"cuda.{instruction}.m{shape.m}n{shape.n}k{shape.k}.{types}"


def _mma(shape: MatrixShape, arch: int) -> Intrinsic:
    def fragment(name: str, dtype: DType, elements: int) -> Memory:
        nbytes = elements * dtype.nbytes // 32
        return Memory(name, _REGISTERS, fragment_dtypes(dtype), align=min(dtype.nbytes, 4), nbytes=nbytes)

    return Intrinsic(
        name=matrix_name("mma", shape),
        family=CUDA,
        group="mma",
        doc=f"d = a b + d: [{shape.m}, {shape.k}] {shape.a} times [{shape.k}, {shape.n}] {shape.b}",
        ptx="mma",
        parameters=(
            fragment("d", shape.accumulator, shape.m * shape.n),
            fragment("a", shape.a, shape.m * shape.k),
            fragment("b", shape.b, shape.k * shape.n),
        ),
        effect="reads",
        arch=arch,
        threads=32,
        matrix=shape,
    )


MMA = table(
    *(
        _mma(MatrixShape(m, n, k, a, b, accumulator), arch)
        for a, b, accumulator, shapes, arch in _PRODUCTS
        for m, n, k in shapes
    )
)

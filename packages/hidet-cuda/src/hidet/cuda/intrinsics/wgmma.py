"""Asynchronous matrix products of a warp group: `wgmma`.

A product of m = 64 rows; `d` is an array in registers, n / 2 words of f32 or i32 (n / 4 words of f16) a thread. The
second operand lies in shared memory and is named by a descriptor, the first in shared memory or in registers. tf32,
8-bit floats and integers want both operands with k as the fastest axis; 2-byte types take either order.
"""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.cuda.intrinsics.mma import fragment_dtypes, matrix_name
from hidet.dtypes import DType, bf16, boolean, f8e4m3, f8e5m2, f16, f32, i8, i32, tf32, u8, u64
from hidet.ir.intrinsic import Immediate, Intrinsic, MatrixShape, Memory, Parameter, Value, table

_FLOAT_COLUMNS = tuple(range(8, 257, 8))
_INTEGER_COLUMNS = (8, 16, 24, *range(32, 257, 16))

# (a, b, accumulator)
_PRODUCTS: tuple[tuple[DType, DType, DType], ...] = (
    (f16, f16, f32),
    (f16, f16, f16),
    (bf16, bf16, f32),
    (tf32, tf32, f32),
    (f8e4m3, f8e4m3, f32),
    (f8e4m3, f8e5m2, f32),
    (f8e5m2, f8e4m3, f32),
    (f8e5m2, f8e5m2, f32),
    (i8, i8, i32),
    (u8, u8, i32),
)


def _columns(accumulator: DType) -> tuple[int, ...]:
    return _INTEGER_COLUMNS if accumulator is i32 else _FLOAT_COLUMNS


def _wgmma(shape: MatrixShape, from_registers: bool) -> Intrinsic:
    words = shape.n * shape.accumulator.nbytes // 8
    parameters: list[Parameter] = [
        Memory("d", ("register", "local"), fragment_dtypes(shape.accumulator), align=4, nbytes=4 * words)
    ]
    if from_registers:
        parameters.append(Memory("a", ("register", "local"), fragment_dtypes(shape.a), align=4, nbytes=16))
    else:
        parameters.append(Value("descriptor_a", (u64,)))
    parameters += [Value("descriptor_b", (u64,)), Value("accumulate", (boolean,))]
    # Only 2-byte operands may have k as the slower axis; 1 says that it is.
    if shape.a.bits == 16:
        parameters += [] if from_registers else [Immediate("transpose_a", 0, 1)]
        parameters.append(Immediate("transpose_b", 0, 1))
    source = "registers" if from_registers else "shared memory"
    return Intrinsic(
        name=matrix_name("wgmma_registers" if from_registers else "wgmma", shape),
        family=CUDA,
        group="wgmma",
        doc=f"start d = a b, plus d where accumulate: [64, {shape.k}] {shape.a} from {source} "
        f"times [{shape.k}, {shape.n}] {shape.b}",
        ptx="wgmma.mma_async",
        parameters=tuple(parameters),
        effect="writes",
        arch=90,
        is_arch_specific=True,
        threads=128,
        matrix=shape,
    )


def _order(name: str, doc: str, ptx: str, *parameters: Parameter) -> Intrinsic:
    return Intrinsic(
        name=name,
        family=CUDA,
        group="wgmma",
        doc=doc,
        ptx=ptx,
        parameters=parameters,
        effect="waits",
        arch=90,
        is_arch_specific=True,
        threads=128,
    )


def _results(columns: int, accumulator: DType) -> Intrinsic:
    words = columns * accumulator.nbytes // 8
    d = Memory("d", ("register", "local"), fragment_dtypes(accumulator), align=4, nbytes=4 * words)
    doc = "`d` as the products before the last wait left it: no instruction, but no use of `d` moves to before it"
    return _order(f"cuda.wgmma_results.n{columns}.{accumulator.short}", doc, "wgmma.wait_group", d)


WGMMA = table(
    *(
        _wgmma(MatrixShape(64, n, 256 // a.bits, a, b, accumulator), from_registers)
        for a, b, accumulator in _PRODUCTS
        for n in _columns(accumulator)
        for from_registers in (False, True)
    ),
    *(_results(n, accumulator) for accumulator in (f32, f16, i32) for n in _columns(accumulator)),
    _order("cuda.wgmma_fence", "order accesses of registers before the products that follow", "wgmma.fence"),
    _order("cuda.wgmma_commit", "the products started since the last commit become a group", "wgmma.commit_group"),
    _order(
        "cuda.wgmma_wait",
        "wait until at most `groups` of the latest groups are unfinished",
        "wgmma.wait_group",
        Immediate("groups", 0, 7),
    ),
)

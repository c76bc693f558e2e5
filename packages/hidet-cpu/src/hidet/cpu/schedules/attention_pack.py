"""Copying keys or values so that rows follow each other, in the type that attention computes in.

Worth it where many blocks of queries read them: half precision is converted once, and rows that lie a power of two
apart, like those of one head among many, do not compete for the same cache sets any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet import dims
from hidet.cpu.schedules.attention_rows import place_tensor
from hidet.cpu.schedules.gemm_program import parameter
from hidet.dims import Dim
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.func import Function
from hidet.schedule.attention_problem import AttentionProblem, Placement
from hidet.schedule.lowering import KernelScope

_KEYS_OF_ITEM = 64
_NANOSECONDS_OF_ITEM = 2000

# From so many rows of queries on a copy saves more than it costs: of k or v in the right type, and in another one.
_ROWS_WORTH_A_COPY = 256
_ROWS_WORTH_A_CONVERSION = 129


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A kernel of (pointer to `source`, pointer to the copy, sizes of `scope`).

    packed: where the copy lies. elements: its size. grid, cost: of the launch.
    """

    function: Function
    source: Placement
    packed: Placement
    elements: Dim
    scope: KernelScope
    grid: tuple[Dim, ...]
    cost: Dim


def is_worth_packing(problem: AttentionProblem, source: Placement, extent: int) -> bool:
    """Whether k or v, whose rows have `extent` elements, should be copied. Unlimited rows of queries count as many."""
    _, most = dims.bounds(problem.rows)
    needed = _ROWS_WORTH_A_COPY
    if source.dtype != problem.compute:
        needed = _ROWS_WORTH_A_CONVERSION
    elif source.inner == 1 and dims.prove_equal(source.row, extent) is True:
        return False
    return most is None or most >= needed


def packing(name: str, problem: AttentionProblem, source: Placement, extent: int) -> Packing:
    """The kernel that copies k or v; axes that `source` repeats are copied once."""
    counts = [1 if stride == 0 else n for n, stride in zip(problem.leading, source.leading, strict=True)]
    strides = contiguous_strides((*counts, problem.keys, extent))
    leading = tuple(0 if count == 1 else stride for count, stride in zip(counts, strides, strict=False))
    packed = Placement(source.tensor, leading, 0, extent, 1, problem.compute)
    scope = KernelScope()
    axes = [build.size_var(f"lead{n}") for n in range(len(counts))]
    item = build.size_var("item")
    k = IRBuilder()
    start = place_tensor(k, scope, name, source, axes, 0)
    copy = place_tensor(k, scope, f"{name}_packed", packed, axes, 0)
    width = parameter(scope, extent, "extent")
    first = k.let("first", item * _KEYS_OF_ITEM)
    count = build.minimum(build.index(_KEYS_OF_ITEM), parameter(scope, problem.keys, "keys") - first)
    with k.for_range("key", count, start=first) as key, k.for_range("inner", width, kind="vectorize") as inner:
        value = build.load(start.pointer, key * start.row + inner * start.inner)
        k.store(copy.pointer, key * copy.row + inner, build.cast(value, problem.compute))
    return Packing(
        function=Function(f"pack_{name}", scope.params, k.body, kind="kernel", grid_vars=(*axes, item)),
        source=source,
        packed=packed,
        elements=dims.product([*counts, problem.keys, extent]),
        scope=scope,
        grid=(*counts, dims.ceildiv(problem.keys, _KEYS_OF_ITEM)),
        cost=_NANOSECONDS_OF_ITEM,
    )

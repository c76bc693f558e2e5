"""Attention for many queries: one work item computes a block of queries against all keys.

Tiling and rescaling as in Dao et al., "FlashAttention", 2022, with queries in the lanes of vectors:

    columns[d][query] = q * scale * log2(e), transposed                    once
    for block of keys:
      scores[key][query] = k @ columns
      mask, where the task has one
      weights = 2 ** (scores - top), decay of what is summed already
      sums[e][query] = sums * decay + v.T @ weights
    out[query][e] = sums / total, transposed back                          once

The softmax needs no exchange between lanes, and k and v are read where they are: both products take one of their
elements at a time. Only half precision is converted, a block at a time.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from hidet import dims
from hidet.cpu.math.exponential import LOG2_E
from hidet.cpu.schedules.attention_kernel import AttentionKernel, array_extent
from hidet.cpu.schedules.attention_rows import (
    Block,
    Place,
    apply_band,
    apply_mask,
    load_queries,
    number_parameter,
    open_block,
    place_tensor,
    store_logsumexp,
    store_results,
)
from hidet.cpu.schedules.attention_sequences import open_sequence
from hidet.cpu.schedules.attention_softmax import ROWS_TOGETHER, SoftmaxState, update
from hidet.cpu.schedules.attention_tile import Product, TileShape, local_array, product_functions
from hidet.cpu.schedules.gemm_program import parameter
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.schedule.attention_problem import AttentionProblem, Placement
from hidet.schedule.lowering import KernelScope

_BY_QUERY = ("q", "mask", "out", "logsumexp")
# Multiply-adds of one core in a nanosecond, for the estimate of a work item's cost.
_MULTIPLY_ADDS_PER_NANOSECOND = 50


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    """Local arrays of rows of `pitch` queries; see the top of this file. copied: a block of k or v, converted."""

    columns: Var
    scores: Var
    sums: Var
    state: SoftmaxState
    copied: Var | None


def flash_kernel(problem: AttentionProblem, shape: TileShape, key_block: int) -> AttentionKernel:
    """The kernel for `problem`, scoring `key_block` keys at a time. Rows of k and v have up to LARGEST_ROW elements."""
    scope = KernelScope()
    leading = [build.size_var(f"lead{n}") for n in range(len(problem.leading))]
    item = build.size_var("item")
    places: dict[str, Place] = {}
    k = IRBuilder()
    for name, placement in problem.tensors().items():
        by_query = shape.pitch if name in _BY_QUERY else 0
        places[name] = place_tensor(k, scope, name, placement, leading, by_query)
    arrays = _local_arrays(k, problem, shape, key_block)
    blocks = dims.ceildiv(problem.rows, shape.pitch)
    queries: Expr = parameter(scope, problem.queries, "queries")
    keys: Expr = parameter(scope, problem.keys, "keys")
    ahead: Expr = build.index(0)
    if problem.packed is None:
        rows = queries if problem.group == 1 else parameter(scope, problem.rows, "rows")
        inside: AbstractContextManager[None] = nullcontext()
    else:
        places, queries, keys = open_sequence(k, scope, problem.packed, places, (queries, keys))
        rows = queries if problem.group == 1 else k.let("rows", queries * parameter(scope, problem.group, "members"))
        # The last row has its place at the last key. There are blocks for the longest sequence.
        ahead, inside = k.let("ahead", keys - queries), k.if_(item * shape.pitch < rows)
    with inside:
        block = open_block(k, shape, item, rows, queries, list(places.values()))
        depth, width = parameter(scope, problem.depth, "depth"), parameter(scope, problem.width, "width")
        factor = number_parameter(scope, problem.scale * LOG2_E)
        load_queries(k, shape, block, places["q"], depth, problem.depth, factor, arrays.columns)
        _start(k, shape, arrays, width)
        left, right = problem.window
        low = None if left is None else ahead - parameter(scope, left, "left")
        high = None if right is None else ahead + scope.size(right, "right")
        _KeyLoop(shape, problem, key_block, places, arrays, block, depth, width, low, high).over(k, keys)
        store_results(k, shape, block, places["out"], width, problem.width, arrays.sums, arrays.state.total)
        if "logsumexp" in places:
            store_logsumexp(k, block, places["logsumexp"], arrays.state)
    function = Function("attention", scope.params, k.body, "kernel", (*leading, item), attributes=(COMPACT,))
    products = problem.keys * (shape.pitch * (problem.depth + problem.width))
    cost = dims.floordiv(products, _MULTIPLY_ADDS_PER_NANOSECOND) + 1
    return AttentionKernel(function, product_functions(shape), scope, (*problem.leading, blocks), cost)


def _local_arrays(k: IRBuilder, problem: AttentionProblem, shape: TileShape, key_block: int) -> _Arrays:
    def array(name: str, rows: int) -> Var:
        return local_array(k, name, shape.dtype, rows * shape.pitch)

    spare = shape.spare_rows
    longest = array_extent(max(problem.depth, problem.width))
    needs_copy = _is_copied(problem, problem.k) or _is_copied(problem, problem.v)
    return _Arrays(
        columns=array("columns", longest),
        scores=array("scores", key_block + spare),
        sums=array("sums", longest + spare),
        state=SoftmaxState(array("top", 1), array("total", 1), array("decay", 1)),
        copied=local_array(k, "copied", shape.dtype, key_block * longest) if needs_copy else None,
    )


def _is_copied(problem: AttentionProblem, place: Placement) -> bool:
    """Whether blocks of k or v are copied first: to convert them, or because they are strided in both axes."""
    return place.dtype != problem.compute or (place.inner != 1 and place.row != 1)


def _start(k: IRBuilder, shape: TileShape, arrays: _Arrays, width: Expr) -> None:
    zero, lowest = build.const(0, shape.dtype), build.const(-float("inf"), shape.dtype)
    with k.for_range("lane", shape.pitch, kind="vectorize") as lane:
        k.store(arrays.state.top, lane, lowest)
        k.store(arrays.state.total, lane, zero)
    with k.for_range("place", width * shape.pitch, kind="vectorize") as place:
        k.store(arrays.sums, place, zero)


@dataclass(frozen=True, slots=True, eq=False)
class _KeyLoop:
    """low, high: row i sees keys from i + low to i + high; None for no bound."""

    shape: TileShape
    problem: AttentionProblem
    key_block: int
    places: dict[str, Place]
    arrays: _Arrays
    block: Block
    depth: Expr
    width: Expr
    low: Expr | None
    high: Expr | None

    def over(self, k: IRBuilder, count: Expr) -> None:
        """All blocks of keys, of `count`, that some row sees."""
        arrays, shape, block = self.arrays, self.shape, self.block
        limit = count if self.high is None else build.minimum(count, block.highest + 1 + self.high)
        begin = build.index(0) if self.low is None else k.let("begin", build.maximum(block.lowest + self.low, 0))
        with k.for_range("first_key", limit - begin, start=begin, step=self.key_block) as first:
            keys = k.let("keys", build.minimum(build.index(self.key_block), limit - first))
            padded = k.let("padded", (keys + (ROWS_TOGETHER - 1)) // ROWS_TOGETHER * ROWS_TOGETHER)
            element, inner, row = self._operand(k, "k", first, keys, self.depth)
            product = Product(element, row, inner, arrays.columns, arrays.scores, keys, self.depth, None)
            product.compute(k, shape, block.vectors)
            mask = self.places.get("mask")
            if mask is not None:
                apply_mask(k, shape, block, mask, arrays.scores, first, keys)
            if self.high is not None or self.low is not None:
                apply_band(k, shape, block, arrays.scores, first, keys, self.low, self.high)
            self._hide_padding(k, keys, padded)
            update(k, shape, arrays.state, arrays.scores, padded, block.vectors)
            element, inner, row = self._operand(k, "v", first, keys, self.width)
            product = Product(element, inner, row, arrays.scores, arrays.sums, self.width, keys, arrays.state.decay)
            product.compute(k, shape, block.vectors)

    def _hide_padding(self, k: IRBuilder, keys: Expr, padded: Expr) -> None:
        pitch = self.shape.pitch
        with k.for_range("place", (padded - keys) * pitch, start=keys * pitch, kind="vectorize") as place:
            k.store(self.arrays.scores, place, build.const(-float("inf"), self.shape.dtype))

    def _operand(self, k: IRBuilder, name: str, first: Expr, keys: Expr, extent: Expr) -> tuple[Expr, Expr, Expr]:
        """The first element of a block of k or v and its strides within and between rows; copies it where it has to."""
        place = self.places[name]
        start = k.let(f"{name}_block", build.address(place.pointer, first * place.row))
        if not _is_copied(self.problem, place.placement):
            return start, place.inner, place.row
        copied = self.arrays.copied
        assert copied is not None
        pitch = build.index(array_extent(self.problem.depth if name == "k" else self.problem.width))
        with k.for_range("key", keys) as key, k.for_range("inner", extent, kind="vectorize") as inner:
            value = build.load(start, key * place.row + inner * place.inner)
            k.store(copied, key * pitch + inner, build.cast(value, self.shape.dtype))
        return copied, build.index(1), pitch

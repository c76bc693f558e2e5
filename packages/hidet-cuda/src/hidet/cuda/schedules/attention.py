"""Scaled dot-product attention on a GPU.

16-bit floats are multiplied on tensor cores by the tile program of core, everything else by a kernel without. Few
queries on many keys (decoding) do not fill the device: the keys are then split over blocks, whose results a second
kernel merges in their order (Dao et al., "Flash-Decoding", 2023).

Which kernel runs is decided at every call, unless all tensors are known to begin at multiples of 16 bytes: tensors of
users may start anywhere, and copies in the background may not.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

from hidet import dims, dtypes
from hidet.cuda.arch import capability_of, shared_memory
from hidet.cuda.schedules.attention_heads import COPY_BYTES, HeadScope, numbered
from hidet.cuda.schedules.attention_plan import choose_plan, simt_rows, suits_tensor_cores
from hidet.cuda.schedules.attention_simt import THREADS, Element, Rows, simt_attention
from hidet.cuda.schedules.attention_tiles import tensor_core_launches
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, If, Launch, Stmt, Store
from hidet.schedule.attention_problem import AttentionProblem, attention_problem
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task

if TYPE_CHECKING:
    from hidet.cuda.target import CudaTarget
    from hidet.target import Target

LARGEST_ROW = 256
"""Elements of a row of keys or values, of which a thread keeps a part in registers."""


class AttentionRule:
    """Schedules attention with or without log-sum-exp, for any strides, masks and numbers of queries."""

    def match(self, task: Task, target: Target) -> Match | None:
        """Attention alone, rows of k and v of a known length up to LARGEST_ROW."""
        problem = attention_problem(task)
        shortest, longest = sorted((problem.depth, problem.width))
        if longest > LARGEST_ROW or shortest < 1:
            raise ScheduleError(
                f"rows of k and v have {problem.depth} and {problem.width} elements, expected 1 to {LARGEST_ROW}"
            )
        return Match(task, problem)

    def space(self, match: Match, target: Target) -> SearchSpace:
        """Nothing to tune yet."""
        return SearchSpace()

    def default(self, match: Match, target: Target) -> Params:
        """No parameters."""
        return {}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """A kernel for tensor cores where they can be used, and one for everything else."""
        problem: AttentionProblem = match.data
        builder = ProgramBuilder(match.task)
        if not suits_tensor_cores(problem):
            builder.run(_simt_launch(builder, problem))
            return builder.program()
        limit = shared_memory(capability_of(cast("CudaTarget", target).architecture))
        fast = tensor_core_launches(builder, problem, choose_plan(problem, limit))
        copied = {place.tensor.operand: place.tensor for place in (problem.q, problem.k, problem.v, problem.out)}
        unknown: list[Expr] = [
            Bitcast(builder.pointers[operand], dtypes.i64)
            for operand, tensor in copied.items()
            if not tensor.is_aligned
        ]
        if not unknown:
            builder.run(fast)
            return builder.program()
        bits = functools.reduce(functools.partial(build.binary, "or"), unknown)
        is_aligned = build.equal(build.binary("and", bits, COPY_BYTES - 1), 0)
        builder.run(If(is_aligned, fast, _simt_launch(builder, problem)))
        return builder.program()


def _simt_launch(builder: ProgramBuilder, problem: AttentionProblem) -> Launch:
    """The kernel without matrix units, which takes everything."""
    heads = HeadScope(problem, tuple(problem.tensors()), stacked=False)
    scope, wide = heads.scope, problem.compute
    high = simt_rows(problem)
    number, row_block, row_blocks, first = (
        build.size_var(name) for name in ("number", "row_block", "row_blocks", "first_row")
    )
    values: list[tuple[Var, Expr]] = [(row_blocks, (heads.rows + (high - 1)) // high)]
    values += numbered(number, [*heads.axes(), (row_block, row_blocks)])
    values.append((first, (row_blocks - 1 - row_block if problem.is_causal else row_block) * high))

    def write(name: str, row: Expr, column: Expr, value: Expr) -> Stmt:
        place = problem.tensors()[name]
        offset = heads.row_offset(place, name, row) + column * heads.inner(place, name)
        return Store(heads.base(place, name), (offset,), build.cast(value, place.dtype))

    work = Rows(
        high,
        first,
        heads.rows,
        heads.length,
        _element(heads, "q"),
        _element(heads, "k"),
        _element(heads, "v"),
        lambda row, column, value: write("out", row, column, value),
        None if problem.logsumexp is None else lambda row, value: write("logsumexp", row, build.index(0), value),
        problem.depth,
        problem.width,
    )
    body = simt_attention(
        work,
        problem.scale,
        wide,
        score=heads.added(wide, build.index(0)),
        visible=heads.visible(build.index(0)),
        is_causal=problem.is_causal,
    )
    declared = [Declare(var, value) for var, value in values]
    function = Function(builder.name(), scope.params, build.seq([*declared, *body]), kind="kernel", grid_vars=(number,))
    pointers = [builder.pointers[place.tensor.operand] for place in problem.tensors().values()]
    count = dims.product(problem.leading) * problem.group * dims.ceildiv(problem.queries, high)
    return builder.launch(function, pointers, scope.arguments, (builder.size(count),), THREADS)


def _element(heads: HeadScope, name: str) -> Element:
    """How an element of a head's matrix is read."""
    place = heads.problem.tensors()[name]
    base, wide = heads.base(place, name), heads.problem.compute

    def read(row: Expr, column: Expr) -> Expr:
        offset = heads.row_offset(place, name, row) + column * heads.inner(place, name)
        return build.cast(build.load(base, offset), wide)

    return read

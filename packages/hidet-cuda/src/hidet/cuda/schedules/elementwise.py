"""Element-wise chains over tensors that lie alike: 16 bytes a thread and access.

Tensors whose elements lie in the order of the result's are walked as one axis; operands that are the same everywhere
are read once a thread. A program has two kernels: one for addresses that are multiples of 16 bytes, and the plain one
of an element a thread. Which one runs is decided when it is called, because views may start anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.cuda.schedules.program import ProgramBuilder
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Access, Bitcast, Expr, Var
from hidet.ir.func import Function
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.node import IRNode
from hidet.ir.stmt import Declare, For, If, Launch, Stmt, Store
from hidet.ir.types import BufferType
from hidet.ir.visit import accesses, has_reduce, rewrite
from hidet.schedule.affine import Affine, affine_offset, collapse_axes, other_variables
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rule import Match, Params, Program, SearchSpace
from hidet.schedule.task import Task

if TYPE_CHECKING:
    from hidet.target import Target

_BYTES = 16
_THREADS = 256
_LEAST = 1 << 14
"""Elements below which a thread each keeps more of the device busy than 16 bytes each."""


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """A chain over one axis of `count` elements; `along` are the operands that are read element by element."""

    count: Dim
    along: tuple[Operand, ...]
    lanes: int


class ElementwiseRule:
    """Schedules tasks without an anchor and with one result, whose operands lie as the result does."""

    def match(self, task: Task, target: Target) -> Match | None:
        """None for other operands, for few elements, and for positions that the formula itself uses."""
        if task.anchor is not None or len(task.outputs) != 1 or task.in_place:
            return None
        flat = _flat(task)
        return None if flat is None else Match(task, flat)

    def space(self, match: Match, target: Target) -> SearchSpace:
        """Nothing to tune."""
        return SearchSpace()

    def default(self, match: Match, target: Target) -> Params:
        """No parameters."""
        return {}

    def build(self, match: Match, params: Params, target: Target) -> Program:
        """The kernel of 16 bytes, and that of an element."""
        flat: Flat = match.data
        task = match.task
        builder = ProgramBuilder(task)
        wide, narrow = _launch(builder, task, flat, flat.lanes), _launch(builder, task, flat, 1)
        bits: Expr = Bitcast(builder.pointers[task.epilogues[0].result], dtypes.i64)
        for operand in flat.along:
            bits = build.binary("or", bits, Bitcast(builder.pointers[operand], dtypes.i64))
        is_aligned = build.equal(build.binary("and", bits, _BYTES - 1), 0)
        builder.run(If(is_aligned, wide, narrow))
        return builder.program()


def _flat(task: Task) -> Flat | None:
    epilogue, output = task.epilogues[0], task.outputs[0].type
    if has_reduce(epilogue.value):
        return None
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    maps: dict[Access, Affine] = {}
    for access in accesses(epilogue.value):
        offset = affine_offset(access.indices, strides[access.operand])
        if offset is None or not set(offset.coefficients) <= set(epilogue.axes) or offset.constant != 0:
            return None
        maps[access] = offset
    if other_variables(epilogue.value, maps) & set(epilogue.axes):
        return None
    # From the largest stride to the smallest, so that any order of axes in memory is walked from end to end.
    own = output.element_strides
    if not all(isinstance(stride, int) for stride in own):
        order = list(range(output.rank))
    else:
        order = sorted(range(output.rank), key=lambda axis: -int(own[axis]))  # type: ignore[arg-type]  # all are ints
    axes, extents = [epilogue.axes[n] for n in order], [output.shape[n] for n in order]
    target = Affine(dict(zip(epilogue.axes, own, strict=True)), 0)
    along = {access: offset for access, offset in maps.items() if offset.coefficients}
    if {access.operand for access in along} & {access.operand for access in maps if access not in along}:
        return None
    groups = collapse_axes(axes, extents, [*along.values(), target], frozenset())
    if len(groups) != 1:
        return None
    inner = axes[groups[0][-1]]
    if any(offset.coefficient(inner) != 1 for offset in (*along.values(), target)):
        return None
    count = dims.product(output.shape)
    likely = count if isinstance(count, int) else dims.hint_value(count) or 0
    widest = max([output.dtype.nbytes, *(access.operand.dtype.nbytes for access in along)])
    if likely < _LEAST or widest > _BYTES // 2:
        return None
    return Flat(count, tuple(dict.fromkeys(access.operand for access in along)), _BYTES // widest)


def _launch(builder: ProgramBuilder, task: Task, flat: Flat, lanes: int) -> Launch:
    """The kernel of `lanes` elements a thread, and its launch."""
    scope = KernelScope()
    epilogue = task.epilogues[0]
    operands = list(dict.fromkeys(access.operand for access in accesses(epilogue.value)))
    pointers = {operand: scope.pointer(operand.name, operand.dtype) for operand in operands}
    result = scope.pointer("result", epilogue.result.dtype)
    count = scope.size(flat.count, "count") if not isinstance(flat.count, int) else _parameter(scope, flat.count)
    lowering = Lowering(scope, {})
    for operand in operands:
        if operand not in flat.along:
            lowering.buffer(operand, pointers[operand], [0] * len(operand.shape))
    first = build.size_var("first")

    def value(read: Mapping[Operand, Expr]) -> Expr:
        def change(node: IRNode) -> IRNode | None:
            return read.get(node.operand) if isinstance(node, Access) else None

        return lowering.resolve(rewrite(epilogue.value, change), {axis: build.index(0) for axis in epilogue.axes})

    def single(place: Expr) -> Stmt:
        return Store(result, (place,), value({x: build.load(pointers[x], place) for x in flat.along}))

    body = single(first) if lanes == 1 else _vectors(flat, pointers, result, first, count, single, value)
    thread, block = (build.cast(intrinsic_call(f"cuda.{name}.x"), dtypes.i64) for name in ("thread_idx", "block_idx"))
    stmts: list[Stmt] = [Declare(first, (block * _THREADS + thread) * lanes), If(first < count, body)]
    function = Function(builder.name(), scope.params, build.seq(stmts), kind="kernel")
    per_block = _THREADS * lanes
    grid = (builder.size(flat.count) + (per_block - 1)) // per_block
    outer = [*(builder.pointers[operand] for operand in operands), builder.pointers[epilogue.result]]
    return builder.launch(function, outer, scope.arguments, (grid,), _THREADS)


def _parameter(scope: KernelScope, count: int) -> Expr:
    """The number of elements as a parameter, even if it is 1."""
    variable = build.size_var("count")
    scope.sizes.append(variable)
    scope.arguments.append(count)
    return variable


def _vectors(
    flat: Flat,
    pointers: Mapping[Operand, Var],
    result: Var,
    first: Expr,
    count: Expr,
    single: Callable[[Expr], Stmt],
    value: Callable[[Mapping[Operand, Expr]], Expr],
) -> Stmt:
    """All lanes of a thread through arrays in registers; the last thread may have fewer, one by one."""
    lanes = flat.lanes
    lane, place = build.size_var("lane"), build.size_var("place")
    parts = {operand: _registers(f"part{n}", operand.dtype, lanes) for n, operand in enumerate(flat.along)}
    made = _registers("made", result.dtype, lanes)
    stmts: list[Stmt] = [Declare(made)]
    for operand, part in parts.items():
        stmts.append(Declare(part))
        stmts.append(Store(part, (build.index(0),), build.load(pointers[operand], first, lanes=lanes)))
    read = {operand: build.load(part, lane) for operand, part in parts.items()}
    stmts.append(For(lane, build.index(0), build.index(lanes), Store(made, (lane,), value(read)), kind="unroll"))
    stmts.append(Store(result, (first,), build.load(made, 0, lanes=lanes)))
    rest = For(place, first, count - first, single(place))
    return If(first + lanes <= count, build.seq(stmts), rest)


def _registers(name: str, dtype: DType, lanes: int) -> Var:
    return Var(name, BufferType(dtype, (build.index(lanes),), space="register"))

"""How pointwise computations are dealt out to threads: elements that are computed independently of each other.

Axes that every tensor walks as one are merged; the elements of a thread are neighbours along the last of the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Compute, Operand
from hidet.dims import Dim
from hidet.gpu.schedules.lanes import BYTES, Path, is_aligned, is_inside, is_uniform, paths, step_along
from hidet.gpu.schedules.occupancy import per_device
from hidet.graph.types import order_of_strides
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Reduce, Var
from hidet.ir.visit import accesses, substitute, walk
from hidet.schedule.affine import Affine, affine_offset, as_dim, collapse_axes, other_variables
from hidet.schedule.cost import element_count
from hidet.schedule.inlined import inlined_value
from hidet.schedule.task import Task, TaskTensor
from hidet.target import GpuTarget

_BUSY = 256
"""Threads of a multiprocessor below which fewer elements a thread keep more of the device busy."""
_CACHED = 4 << 20
"""Elements of a tensor that the caches of a device hold while it is read piece by piece."""
_SMALL = 16
"""A tensor this many times smaller than the result stays in the caches, however it is read."""


_SHORT = 16
"""Positions of an axis below which a thread has registers for all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """A read whose neighbours lie along `axis`, of `extent` positions, and behind them those along the result's last
    axis: filters whose channels are to become neighbours."""

    access: Access
    axis: Var
    extent: int


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise:
    """A pointwise computation: the elements of one output, each independent of the others.

    value: an element, from the task's inputs. axes, extents: of the groups, outermost first; other axes of the output
    stay 0. lanes: neighbours along the last group that a thread computes. wide: operands that are read by all lanes at
    once, whose addresses have to be multiples of that many bytes, as the result's has. busy: threads below which fewer
    lanes keep more of the device busy, where a call tells how many there are; else 0. turned: what is read in the order
    of its own memory, by threads that have its axis' positions of all lanes; None where there is no such read.
    """

    epilogue: Compute
    output: TaskTensor
    value: Expr
    axes: tuple[Var, ...]
    extents: tuple[Dim, ...]
    lanes: int
    wide: tuple[Operand, ...]
    busy: int = 0
    turned: Turned | None = None

    @property
    def shape(self) -> dict[Var, Dim]:
        """Extents of the output's axes."""
        return dict(zip(self.epilogue.axes, self.output.type.shape, strict=True))

    @property
    def is_flat(self) -> bool:
        """Whether all elements are neighbours along one group, which then may have any number of them."""
        return len(self.axes) == 1


def pointwise_of(task: Task, number: int, target: GpuTarget) -> Pointwise:
    """The pointwise computation of output `number`. ScheduleError where the anchor has stages of other kinds than
    `Compute`."""
    epilogue, output = task.epilogues[number], task.outputs[number]
    value = _without_single_taps(inlined_value(task, epilogue))
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    maps: dict[Access, Affine] = {}
    for access in accesses(value):
        offset = affine_offset(access.indices, strides[access.operand])
        if offset is not None:
            maps[access] = offset
    own = output.type.element_strides
    # From the largest stride to the smallest, so that any order of axes in memory is walked from end to end.
    order = order_of_strides(own) or tuple(range(output.type.rank))
    axes, extents = [epilogue.axes[n] for n in order], [output.type.shape[n] for n in order]
    written = Affine(dict(zip(epilogue.axes, own, strict=True)), 0)
    groups = collapse_axes(axes, extents, [*maps.values(), written], other_variables(value, maps))
    if not groups:
        groups = [[len(axes) - 1]] if axes else []
    merged = tuple(axes[group[-1]] for group in groups)
    counts = tuple(dims.product([extents[n] for n in group]) for group in groups)
    value = substitute(value, {axis: build.index(0) for axis in axes if axis not in merged})
    found = Pointwise(epilogue, output, value, merged, counts, 1, ())
    return _widened(task, found, target)


def with_wide_writes(task: Task, pointwise: Pointwise) -> Pointwise:
    """With as many lanes as can be written at once, where `allowed_lanes` are none because reads lie apart.

    For small tensors, whose elements are in the caches once a neighbour was read, and where nothing is read under a
    condition.
    """
    is_small = element_count(pointwise.output.type.shape) <= _CACHED
    if pointwise.lanes > 1 or not pointwise.axes or not is_small:
        return pointwise
    if any(path for _, path in _reads([pointwise.value], ())):
        return pointwise
    lanes = BYTES // pointwise.output.type.dtype.nbytes
    while lanes > 1 and not _allows(pointwise, (), {}, lanes):
        lanes //= 2
    return with_lanes(task, pointwise, lanes)


def with_short_axis(task: Task, pointwise: Pointwise) -> Pointwise:
    """With threads that have all of a short axis, where the only read is `Turned` along it and aligned; else as it
    was."""
    reads = paths([pointwise.value])
    ((access, reached),) = reads.items() if len(reads) == 1 else ((None, ()),)
    if pointwise.lanes > 1 or len(pointwise.axes) < 2 or not isinstance(access, Access) or () not in reached:
        return pointwise
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    offset, last, own = affine_offset(access.indices, strides[access.operand]), pointwise.axes[-1], pointwise.output
    if offset is None or not set(offset.coefficients) <= set(pointwise.axes):
        return pointwise
    lanes = BYTES // max(own.type.dtype.nbytes, access.dtype.nbytes)
    for axis, extent in zip(pointwise.axes[:-1], pointwise.extents[:-1], strict=True):
        if not isinstance(extent, int) or not 1 < extent < _SHORT:
            continue
        places = [offset.coefficient(other) for other in pointwise.axes if other not in (axis, last)]
        is_aligned_read = all(dims.divisibility(place) % lanes == 0 for place in (*places, offset.constant))
        is_dense = offset.coefficient(axis) == 1 and offset.coefficient(last) == extent
        if lanes > 1 and is_dense and is_aligned_read and _allows(pointwise, (), {}, lanes):
            return replace(pointwise, lanes=lanes, wide=(access.operand,), turned=Turned(access, axis, extent))
    return pointwise


def _without_single_taps(value: Expr) -> Expr:
    """Axes that are reduced over one index are 0."""
    single: dict[Var, Expr] = {}
    for node in walk(value):
        if isinstance(node, Reduce):
            pairs = zip(node.axes, node.extents, strict=True)
            single.update((axis, build.index(0)) for axis, extent in pairs if as_dim(extent) == 1)
    return substitute(value, single)


def _widened(task: Task, pointwise: Pointwise, target: GpuTarget) -> Pointwise:
    """With as many lanes as all that is read and written allows, as far as there is work for the device, which of
    symbolic sizes a call tells."""
    if not pointwise.axes:
        return pointwise
    count, busy = element_count(pointwise.output.type.shape), per_device(_BUSY, target)
    if not isinstance(dims.product(pointwise.output.type.shape), int):
        return replace(with_lanes(task, pointwise, next(allowed_lanes(task, pointwise))), busy=busy)
    lanes = next((lanes for lanes in allowed_lanes(task, pointwise) if count // lanes >= busy), 1)
    return with_lanes(task, pointwise, lanes)


def allowed_lanes(task: Task, pointwise: Pointwise) -> Iterator[int]:
    """Numbers of lanes that all that is read and written allows, the largest first, and 1 at last."""
    if pointwise.axes:
        reads = list(_reads([pointwise.value], ()))
        count = element_count(pointwise.output.type.shape)
        strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
        axis = pointwise.axes[-1]
        large = [(a, p) for a, p in reads if element_count(a.operand.shape) * _SMALL > count]
        along = {a.operand.dtype.nbytes for a, _ in large if step_along(a.indices, strides[a.operand], axis, 1) != 0}
        lanes = BYTES // max([pointwise.output.type.dtype.nbytes, *along])
        while lanes > 1:
            if _allows(pointwise, large, strides, lanes):
                yield lanes
            lanes //= 2
    yield 1


def with_lanes(task: Task, pointwise: Pointwise, lanes: int) -> Pointwise:
    """With so many lanes, one of `allowed_lanes`."""
    if not pointwise.axes:
        return pointwise
    reads, axis = list(_reads([pointwise.value], ())), pointwise.axes[-1]
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    wide = [
        a.operand
        for a, _ in reads
        if step_along(a.indices, strides[a.operand], axis, lanes) == 1
        and is_aligned(a.indices, strides[a.operand], axis, lanes)
    ]
    unique = tuple(dict.fromkeys(wide)) if lanes > 1 else ()
    return replace(pointwise, lanes=lanes, wide=unique, turned=None)


def _reads(values: Sequence[Expr], outside: Path) -> Iterator[tuple[Access, Path]]:
    """Every access with conditions under which it is made, also inside of reductions."""
    for node, reached in paths(values).items():
        path = () if () in reached else reached[0]
        if isinstance(node, Access):
            yield node, (*outside, *path)
        elif isinstance(node, Reduce):
            yield from _reads(node.values, (*outside, *path))


def _allows(
    pointwise: Pointwise, reads: Sequence[tuple[Access, Path]], strides: dict[Operand, tuple[Dim, ...]], lanes: int
) -> bool:
    """Whether a thread can compute so many neighbours without reading elements that lie apart."""
    axis, epilogue = pointwise.axes[-1], pointwise.epilogue
    own, shape = pointwise.output.type.element_strides, pointwise.shape
    if not pointwise.is_flat and dims.divisibility(pointwise.extents[-1]) % lanes:
        return False
    if step_along(epilogue.axes, own, axis, lanes) != 1 or not is_aligned(
        [index for index in epilogue.axes if index in pointwise.axes],
        [stride for index, stride in zip(epilogue.axes, own, strict=True) if index in pointwise.axes],
        axis,
        lanes,
    ):
        return False
    # Where a thread has the whole of the last axis, neighbours along the one before belong to neighbouring threads.
    before = pointwise.axes[-2] if len(pointwise.axes) > 1 and pointwise.extents[-1] == lanes else None
    for access, path in reads:
        if before is not None and step_along(access.indices, strides[access.operand], before, 1) == 1:
            continue
        step = step_along(access.indices, strides[access.operand], axis, lanes)
        if step != 0 and (step != 1 or not is_aligned(access.indices, strides[access.operand], axis, lanes)):
            return False
        if not is_inside(access, shape) and not all(is_uniform(condition, axis, lanes) for condition, _ in path):
            return False
    return True

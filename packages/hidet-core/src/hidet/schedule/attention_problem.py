"""What an attention task computes, with everything a kernel needs to know about its tensors.

Queries of the heads that share one key head (grouped queries) are rows of one matrix: row g * s + i is query i of head
number g of the group. Without grouping a group has one head.

Of packed sequences (`varlen_attention`) each is a matrix of its own, as heads are; where it starts and how long it is,
data tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hidet.compute.definition import Compute
from hidet.dims import Dim, prove_equal
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.schedule.task import Task, TaskTensor


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A tensor seen from the grid of (leading axes, rows, inner axis): strides in elements, 0 where it is broadcast.

    leading: one an axis of the grid. group: between heads of a group. row: between queries (or keys). inner: along the
    last axis. dtype: what is stored; differs from the tensor's where a converted copy takes its place.
    """

    tensor: TaskTensor
    leading: tuple[Dim, ...]
    group: Dim
    row: Dim
    inner: Dim
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Sequences one behind the other: the first of the leading axes counts them, and no stride is along it.

    ends_q, ends_k: positions where they start, and at last where the last one ends, along that axis: i32 that may say
    anything. total_q, total_k: rows of the whole tensors.
    """

    ends_q: Placement
    ends_k: Placement
    total_q: Dim
    total_k: Dim


@dataclass(frozen=True, slots=True, eq=False)
class AttentionProblem:
    """softmax(scale * q @ k.T + mask) @ v for every index of the leading axes.

    leading: extents of the leading axes; under grouped queries the last one counts key heads.
    group: query heads a key head. queries, keys: rows of q and of k; of packed sequences the most that one has.
    depth, width: extents of a row of k and of v. scale: factor on the scores.
    window: how many keys before and after its own place a row sees, None for all. Row i has its place at key i; of
    packed sequences the last row at the last key. compute: the type everything is computed in.
    logsumexp: where log(sum(exp(scores))) of each row goes, if anyone wants it; its `row` is its last axis.
    packed: where sequences lie; None where all have the same number of rows and keys.
    """

    leading: tuple[Dim, ...]
    group: Dim
    queries: Dim
    keys: Dim
    depth: int
    width: int
    scale: float
    window: tuple[int | None, int | None]
    compute: DType
    q: Placement
    k: Placement
    v: Placement
    mask: Placement | None
    out: Placement
    logsumexp: Placement | None
    packed: Packed | None = None

    @property
    def rows(self) -> Dim:
        """Rows that share keys."""
        return self.group * self.queries

    @property
    def is_causal(self) -> bool:
        """Whether later rows see later keys, and more of them unless their window has a start."""
        return self.window[1] is not None

    @property
    def sees_all(self) -> bool:
        """Whether all rows see all keys but those that a mask hides."""
        return self.window == (None, None) and self.packed is None

    def tensors(self) -> dict[str, Placement]:
        """Every tensor that the task has, by name, inputs first."""
        ends = {} if self.packed is None else {"ends_q": self.packed.ends_q, "ends_k": self.packed.ends_k}
        results = {"out": self.out, "logsumexp": self.logsumexp}
        found = {"q": self.q, "k": self.k, "v": self.v, "mask": self.mask, **ends, **results}
        return {name: place for name, place in found.items() if place is not None}


def attention_problem(task: Task) -> AttentionProblem:
    """The problem that `task`, an attention with nothing fused into it, poses. ScheduleError says what is unusual."""
    assert task.anchor is not None
    if not task.is_plain:
        raise ScheduleError("other operators are fused into the attention")
    q, k, v, *others = task.anchor_inputs
    assert q is not None and k is not None and v is not None
    outputs = {tensor.value: tensor for tensor in task.outputs}
    out, *statistics = (outputs.get(value) for value in task.anchor.outputs)
    if out is None:
        raise ScheduleError("only the log-sum-exp of an attention is wanted")
    depth, width = k.type.shape[-1], v.type.shape[-1]
    if not isinstance(depth, int) or not isinstance(width, int):
        raise ScheduleError(f"rows of k and v have the extents {depth} and {width}, expected constants")
    given = _Tensors(q, k, v, tuple(others), out, statistics[0] if statistics else None)
    return (_packed_problem if "window" in task.anchor.attrs else _dense_problem)(task, given, depth, width)


@dataclass(frozen=True, slots=True, eq=False)
class _Tensors:
    """Those of a task. others: what it reads besides, None for what is not given."""

    q: TaskTensor
    k: TaskTensor
    v: TaskTensor
    others: tuple[TaskTensor | None, ...]
    out: TaskTensor
    logsumexp: TaskTensor | None


def _dense_problem(task: Task, given: _Tensors, depth: int, width: int) -> AttentionProblem:
    """That of `attention`, whose heads all have the same number of rows."""
    assert task.anchor is not None
    attrs, q, k, v, out, logsumexp = task.anchor.attrs, given.q, given.k, given.v, given.out, given.logsumexp
    mask = given.others[0] if given.others else None
    grouped = attrs["enable_gqa"]
    heads = out.type.shape[:-2]
    group = q.type.shape[-3] // k.type.shape[-3] if grouped else 1
    leading = (*heads[:-1], k.type.shape[-3]) if grouped else heads

    def place(tensor: TaskTensor, has_query_heads: bool, trailing: int = 2) -> Placement:
        return _placement(tensor, heads, group if has_query_heads else 1, trailing)

    return AttentionProblem(
        leading=leading,
        group=group,
        queries=q.type.shape[-2],
        keys=k.type.shape[-2],
        depth=depth,
        width=width,
        scale=_scale(attrs, depth),
        window=(None, 0 if attrs["is_causal"] else None),
        compute=_scores_dtype(task),
        q=place(q, True),
        k=_placement(k, leading, 1, 2),
        v=_placement(v, leading, 1, 2),
        mask=None if mask is None else place(mask, True),
        out=place(out, True),
        logsumexp=None if logsumexp is None else place(logsumexp, True, 1),
    )


def _packed_problem(task: Task, given: _Tensors, depth: int, width: int) -> AttentionProblem:
    """That of `varlen_attention`, whose sequences are counted by the first leading axis."""
    assert task.anchor is not None
    attrs, q, k, v, out, logsumexp = task.anchor.attrs, given.q, given.k, given.v, given.out, given.logsumexp
    ends_q, ends_k = given.others
    assert ends_q is not None and ends_k is not None
    group = q.type.shape[1] // k.type.shape[1]

    def place(tensor: TaskTensor, group: Dim, axes: tuple[int, int, int | None] = (1, 0, 2)) -> Placement:
        """axes: those of heads, of rows and of columns, if any."""
        strides = _broadcast_strides(tensor.type, (None,) * tensor.type.rank)
        head, row = strides[axes[0]], strides[axes[1]]
        between = 0 if group == 1 else head
        return Placement(
            tensor, (0, head * group), between, row, 0 if axes[2] is None else strides[axes[2]], tensor.type.dtype
        )

    def ends(tensor: TaskTensor) -> Placement:
        (step,) = tensor.type.element_strides
        return Placement(tensor, (step, 0), 0, step, 0, tensor.type.dtype)

    left, right = (None if side < 0 else side for side in attrs["window"])
    return AttentionProblem(
        leading=(ends_q.type.shape[0] - 1, k.type.shape[1]),
        group=group,
        queries=attrs["max_q"],
        keys=attrs["max_k"],
        depth=depth,
        width=width,
        scale=_scale(attrs, depth),
        window=(left, 0 if attrs["is_causal"] else right),
        compute=_scores_dtype(task),
        q=place(q, group),
        k=place(k, 1),
        v=place(v, 1),
        mask=None,
        out=place(out, group),
        logsumexp=None if logsumexp is None else place(logsumexp, group, (0, 1, None)),
        packed=Packed(ends(ends_q), ends(ends_k), q.type.shape[0], k.type.shape[0]),
    )


def _scale(attrs: Mapping[str, Any], depth: int) -> float:
    return 1 / math.sqrt(max(depth, 1)) if attrs["scale"] is None else float(attrs["scale"])


def _scores_dtype(task: Task) -> DType:
    """The type of the scores, a stage of the definition."""
    stages = (stage for stage in task.definition.stages if isinstance(stage, Compute))
    return next(stage.result.dtype for stage in stages if stage.result.name == "scores")


def _placement(tensor: TaskTensor, heads: tuple[Dim, ...], group: Dim, trailing: int) -> Placement:
    """Where `tensor` lies, its axes lined up from the last with (heads, then `trailing` axes)."""
    strides = _broadcast_strides(tensor.type, (*heads, *[None] * trailing))
    outer, inner = list(strides[: len(heads)]), strides[len(heads) :]
    between = 0 if group == 1 or not outer else outer[-1]
    if outer and group != 1:
        outer[-1] = outer[-1] * group
    return Placement(tensor, tuple(outer), between, inner[0], inner[1] if trailing == 2 else 0, tensor.type.dtype)


def _broadcast_strides(type_: TensorType, shape: tuple[Dim | None, ...]) -> list[Dim]:
    """Strides along the axes of `shape` (None: whatever the tensor has), 0 for missing axes and those of extent one."""
    missing = len(shape) - type_.rank
    strides: list[Dim] = [0] * missing
    for extent, stride in zip(type_.shape, type_.element_strides, strict=True):
        strides.append(0 if prove_equal(extent, 1) is True else stride)
    return strides


def gap_of_rows(position: Callable[[Expr], Expr], gap: Expr, count: Expr, total: Expr, most: Expr) -> tuple[Expr, Expr]:
    """The first row before packed sequence number `gap` that is in no sequence, and that behind the last such row; of
    `gap` == `count` those behind all sequences. Less than the first one where there are none.

    position: where a sequence starts, and behind the last one ends, from 0 to `total`, the number of rows. most: rows
    of a sequence that are in it.
    """
    before, here = position(build.maximum(gap - 1, 0)), position(gap)
    end = before + build.minimum(build.maximum(here - before, 0), most)
    start = build.select(build.equal(gap, 0), build.index(0), end)
    return start, build.select(build.equal(gap, count), total, here)


_LOG2_E = 1 / math.log(2)
_LARGEST = {32: 3.4028234663852886e38, 64: 1.7976931348623157e308}
"""Numbers of f32 and f64, by their bits."""


def exponent_of_two(exponent: Expr) -> Expr:
    """An exponent of e in f32 or f64, scalar or vector, as one of two.

    A finite one stays finite. Masks hide keys by the least number there is, whose product would be minus infinity: a
    row that sees such keys alone weighs them equally, where one without any key is 0.
    """

    def like(number: float) -> Expr:
        return build.broadcast(build.const(number, exponent.dtype), exponent.lanes)

    least = like(-0.999 * _LARGEST[exponent.dtype.bits] / _LOG2_E)
    low = build.select(build.equal(exponent, like(-math.inf)), exponent, least)
    return build.select(exponent < least, low, exponent) * like(_LOG2_E)

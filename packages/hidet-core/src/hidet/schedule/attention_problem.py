"""What an attention task computes, with everything a kernel needs to know about its tensors.

Queries of the heads that share one key head (grouped queries) are rows of one matrix: row g * s + i is query i of head
number g of the group. Without grouping a group has one head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
class AttentionProblem:
    """softmax(scale * q @ k.T + mask) @ v for every index of the leading axes.

    leading: extents of the leading axes; under grouped queries the last one counts key heads.
    group: query heads a key head. queries, keys: rows of q and of k. depth, width: extents of a row of k and of v.
    scale: factor on the scores. compute: the type everything is computed in.
    logsumexp: where log(sum(exp(scores))) of each row goes, if anyone wants it; its `row` is its last axis.
    """

    leading: tuple[Dim, ...]
    group: Dim
    queries: Dim
    keys: Dim
    depth: int
    width: int
    scale: float
    is_causal: bool
    compute: DType
    q: Placement
    k: Placement
    v: Placement
    mask: Placement | None
    out: Placement
    logsumexp: Placement | None

    @property
    def rows(self) -> Dim:
        """Rows that share keys."""
        return self.group * self.queries

    def tensors(self) -> dict[str, Placement]:
        """Every tensor that the task has, by name, inputs first."""
        found = {"q": self.q, "k": self.k, "v": self.v, "mask": self.mask, "out": self.out, "logsumexp": self.logsumexp}
        return {name: place for name, place in found.items() if place is not None}


def attention_problem(task: Task) -> AttentionProblem:
    """The problem that `task`, an attention with nothing fused into it, poses. ScheduleError says what is unusual."""
    assert task.anchor is not None
    if not task.is_plain:
        raise ScheduleError("other operators are fused into the attention")
    attrs = task.anchor.attrs
    given = [*task.anchor_inputs, None][:4]
    q, k, v, mask = given
    assert q is not None and k is not None and v is not None
    outputs = {tensor.value: tensor for tensor in task.outputs}
    out, *others = (outputs.get(value) for value in task.anchor.outputs)
    logsumexp = others[0] if others else None
    if out is None:
        raise ScheduleError("only the log-sum-exp of an attention is wanted")
    depth, width = k.type.shape[-1], v.type.shape[-1]
    if not isinstance(depth, int) or not isinstance(width, int):
        raise ScheduleError(f"rows of k and v have the extents {depth} and {width}, expected constants")
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
        scale=1 / math.sqrt(max(depth, 1)) if attrs["scale"] is None else float(attrs["scale"]),
        is_causal=attrs["is_causal"],
        compute=_scores_dtype(task),
        q=place(q, True),
        k=_placement(k, leading, 1, 2),
        v=_placement(v, leading, 1, 2),
        mask=None if mask is None else place(mask, True),
        out=place(out, True),
        logsumexp=None if logsumexp is None else place(logsumexp, True, 1),
    )


def _scores_dtype(task: Task) -> DType:
    """The type of the scores, the first stage of the definition."""
    stage = task.definition.stages[0]
    assert isinstance(stage, Compute)
    return stage.result.dtype


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

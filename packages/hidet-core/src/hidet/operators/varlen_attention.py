"""Attention of sequences that lie one behind the other in one tensor, without padding (packed, ragged).

Dao et al., "FlashAttention", 2022, and its functions for variable lengths. Positions where sequences start and end are
data. A row sees neighbouring keys of its own sequence, because causal attention and windows hide nothing between keys;
stages before the scores say which. There is room for as many scores a row as the longest sequence has keys, and only
those of keys that the row sees are computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hidet import dtypes
from hidet.compute.definition import SUM, Compute, Definition, Operand, compute, reduce
from hidet.dims import Dim, minimum
from hidet.errors import DTypeError, OptionError, ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Expr
from hidet.operators.attention import Rows, attention_scale, heads_per_group, weighted_values
from hidet.operators.rules import (
    arithmetic_dtype,
    clamped_position,
    require_dtype,
    require_rank,
    require_same_dtype,
    same_extent,
)

Window = tuple[int | None, int | None]
"""How many keys before and after its own place a row sees; None for all."""


def _sight(name: str, window: Sequence[Any], is_causal: bool) -> Window:
    """The window that attributes ask for, in which -1 stands for all. OptionError for one that is no pair of these."""
    if len(window) != 2 or not all(map(_is_side, window)):
        raise OptionError(
            f"operator {name}: window is {tuple(window)}, expected numbers of keys before and after a row's place, "
            "-1 for all"
        )
    left, right = (None if side == -1 else side for side in window)
    return left, (0 if is_causal else right)


def _is_side(side: object) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and -1 <= side <= int(dtypes.i32.max)


@dataclass(frozen=True, slots=True, eq=False)
class _Sequences:
    """Where sequences lie. ends_q, ends_k: positions where they start, and at last where the last one ends. total_q,
    total_k: rows of the tensors. longest_q, longest_k: what the sequences are cut to."""

    ends_q: Operand
    ends_k: Operand
    total_q: Dim
    total_k: Dim
    longest_q: Dim
    longest_k: Dim

    @property
    def count(self) -> Dim:
        """How many sequences there are."""
        return self.ends_q.shape[0] - 1

    def numbers(self) -> Compute:
        """The stage that says which sequence a row is in: as many as have ended before it."""

        def ended(row: Expr) -> Expr:
            return reduce(SUM, (self.count,), lambda n: build.cast(self._end(self.ends_q, n) <= row, build.INDEX))

        return compute("sequence", (self.total_q,), ended)

    def span(self, ends: Operand, total: Dim, number: Expr) -> tuple[Expr, Expr]:
        """The first row of a sequence and how many it has: inside of the tensor, whatever the data say. Behind the last
        sequence those of the last one."""
        number = build.maximum(build.minimum(number, build.index(self.count) - 1), 0)
        start = clamped_position(ends[(number,)], build.index(total))
        stop = clamped_position(ends[(build.minimum(number + 1, build.index(self.count)),)], build.index(total))
        return start, build.maximum(stop - start, 0)

    def seen(self, row: Expr, number: Expr, sight: Window) -> tuple[Expr, Expr]:
        """The first key that a row of sequence `number` sees, and how many; none of rows that are in no sequence."""
        start, rows = self.span(self.ends_q, self.total_q, number)
        first, keys = self.span(self.ends_k, self.total_k, number)
        keys = build.minimum(keys, build.index(self.longest_k))
        rows = build.minimum(rows, build.index(self.longest_q))
        own = row - start
        # The last row is opposite to the last key.
        place, (left, right) = own + (keys - rows), sight
        low = build.index(0) if left is None else build.maximum(place - left, 0)
        high = keys if right is None else build.minimum(keys, place + (right + 1))
        is_inside = build.logical_and(own >= 0, own < rows)
        return first + low, build.select(is_inside, build.maximum(high - low, 0), build.index(0))

    @staticmethod
    def _end(ends: Operand, number: Expr) -> Expr:
        return build.cast(ends[(number + 1,)], build.INDEX)


def _checked_sequences(
    name: str, q: Operand, k: Operand, v: Operand, ends: tuple[Operand, Operand], longest: tuple[Dim, Dim]
) -> _Sequences:
    """Inputs that fit each other. ShapeError or DTypeError for others."""
    for operand in (q, k, v):
        require_rank(name, operand, at_least=3, at_most=3)
        require_dtype(name, operand, "float")
    require_same_dtype(name, (q, k, v))
    for operand in ends:
        require_rank(name, operand, at_least=1, at_most=1)
        if operand.dtype is not dtypes.i32:
            raise DTypeError(
                f"operator {name} takes i32 for {operand.name}, got {operand.dtype}",
                hint="convert the input with the cast operator first",
            )
        if operand.shape[0] == 0:
            raise ShapeError(f"operator {name}: {operand.name} is empty, expected where sequences start, and the end")
    same_extent(ends[0].shape[0], ends[1].shape[0], f"operator {name}: positions of queries against keys")
    same_extent(q.shape[2], k.shape[2], f"operator {name}: last axis of q against k")
    same_extent(k.shape[0], v.shape[0], f"operator {name}: keys against values")
    same_extent(k.shape[1], v.shape[1], f"operator {name}: key heads against value heads")
    for what, most in zip(("max_q", "max_k"), longest, strict=True):
        if isinstance(most, int) and most < 0:
            raise ShapeError(f"operator {name}: {what} is {most}, expected the length of the longest sequence")
    return _Sequences(*ends, q.shape[0], k.shape[0], longest[0], minimum(longest[1], k.shape[0]))


def _varlen_attention(
    name: str,
    with_logsumexp: bool,
    q: Operand,
    k: Operand,
    v: Operand,
    cu_seq_q: Operand,
    cu_seq_k: Operand,
    *,
    max_q: Dim,
    max_k: Dim,
    scale: float | None,
    is_causal: bool,
    window: Sequence[int],
) -> Definition:
    sequences = _checked_sequences(name, q, k, v, (cu_seq_q, cu_seq_k), (max_q, max_k))
    sight, wide = _sight(name, window, is_causal), arithmetic_dtype(q.dtype)
    total, heads, width = q.shape
    group = build.index(heads_per_group(heads, k.shape[1], name))
    factor = attention_scale(scale, width, wide)
    number = sequences.numbers()
    first, count = (
        compute(stage, (total,), lambda row, part=part: sequences.seen(row, number.result[(row,)], sight)[part])
        for part, stage in enumerate(("first", "count"))
    )

    def score(head: Expr, row: Expr, j: Expr) -> Expr:
        is_seen, key = j < count.result[(row,)], first.result[(row,)] + j
        # Of keys that are not seen nothing is read.
        product = reduce(
            SUM,
            (build.select(is_seen, build.index(width), build.index(0)),),
            lambda d: build.cast(q[row, head, d], wide) * build.cast(k[key, head // group, d], wide),
        )
        return build.select(is_seen, product * factor, build.const(-math.inf, wide))

    rows = Rows(
        compute("scores", (heads, total, sequences.longest_k), score),
        lambda row: build.minimum(count.result[(row[1],)], build.index(sequences.longest_k)),
        lambda row, j, e: build.cast(v[first.result[(row[1],)] + j, row[0] // group, e], wide),
        lambda place: (place[1], place[0]),
    )
    stages, outputs = weighted_values(name, rows, (total, heads, v.shape[2]), q.dtype, with_logsumexp=with_logsumexp)
    return Definition(
        (q, k, v, cu_seq_q, cu_seq_k),
        (number, first, count, *stages),
        outputs,
        equal=(
            (cu_seq_q.shape[0], cu_seq_k.shape[0]),
            (width, k.shape[2]),
            *zip(k.shape[:2], v.shape[:2], strict=True),
            (heads, heads_per_group(heads, k.shape[1], name) * k.shape[1]),
        ),
        at_most=((0, max_q), (0, max_k), (1, cu_seq_q.shape[0])),
    )


_INPUTS = ("q", "k", "v", "cu_seq_q", "cu_seq_k")
_ATTRIBUTES = (
    Attribute("max_q", doc="the most rows that a sequence has; further ones are in no sequence"),
    Attribute("max_k", doc="the most keys that a sequence has; further ones are not read"),
    Attribute("scale", None, "factor on q @ k.T; None is 1 / sqrt(d)"),
    Attribute("is_causal", False, "a row sees no key behind its place; the same as a window of 0 keys to the right"),
    Attribute("window", (-1, -1), "how many keys before and after its place a row sees; -1 is all"),
)
_DOC = (
    "Attention of n sequences packed in q[t, h, d], k[s, g, d] and v[s, g, e] -> [t, h, e]. Rows of sequence i are "
    "from cu_seq_q[i] to cu_seq_q[i + 1], keys likewise by cu_seq_k; both i32[n + 1]. h is a "
    "multiple of g: neighbouring query heads share a key head. The last row of a sequence has its place at the last "
    "key, the row before it at the key before. A row that sees no key, or is in no sequence, gives 0. Positions "
    "outside of the tensors are cut off; of positions that fall, rows hold anything. "
    "torch.nn.attention.varlen.varlen_attn. One floating-point type. No gradient."
)

_LOGARITHMS = " Second result: log(sum(e ** scores)) of each row [h, t], in the arithmetic type; -inf without keys."

SPECS: tuple[OperatorSpec, ...] = tuple(
    OperatorSpec(
        name=name,
        inputs=_INPUTS,
        attributes=_ATTRIBUTES,
        kind="anchor",
        define=partial(_varlen_attention, name, with_logsumexp),
        reads_parts=True,
        family="attention",
        doc=_DOC + (_LOGARITHMS if with_logsumexp else ""),
    )
    for name, with_logsumexp in (("varlen_attention", False), ("varlen_attention_with_logsumexp", True))
)

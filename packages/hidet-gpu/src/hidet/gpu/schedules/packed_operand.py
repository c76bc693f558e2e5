"""Operands of products that are computed from packed codes: weights of integers or floats of up to 8 bits, with scales.

An element is (code - zero) * scale. The codes of a row lie in bytes, one or two in each, the first one in the low bits;
neighbours along k share a scale and a zero. ONNX DequantizeLinear and MatMulNBits mean this, and so do graphs that
shift and mask.

What a task's prologue reads is an expression over the axes n and k. It is taken apart at its products and differences
of floats. The rest is evaluated for every k and for every byte, so that whatever way to unpack a graph has is found if
it is right, and no other one is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hidet import dims, dtypes
from hidet.compute.array_expr import with_variables
from hidet.compute.definition import Compute, Operand
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.lanes import replaced
from hidet.gpu.schedules.product import FLOATS_OF_8_BITS
from hidet.graph.graph import Node, Value
from hidet.graph.types import TensorType
from hidet.ir import build
from hidet.ir.expr import Access, Binary, Cast, Const, Expr, Size, Var
from hidet.ir.visit import replace_accesses, walk
from hidet.schedule.task import Task, TaskTensor

Array = np.ndarray[Any, Any]

LEAST_GROUP = 16
"""Neighbours along k that share a scale and a zero at least, aligned to multiples of their number."""
_MOST_GROUP = 4096
_MOST_NODES = 32
_BYTES = (dtypes.u8, dtypes.i8, *FLOATS_OF_8_BITS)
_LEAST_SIGNED = 16
"""Bits of integers in which codes and zeros are subtracted without leaving their range."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedOperand:
    """The right operand [n, k] of a product, of elements of type `dtype`: (code - zero) * scale.

    tensor: stands for the operand as a matrix in memory, which nothing writes; `hidet.gpu.schedules.operands` finds the
    product with it. codes: the bytes. code: what they hold, u4, i4, u8, i8, f8e4m3 or f8e5m2. row_bytes: from one row
    of n to the next. n_axis, k_axis: the variables of `scale` and `zero`, numbers that read tensors of the task; None
    for 1 and 0. group: neighbours along k that share them, a power of two; they may share them with more.
    zero_bits: so many bits hold the magnitude of every zero, which are integers; None for other zeros.
    """

    tensor: TaskTensor
    codes: TaskTensor
    code: DType
    row_bytes: int
    k: int
    n_axis: Var
    k_axis: Var
    group: int
    scale: Expr | None
    zero: Expr | None
    zero_bits: int | None
    is_transposed: bool

    @property
    def dtype(self) -> DType:
        """The type of the operand's elements."""
        return self.tensor.type.dtype

    @property
    def per_byte(self) -> int:
        """Codes in a byte."""
        return 8 // self.code.bits

    @property
    def values(self) -> tuple[Expr, ...]:
        """Scale and zero, those that there are."""
        return tuple(value for value in (self.scale, self.zero) if value is not None)

    @property
    def is_scaled_exactly(self) -> bool:
        """Whether scales are numbers of the operand's own type, so that it rounds an element once."""
        return self.scale is None or _narrowed(self.scale).dtype == self.dtype


def reads_codes(value: Value, producer: Mapping[Value, Node]) -> bool:
    """Whether a value is computed, element by element, from something that may be codes. Says nothing about how."""
    stack, seen = [value], 0
    while stack and seen < _MOST_NODES:
        node = producer.get(stack.pop())
        if node is None or node.definition is None or not node.definition.is_injective:
            continue
        seen += 1
        if any(source.tensor.dtype in _BYTES for source in node.values):
            return True
        stack += node.values
    return False


def find_packed(task: Task, number: int) -> PackedOperand | None:
    """The operand that the prologue of the anchor's input `number` computes, of a matrix product x w^T or x w; None
    where it is computed in another way, or has another rank than 2 or a symbolic k."""
    assert task.anchor is not None
    prologue = task.prologues[number]
    if prologue is None or len(prologue.axes) != 2:
        return None
    is_rows = task.op_name == "linear" or bool(task.anchor.attrs["trans_b"])
    n_axis, k_axis = prologue.axes if is_rows else reversed(prologue.axes)
    n, k = prologue.result.shape if is_rows else prologue.result.shape[::-1]
    if not isinstance(k, int) or k == 0 or any(isinstance(node, Size) for node in walk(prologue.value)):
        return None
    value = task.anchor.inputs[number]
    assert value is not None
    type_ = TensorType(prologue.value.dtype, prologue.result.shape, (k, 1) if is_rows else (1, k))
    tensors = {tensor.operand: tensor for tensor in task.inputs}
    return _Reading(prologue, tensors, n_axis, k_axis, n, k).operand(TaskTensor(value, type_, prologue.result), is_rows)


@dataclass(frozen=True, slots=True)
class _Parts:
    """(code - zero) * scale, with the zero that codes themselves have beside the one that is read."""

    code: DType
    row_bytes: int
    constant: float
    zero: Expr | None = None
    scale: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """A prologue that is being read."""

    prologue: Compute
    tensors: Mapping[Operand, TaskTensor]
    n_axis: Var
    k_axis: Var
    n: Dim
    k: int

    def operand(self, tensor: TaskTensor, is_rows: bool) -> PackedOperand | None:
        """What the prologue computes. is_rows: whether its rows are n."""
        value = self.prologue.value
        coded = {a.operand for a in accesses_in(value) if not self._is_shared(a, LEAST_GROUP)}
        if len(coded) != 1:
            return None
        (source,) = coded
        parts = self._split(value, source)
        if parts is None or not self.tensors[source].type.is_contiguous:
            return None
        shared = [part for part in (parts.zero, parts.scale) if part is not None]
        zero, bits = parts.zero, 0 if parts.zero is None else _integer_bits(_narrowed(parts.zero))
        if parts.constant:
            own = int(abs(parts.constant)).bit_length() if parts.constant == int(parts.constant) else None
            bits = None if bits is None or own is None else max(bits, own) + (zero is not None)
            constant = build.const(parts.constant, dtypes.f32)
            zero = constant if zero is None else build.cast(zero, dtypes.f32) + constant
        return PackedOperand(
            tensor=tensor,
            codes=self.tensors[source],
            code=parts.code,
            row_bytes=parts.row_bytes,
            k=self.k,
            n_axis=self.n_axis,
            k_axis=self.k_axis,
            group=self._group(shared),
            scale=None if parts.scale is None else self._by_shifts(_narrowed(parts.scale)),
            zero=None if zero is None else self._by_shifts(_narrowed(zero)),
            zero_bits=bits,
            is_transposed=is_rows,
        )

    def _split(self, value: Expr, source: Operand) -> _Parts | None:
        """Take an expression apart. source: the tensor of the codes."""
        if all(access.operand is source for access in accesses_in(value)):
            parts = self._codes(value, source)
            if parts is not None:
                return parts
        if isinstance(value, Cast):
            is_kept = value.dtype.is_float or (value.a.dtype.is_int and _is_wide_integer(value.dtype))
            return self._split(value.a, source) if is_kept else None
        if not isinstance(value, Binary):
            return None
        for mine, other in ((value.a, value.b), (value.b, value.a)):
            if not self._is_shared(other, LEAST_GROUP):
                continue
            parts = self._split(mine, source)
            if parts is None:
                return None
            if value.op == "mul" and value.dtype.is_float:
                return _Parts(parts.code, parts.row_bytes, parts.constant, parts.zero, _times(parts.scale, other))
            if value.op == "sub" and mine is value.a and parts.zero is None and parts.scale is None:
                is_exact = value.dtype.is_float or _is_wide_integer(value.dtype)
                return _Parts(parts.code, parts.row_bytes, parts.constant, other) if is_exact else None
            return None
        return None

    def _codes(self, value: Expr, source: Operand) -> _Parts | None:
        """Codes that bytes of `source` hold, less a constant."""
        rows, dtype = self._row_bytes(value, source), source.dtype
        if rows is None or dtype not in _BYTES:
            return None
        row_bytes, per_byte = rows
        if dtype in FLOATS_OF_8_BITS:
            return _Parts(dtype, row_bytes, 0.0) if per_byte == 1 and isinstance(_narrowed(value), Access) else None
        for part in self._along_k(_without_accesses(value)):
            places = self._values(part)
            if not np.array_equal(places, places[np.arange(self.k) % per_byte]):
                return None
        byte = Var("byte", dtype)
        code = replace_accesses(value, lambda access: byte)
        numbers = np.arange(256, dtype=np.uint8)
        given = {byte: numbers.view(dtype.numpy())[None, :], self.k_axis: np.arange(per_byte, dtype=np.int64)[:, None]}
        found = np.broadcast_to(with_variables([code], given)[0], (per_byte, 256)).astype(np.float64)
        for kind in (dtypes.u4, dtypes.i4) if per_byte == 2 else (dtypes.u8, dtypes.i8):
            distance = _codes_of(numbers, kind) - found
            if np.all(distance == distance[0, 0]):
                return _Parts(kind, row_bytes, float(distance[0, 0]))
        return None

    def _row_bytes(self, value: Expr, source: Operand) -> tuple[int, int] | None:
        """The bytes of a row, and how many codes are in each; None where the codes of a row do not follow each
        other from its start, or rows do not follow each other."""
        strides, found = self.tensors[source].type.element_strides, set[tuple[int, int]]()
        if 0 in source.shape:
            return None
        for access in accesses_in(value):
            row_bytes, places = 0, np.zeros(self.k, np.int64)
            for index, stride in zip(access.indices, strides, strict=True):
                if not isinstance(stride, int):
                    return None
                if index is self.n_axis:
                    row_bytes += stride
                elif self.n_axis in walk(index) or any(isinstance(node, Access) for node in walk(index)):
                    return None
                else:
                    places = places + self._values(index) * stride
            for per_byte in (1, 2):
                if np.array_equal(places, np.arange(self.k) // per_byte):
                    found.add((row_bytes, per_byte))
                    break
            else:
                return None
        if len(found) != 1:
            return None
        ((row_bytes, per_byte),) = found
        if row_bytes == 0:
            # The one row there is: no index says which.
            whole = dims.product(source.shape)
            row_bytes = whole if self.n == 1 and isinstance(whole, int) else 0
        return (row_bytes, per_byte) if row_bytes * per_byte >= self.k else None

    def _along_k(self, value: Expr) -> Iterator[Expr]:
        """The largest parts of an expression that k alone decides."""
        nodes = list(walk(value))
        if self.k_axis not in nodes:
            return
        others = (n for n in nodes if isinstance(n, Access) or (isinstance(n, Var) and n is not self.k_axis))
        if next(others, None) is None:
            yield value
            return
        for child in value.children():
            if isinstance(child, Expr):
                yield from self._along_k(child)

    def _values(self, part: Expr) -> Array:
        """What k alone decides, for every k."""
        (values,) = with_variables([part], {self.k_axis: np.arange(self.k, dtype=np.int64)})
        return np.broadcast_to(values, (self.k,))

    def _is_shared(self, value: Expr, group: int) -> bool:
        """Whether each `group` neighbours along k have the same value."""
        first = np.arange(self.k) // group * group
        return all(np.array_equal(v, v[first]) for v in map(self._values, self._along_k(value)))

    def _group(self, values: Sequence[Expr]) -> int:
        """The most neighbours that share all of some values."""
        group = LEAST_GROUP
        while group < _MOST_GROUP and all(self._is_shared(value, 2 * group) for value in values):
            group *= 2
        return group

    def _by_shifts(self, value: Expr) -> Expr:
        """An expression whose parts along k are k >> a or (k >> a & 1) << b, as far as they are the same."""
        return replaced(value, {part: self._shifted(part) for part in self._along_k(value)})

    def _shifted(self, part: Expr) -> Expr:
        values, places = self._values(part).astype(np.int64), np.arange(self.k)
        for distance in range(self.k.bit_length() + 1):
            moved = places >> distance
            most = int(values.max())
            if np.array_equal(values, moved):
                return build.cast(build.binary("shr", self.k_axis, distance), part.dtype)
            if most & (most - 1) == 0 and np.array_equal(values, (moved & 1) * most):
                bit = build.binary("and", build.binary("shr", self.k_axis, distance), 1)
                return build.cast(build.binary("shl", bit, most.bit_length() - 1) if most > 1 else bit, part.dtype)
        return part


def accesses_in(value: Expr) -> list[Access]:
    """The reads of tensors in an expression."""
    return [node for node in walk(value) if isinstance(node, Access)]


def _without_accesses(value: Expr) -> Expr:
    return replace_accesses(value, lambda access: Var("byte", access.dtype))


def _codes_of(numbers: Array, kind: DType) -> Array:
    """The codes in bytes, [codes in a byte, bytes], as f64."""
    shifts = np.arange(8 // kind.bits, dtype=np.uint8)[:, None] * np.uint8(kind.bits)
    codes = ((numbers[None, :] >> shifts) & np.uint8((1 << kind.bits) - 1)).astype(np.float64)
    return np.asarray(codes - (codes > kind.max) * (1 << kind.bits))


def _times(scale: Expr | None, other: Expr) -> Expr:
    return other if scale is None else build.cast(scale, dtypes.f32) * build.cast(other, dtypes.f32)


def _narrowed(value: Expr) -> Expr:
    """What an expression converts without loss: the number before it became a wider float, or a float at all."""
    while isinstance(value, Cast) and value.dtype.is_float:
        before = value.a.dtype
        if before.is_float and (before.bits > value.dtype.bits or {before, value.dtype} == {*dtypes.FLOATS_OF_16_BITS}):
            break
        value = value.a
    return value


def _is_wide_integer(dtype: DType) -> bool:
    return dtype.is_int and dtype.is_signed and dtype.bits >= _LEAST_SIGNED


def _integer_bits(value: Expr) -> int | None:
    """So many bits hold the magnitude of an integer; None where it is none, or may have more than 16."""
    while (
        isinstance(value, Cast)
        and value.dtype.is_int
        and value.a.dtype.is_int
        and value.a.dtype.bits < value.dtype.bits
    ):
        value = value.a
    if isinstance(value, Const) and not isinstance(value.value, complex) and value.value == int(value.value):
        return int(abs(value.value)).bit_length()
    return value.dtype.bits if value.dtype.is_int and value.dtype.bits <= 16 else None

"""Sort keys, what sorting moves around: integers whose order is the order of the elements, with their positions.

Elements of up to 32 bits become one u64 each: the upper half orders them and the lower half is the position, which
makes every sort key different and any sort stable. Wider elements take a u64 and, beside it, an i64 position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var


@dataclass(frozen=True, slots=True)
class SortKeyFormat:
    """How elements of one type are turned into sort keys.

    parts: dtypes of the arrays that hold the sort keys; the first one decides the order.
    """

    element: DType
    descending: bool

    @property
    def is_packed(self) -> bool:
        """Whether key and position share one integer."""
        return self.element.bits <= 32

    @property
    def parts(self) -> tuple[DType, ...]:
        """Types of the arrays that hold sort keys."""
        return (dtypes.u64,) if self.is_packed else (dtypes.u64, dtypes.i64)

    @property
    def order_bits(self) -> tuple[int, int]:
        """Bits of the first part, from the first to before the second, that order elements.

        Those above are zero. Those below, from the position on, are zero or say again what the others say: narrow
        floats have as many bits less than f32 at the lower end of their key.
        """
        start = 32 if self.is_packed else 0
        if self.element.is_float:
            unused = 23 - max(self.element.mantissa_bits, 1) if self.is_packed else 0
            return start + unused, 64
        return start, start + self.element.bits

    def sort_key(self, value: Expr, position: Expr) -> list[Expr]:
        """The sort key of an element, one expression a part."""
        key = ordering_key(value)
        if self.descending:
            bits = key.dtype.bits if self.element.is_float else self.element.bits
            key = build.binary("xor", key, build.const((1 << bits) - 1, key.dtype))
        if not self.is_packed:
            return [key, position]
        high = build.binary("shl", build.cast(key, dtypes.u64), build.const(32, dtypes.u64))
        return [build.binary("or", high, build.cast(position, dtypes.u64))]

    def position(self, parts: Sequence[Expr]) -> Expr:
        """The position in a sort key."""
        if not self.is_packed:
            return parts[1]
        return build.cast(build.binary("and", parts[0], build.const(2**32 - 1, dtypes.u64)), dtypes.i64)


def ordering_key(value: Expr) -> Expr:
    """An unsigned integer of 32 or 64 bits that orders values: both zeros alike, every NaN above infinity and alike."""
    dtype = value.dtype
    if not dtype.is_float:
        return _integer_key(value)
    wide = dtype if dtype.bits == 64 else dtypes.f32
    value = build.cast(value, wide)
    signed, unsigned = (dtypes.i64, dtypes.u64) if wide.bits == 64 else (dtypes.i32, dtypes.u32)
    bits = Bitcast(build.select(build.equal(value, 0.0), build.const(0.0, wide), value), signed)
    # Negative numbers have all bits turned round, others the sign bit alone.
    is_negative = build.binary("shr", bits, build.const(wide.bits - 1, signed))
    turned = build.binary("xor", bits, build.binary("or", is_negative, build.const(signed.min, signed)))
    return build.select(build.unary("isnan", value), build.const(unsigned.max, unsigned), Bitcast(turned, unsigned))


def _integer_key(value: Expr) -> Expr:
    """The distance from the smallest number, in as many bits as the type has."""
    signed, unsigned = (dtypes.i64, dtypes.u64) if value.dtype.bits == 64 else (dtypes.i32, dtypes.u32)
    if value.dtype.kind in ("uint", "bool"):
        return build.cast(value, unsigned)
    if value.dtype.bits < 32:
        return build.cast(build.cast(value, signed) - value.dtype.min, unsigned)
    moved = build.binary("xor", build.cast(value, signed), build.const(signed.min, signed))
    return Bitcast(moved, unsigned)


def copy_sort_key(k: IRBuilder, parts: Sequence[Var], target: Expr, source: Expr) -> None:
    """Copy a sort key from one place to another."""
    k.store_each(parts, target, [build.load(part, source) for part in parts])

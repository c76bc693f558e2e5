"""Codes of 4 and 8 bits as factors of matrix units: pairs of f16 or bf16, made in words.

A code put under the exponent of a float whose last bit counts 1 (1024 for f16, 128 for bf16) is that float plus the
code, so that one logical operation makes two floats, and one subtraction takes the float and the zero away, exactly.
(Kim et al., "Who Says Elephants Can't Run: Bringing Large Scale MoE Models into Cloud Scale Production", 2022, do
this for weights in products.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.dtypes import DType
from hidet.gpu.schedules.packed_operand import PackedOperand
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Const, Expr
from hidet.ir.types import VectorType

_WORD = dtypes.u32
_EXPONENTS = {dtypes.f16: (0x6400, 1024.0), dtypes.bf16: (0x4300, 128.0)}
"""Bits of the float whose last bit counts 1, and the float."""
_ZERO_BITS = {dtypes.f16: 9, dtypes.bf16: 5}
"""Magnitudes of zeros that are exact with that float, and with what makes signed codes unsigned."""


_AND_THEN_XOR = (0xF0 & 0xCC) ^ 0xAA
"""What `lop3` does with three words: it is told by what becomes of these bits."""


class Terms(NamedTuple):
    """What codes of a group are changed by.

    subtracted: from codes in the low bits of a pair; added_high: to a sixteenth of codes that count sixteen times as
    much. zero, scale: those that the pairs' type does not hold, in f32. factor: the scale as a pair. Words are
    pairs of one number; None for nothing.
    """

    subtracted: Expr | None
    added_high: Expr | None
    factor: Expr | None
    zero: Expr | None
    scale: Expr | None


@dataclass(frozen=True, slots=True)
class CodeReader:
    """Makes pairs of factors of words of codes.

    code: u4, i4, u8, i8, f8e4m3 or f8e5m2. to: type of the factors. is_short: whether scales are applied in that type,
    where they are exact, or to sums; else pairs become f32 in between. is_late: whether scales are left to the caller,
    who applies them to sums. subtracts: whether zeros are integers that are subtracted together with the exponents.
    masks: of the codes in bits 0 and 16 of a word, and of those in bits 4 and 20.
    """

    code: DType
    to: DType
    is_short: bool
    is_late: bool
    subtracts: bool
    masks: tuple[Expr, Expr]

    @staticmethod
    def of(operand: PackedOperand, summed: int, k: IRBuilder, nothing: Expr) -> CodeReader:
        """For the codes of an operand. summed: neighbours along k that the caller sums at a time. nothing: a word that
        is 0, which the assembler does not know: constants that it knows it makes anew for each pair."""
        code, to, bits = operand.code, operand.dtype, operand.zero_bits
        fits = to is dtypes.f16 or code.bits == 4
        subtracts = code.is_int and bits is not None and bits <= _ZERO_BITS[to if fits else dtypes.f16]
        is_exact = fits and (operand.zero is None or subtracts)
        is_late = is_exact and operand.scale is not None and operand.group >= summed
        low, high = (k.let("mask", build.binary("xor", nothing, _word(_doubled(mask)))) for mask in (0xF, 0xF0))
        return CodeReader(
            code, to, is_exact and (is_late or operand.is_scaled_exactly), is_late, subtracts, (low, high)
        )

    @property
    def between(self) -> DType:
        """The type of pairs before scales are applied."""
        return self.to if self.is_short and self.code.is_int else dtypes.f16

    @property
    def per_word(self) -> int:
        """Codes in a word."""
        return 32 // self.code.bits

    def terms(self, k: IRBuilder, scale: Expr | None, zero: Expr | None) -> Terms:
        """What codes with a scale and a zero are changed by. None stands for 1 and 0."""
        subtracted = added_high = None
        if self.code.is_int:
            exponent = _EXPONENTS[self.between][1]
            bias = float(1 << (self.code.bits - 1)) if self.code.is_signed else 0.0
            is_taken = zero is not None and self.subtracts
            taken = zero if is_taken else None
            subtracted = self._pair(k, taken, exponent + bias, 1)
            if self._has_high_codes:
                added_high = self._pair(k, taken, exponent / 16 + bias, -1, 16)
            if is_taken:
                zero = None
        if self.is_late:
            known = build.const(1.0, dtypes.f32) if scale is None else build.cast(scale, dtypes.f32)
            return Terms(subtracted, added_high, None, None, k.let("scale", known))
        if self.is_short:
            factor = None
            if scale is not None:
                factor = k.let("factor", Bitcast(build.broadcast(build.cast(scale, self.to), 2), _WORD))
            return Terms(subtracted, added_high, factor, None, None)
        wide = [None if value is None else build.cast(value, dtypes.f32) for value in (zero, scale)]
        zero, scale = (None if value is None else k.let("term", value) for value in wide)
        return Terms(subtracted, added_high, None, zero, scale)

    def pairs(self, k: IRBuilder, word: Expr, terms: Terms) -> list[Expr]:
        """The factors of a word of codes: pairs (0, 4), (1, 5), (2, 6), (3, 7) of eight, (0, 1), (2, 3) of four."""
        return [k.let("factors", self._scaled(k, pair, terms)) for pair in self._exact(k, word, terms)]

    def like_pairs(self, k: IRBuilder, words: list[Expr]) -> list[Expr]:
        """Pairs of neighbours, for the codes of a word, in the order in which `pairs` has theirs."""
        if self.code.bits == 8:
            return words
        first, second, third, fourth = words
        permuted = [(first, third, 0x5410), (first, third, 0x7632), (second, fourth, 0x5410), (second, fourth, 0x7632)]
        return [k.let("pair", intrinsic_call("cuda.byte_permute", a, b, _word(how))) for a, b, how in permuted]

    @property
    def _has_high_codes(self) -> bool:
        """Whether every second pair has its codes four bits higher: f16 has room for them, and nothing is shifted."""
        return self.code.bits == 4 and self.between is dtypes.f16

    def _exact(self, k: IRBuilder, word: Expr, terms: Terms) -> list[Expr]:
        """Codes less their zeros, as pairs of type `between`."""
        if not self.code.is_int:
            halves = [build.cast(word, dtypes.u16), build.cast(build.binary("shr", word, 16), dtypes.u16)]
            return [intrinsic_call(f"cuda.unpack_{self.code.short}", half) for half in halves]
        assert terms.subtracted is not None
        if self.code.bits == 8:
            if self.code.is_signed:
                word = k.let("codes", build.binary("xor", word, _word(0x80808080)))
            above = _word(_doubled(_EXPONENTS[self.between][0]))
            moved = [intrinsic_call("cuda.byte_permute", word, above, _word(how)) for how in (0x5150, 0x5352)]
            return [self._of_pairs("sub", pair, terms.subtracted) for pair in moved]
        if not self._has_high_codes:
            shifted = [word, *(build.binary("shr", word, 4 * n) for n in (1, 2, 3))]
            return [self._of_pairs("sub", self._under_exponent(part, 0), terms.subtracted) for part in shifted]
        assert terms.added_high is not None
        upper = k.let("upper", build.binary("shr", word, 8))
        found: list[Expr] = []
        for part in (word, upper):
            found.append(self._of_pairs("sub", self._under_exponent(part, 0), terms.subtracted))
            sixteenth = _word(_doubled(0x2C00))
            found.append(self._of_pairs("fma", self._under_exponent(part, 4), sixteenth, terms.added_high))
        return found

    def _under_exponent(self, word: Expr, shift: int) -> Expr:
        """Two codes of a word, from bits `shift` and 16 + `shift` on, under exponents."""
        sign = 8 if self.code.is_signed else 0
        exponent = _EXPONENTS[self.between][0] | sign << shift
        return intrinsic_call("cuda.lop3", word, self.masks[shift // 4], _word(_doubled(exponent)), _AND_THEN_XOR)

    def _scaled(self, k: IRBuilder, pair: Expr, terms: Terms) -> Expr:
        if self.is_short:
            return pair if self.is_late or terms.factor is None else self._of_pairs("mul", pair, terms.factor)
        both = k.let("exact", Bitcast(pair, VectorType(self.between, 2)))
        halves = [build.cast(build.extract(both, n), dtypes.f32) for n in range(2)]
        if terms.zero is not None:
            halves = [half - terms.zero for half in halves]
        if terms.scale is not None:
            halves = [half * terms.scale for half in halves]
        return intrinsic_call(f"cuda.pack_{self.to.short}", *halves)

    def _of_pairs(self, name: str, *words: Expr) -> Expr:
        return intrinsic_call(f"cuda.{name}_{self.between.short}x2", *words)

    def _pair(self, k: IRBuilder, zero: Expr | None, more: float, sign: int, step: int = 1) -> Expr:
        """A word of twice the number sign * (zero + more), which the type of pairs holds exactly. step: how far its
        bits are from those of the next zero."""
        if zero is None or isinstance(zero, Const):
            value = 0 if zero is None else zero.value
            assert not isinstance(value, complex)
            return self._known_pair(sign * (value + more))
        if self._counts(zero.dtype):
            least = self._known_pair(sign * more)
            return k.let("pair", build.cast(zero, _WORD) * _word(_doubled(step)) + least)
        zero = build.cast(zero, dtypes.f32)
        number = k.let("number", zero + more if sign > 0 else build.const(-more, dtypes.f32) - zero)
        return k.let("pair", intrinsic_call(f"cuda.pack_{self.between.short}", number, number))

    def _counts(self, dtype: DType) -> bool:
        """Whether zeros of a type are among the numbers whose bits count like integers above an exponent."""
        is_small = dtype.is_int and dtype.bits <= self.code.bits
        return is_small and not dtype.is_signed

    def _known_pair(self, number: float) -> Expr:
        known = np.asarray(number, np.float32).astype(self.between.numpy())
        return _word(_doubled(int(known.view(np.uint16))))


def _word(bits: int) -> Expr:
    return build.const(bits, _WORD)


def _doubled(half: int) -> int:
    return half << 16 | half

"""Element types: one table with every type of PyTorch and ONNX, and how two of them promote.

A `DType` is plain data; numpy and ml_dtypes are imported only by `DType.numpy` and `from_numpy`. Quantisation is not an
element type here: scale and zero point are ordinary inputs of an operator.

Formats: IEEE 754-2019 (f16, f32, f64); Micikevicius et al., "FP8 Formats for Deep Learning", 2022 (e4m3fn, e5m2);
Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (the fnuz types); OCP Microscaling Formats (MX)
v1.0 (e8m0fnu, e2m1fn).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from hidet.errors import DTypeError, suggestion

if TYPE_CHECKING:
    import numpy

Kind = Literal["bool", "int", "uint", "float", "complex", "string"]
Usage = Literal["compute", "storage", "host"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. Two DTypes are equal when their names are.

    name: full name, as numpy, ml_dtypes and torch spell it ("float8_e4m3fn").
    short: the name in printed IR and kernels ("f8e4m3").
    bits: bits of one element. Tensors give elements below 8 bits a byte each; `packed_nbytes` is their size in formats
        that pack them. 0 for strings.
    kind: family of the values.
    usage: "compute": kernels do arithmetic in it; "storage": kernels load, store and convert it, and compute in another
        type; "host": values never reach a device.
    exponent_bits, mantissa_bits: stored bits of a float, of each part of a complex; 0 for other kinds.
    bias: exponent bias of a float; 0 for other kinds.
    has_inf, has_nan, has_sign: which special values and signs a float or complex can hold.
    largest: largest finite float value; None for other kinds and for complex.
    """

    name: str
    short: str = field(compare=False)
    bits: int = field(compare=False)
    kind: Kind = field(compare=False)
    usage: Usage = field(default="compute", compare=False)
    exponent_bits: int = field(default=0, compare=False)
    mantissa_bits: int = field(default=0, compare=False)
    bias: int = field(default=0, compare=False)
    has_inf: bool = field(default=False, compare=False)
    has_nan: bool = field(default=False, compare=False)
    has_sign: bool = field(default=False, compare=False)
    largest: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return f"DType({self.name!r})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # Other libraries' and scripts' types may know that they stand for this one; a text is a name.
        if isinstance(other, str):
            return self.name == other
        return self.name == other.name if isinstance(other, DType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def nbytes(self) -> int:
        """Bytes of one element in a tensor: its bits, rounded up."""
        return -(-self.bits // 8)

    @property
    def itemsize(self) -> int:
        """`nbytes`, under the name that numpy and torch use."""
        return self.nbytes

    def packed_nbytes(self, count: int) -> int:
        """Bytes of `count` elements in formats in which types below 8 bits share bytes."""
        return -(-self.bits * count // 8)

    @property
    def is_float(self) -> bool:
        """A real floating-point type (not complex)."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """A signed or unsigned integer type (not bool)."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        """Negative values exist."""
        return self.kind == "int" or self.has_sign

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_compute(self) -> bool:
        """Kernels do arithmetic in this type."""
        return self.usage == "compute"

    @property
    def is_storage_only(self) -> bool:
        """Kernels load, store and convert this type but compute in another one."""
        return self.usage == "storage"

    @property
    def is_host_only(self) -> bool:
        """Values of this type never reach a device."""
        return self.usage == "host"

    @property
    def is_subbyte(self) -> bool:
        """An element has less than 8 bits."""
        return 0 < self.bits < 8

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value, as `torch.finfo(...).eps`; of the parts for a complex type.

        Raises DTypeError when the type is neither float nor complex.
        """
        self._require("epsilon", "float", "complex")
        return float(2.0**-self.mantissa_bits)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest, half of `epsilon`."""
        return self.epsilon / 2

    @property
    def smallest_normal(self) -> float:
        """Smallest positive normal value. Raises DTypeError when the type is not a float."""
        self._require("smallest normal value", "float")
        # Without a mantissa there are no subnormals, and exponent field 0 holds a normal value.
        return float(2.0 ** ((1 if self.mantissa_bits else 0) - self.bias))

    @property
    def max(self) -> int | float:
        """Largest finite value: an int for bool and integer types, else a float. Raises DTypeError for other kinds."""
        self._require("largest value", "bool", "int", "uint", "float")
        if self.largest is not None:
            return self.largest
        if self.kind == "bool":
            return 1
        return int(2 ** (self.bits - (1 if self.kind == "int" else 0)) - 1)

    @property
    def min(self) -> int | float:
        """Smallest (most negative) finite value, of the same Python type as `max`. Raises DTypeError as `max` does."""
        self._require("smallest value", "bool", "int", "uint", "float")
        if self.largest is not None:
            return -self.largest if self.has_sign else self.smallest_normal
        return int(-(2 ** (self.bits - 1))) if self.kind == "int" else 0

    def numpy(self) -> numpy.dtype[Any]:
        """The numpy dtype of this type's values.

        Strings are Python objects and tfloat32 values are float32. numpy keeps types below 8 bits one element a byte.
        Raises DTypeError when neither numpy nor ml_dtypes has the type.
        """
        return _numpy_dtype(self.name)

    @property
    def has_one_zero(self) -> bool:
        """Whether the code of negative zero is the only NaN: the "fnuz" formats."""
        return self.name.endswith("fnuz")

    @property
    def nan_code(self) -> int:
        """The code of NaN in a float of 8 or 4 bits, apart from its sign; that of zero where there is no NaN."""
        if self.has_one_zero:
            return 0x80
        if not self.has_nan:
            return 0
        return 0x7F if self.has_sign else 0xFF

    @property
    def largest_code(self) -> int:
        """The code of the largest number in a float of 8 or 4 bits."""
        if not self.has_sign:
            return 0xFE
        if not self.has_nan:
            return (1 << (self.bits - 1)) - 1
        if self.has_one_zero:
            return 0x7F
        return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1 if self.has_inf else 0x7E

    def _require(self, what: str, *kinds: Kind) -> None:
        if self.kind not in kinds:
            raise DTypeError(f"{self.name} has no {what}: expected a type of kind {' or '.join(kinds)}")


def _integer(bits: int, signed: bool, usage: Usage = "compute") -> DType:
    if signed:
        return DType(f"int{bits}", f"i{bits}", bits, "int", usage)
    return DType(f"uint{bits}", f"u{bits}", bits, "uint", usage)


def _float(
    name: str,
    short: str,
    bits: int,
    exponent_bits: int,
    mantissa_bits: int,
    usage: Usage,
    *,
    bias: int | None = None,
    largest: float | None = None,
    has_nan: bool = True,
    has_sign: bool = True,
) -> DType:
    """A float type. Without `bias` and `largest` it follows IEEE 754: the all-ones exponent field holds inf and NaN.

    A finite-only type (no inf) gives `largest`, which depends on the bit patterns that it spends on NaN.
    """
    has_inf = largest is None
    if bias is None:
        bias = 2 ** (exponent_bits - 1) - 1
    if largest is None:
        largest = (2.0 - 2.0**-mantissa_bits) * 2.0**bias
    return DType(
        *(name, short, bits, "float", usage, exponent_bits, mantissa_bits, bias, has_inf, has_nan, has_sign, largest)
    )


def _complex(bits: int, part: DType, usage: Usage) -> DType:
    return DType(
        *(f"complex{bits}", f"c{bits}", bits, "complex", usage, part.exponent_bits, part.mantissa_bits, part.bias),
        has_inf=True,
        has_nan=True,
        has_sign=True,
    )


boolean = DType("bool", "bool", 8, "bool")
i8, i16, i32, i64 = (_integer(bits, signed=True) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (_integer(bits, signed=False) for bits in (8, 16, 32, 64))
i1, i2, i3, i4, i5, i6, i7 = (_integer(bits, signed=True, usage="storage") for bits in range(1, 8))
u1, u2, u3, u4, u5, u6, u7 = (_integer(bits, signed=False, usage="storage") for bits in range(1, 8))

f16 = _float("float16", "f16", 16, 5, 10, "compute")
bf16 = _float("bfloat16", "bf16", 16, 8, 7, "compute")
FLOATS_OF_16_BITS = (f16, bf16)
f32 = _float("float32", "f32", 32, 8, 23, "compute")
f64 = _float("float64", "f64", 64, 11, 52, "compute")
# A mode of matrix units: 19 significant bits held in a 32-bit register whose low 13 bits are ignored.
tf32 = _float("tfloat32", "tf32", 32, 8, 10, "compute")

f8e4m3 = _float("float8_e4m3fn", "f8e4m3", 8, 4, 3, "storage", bias=7, largest=448.0)
f8e4m3fnuz = _float("float8_e4m3fnuz", "f8e4m3fnuz", 8, 4, 3, "storage", bias=8, largest=240.0)
f8e5m2 = _float("float8_e5m2", "f8e5m2", 8, 5, 2, "storage")
f8e5m2fnuz = _float("float8_e5m2fnuz", "f8e5m2fnuz", 8, 5, 2, "storage", bias=16, largest=57344.0)
f8e8m0 = _float("float8_e8m0fnu", "f8e8m0", 8, 8, 0, "storage", bias=127, largest=2.0**127, has_sign=False)
f4e2m1 = _float("float4_e2m1fn", "f4e2m1", 4, 2, 1, "storage", bias=1, largest=6.0, has_nan=False)

c32 = _complex(32, f16, "storage")
c64 = _complex(64, f32, "storage")
c128 = _complex(128, f64, "storage")
string = DType("string", "str", 0, "string", "host")

ALL_DTYPES: tuple[DType, ...] = (
    *(boolean, i8, i16, i32, i64, u8, u16, u32, u64),
    *(f16, bf16, f32, f64, tf32),
    *(f8e4m3, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1),
    *(i1, i2, i3, i4, i5, i6, i7, u1, u2, u3, u4, u5, u6, u7),
    *(c32, c64, c128, string),
)

_BY_NAME = {spelling: entry for entry in ALL_DTYPES for spelling in (entry.name, entry.short)}

# What numpy itself provides; every other type comes from ml_dtypes under its own name.
_NUMPY_NAMES = {
    **{entry.name: entry.name for entry in (boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64, c64, c128)},
    "tfloat32": "float32",
    "string": "object",
}


@cache
def _numpy_dtype(name: str) -> numpy.dtype[Any]:
    import numpy

    if name in _NUMPY_NAMES:
        return numpy.dtype(_NUMPY_NAMES[name])
    import ml_dtypes

    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise DTypeError(
            f"{name} has no numpy equivalent: neither numpy nor ml_dtypes {ml_dtypes.__version__} defines it",
            hint="convert the data to a type that numpy has, or upgrade ml_dtypes",
        )
    result: numpy.dtype[Any] = numpy.dtype(scalar)
    return result


def dtype(spelling: str | DType) -> DType:
    """The DType of a full name ("float32"), a short name ("f32") or a DType, which is returned as it is.

    Raises DTypeError that names the nearest known spelling.
    """
    if isinstance(spelling, DType):
        return spelling
    found = _BY_NAME.get(spelling)
    if found is None:
        raise DTypeError(f"unknown element type {spelling!r}", hint=suggestion(spelling, _BY_NAME))
    return found


def from_numpy(numpy_dtype: numpy.dtype[Any]) -> DType:
    """The DType of a numpy dtype, those of ml_dtypes included; object and str dtypes are strings.

    Raises DTypeError for dtypes without an element type here (dates, records), and for swapped byte order.
    """
    if numpy_dtype.kind in "OUT":
        return string
    if numpy_dtype.name not in _BY_NAME or not numpy_dtype.isnative:
        raise DTypeError(
            f"numpy dtype {numpy_dtype!r} has no element type: expected a native numpy or ml_dtypes number or bool",
            hint="convert the array with .astype first",
        )
    return _BY_NAME[numpy_dtype.name]


_PART_OF_COMPLEX = {c32: f16, c64: f32, c128: f64}
_COMPLEX_OF_PART = {part: whole for whole, part in _PART_OF_COMPLEX.items()}
# torch promotes these with wider floats and with themselves only.
_ISOLATED_UNSIGNED = frozenset({u1, u2, u3, u4, u5, u6, u7, u16, u32, u64})
_PROMOTING_FLOATS = frozenset({f16, bf16, f32, f64})
_PROMOTING = frozenset({boolean, u8, i8, i16, i32, i64, *_PROMOTING_FLOATS, *_PART_OF_COMPLEX})


def promote(a: DType, b: DType) -> DType:
    """The type of an element-wise result of `a` and `b`, as `torch.promote_types` has it.

    torch's packed float4_e2m1fn_x2 is not an element type; f4e2m1 promotes with itself only.
    Raises DTypeError for pairs that torch refuses too (8-bit floats with other types, u16 with i32, ...), and for
    strings and tf32 with another type.
    """
    if a == b:
        return a
    for narrow, other in ((a, b), (b, a)):
        if narrow in _ISOLATED_UNSIGNED and other in _PROMOTING_FLOATS:
            return other
    if a not in _PROMOTING or b not in _PROMOTING:
        raise DTypeError(f"{a.name} and {b.name} do not promote to a common type", hint="cast one of them explicitly")
    if a.is_complex or b.is_complex:
        part = promote(_PART_OF_COMPLEX.get(a, a), _PART_OF_COMPLEX.get(b, b))
        return _COMPLEX_OF_PART[part]
    for one, other in ((a, b), (b, a)):
        if one.is_bool or (one.is_int and other.is_float):
            return other
    if a.is_float:
        return f32 if a.bits == b.bits else max(a, b, key=_bits)
    # Of the unsigned types only u8 gets here: it fits every wider signed type.
    return i16 if {a, b} == {u8, i8} else max(a, b, key=_bits)


def _bits(entry: DType) -> int:
    return entry.bits

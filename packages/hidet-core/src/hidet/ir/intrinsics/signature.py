"""What one hardware operation takes, gives and does: rows of the tables in `hidet.ir.intrinsics`.

A row is data. What an operation computes is a table of the interpreter, how it is spelled a table of a target's code
generator, both keyed by the names of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hidet.dtypes import DType
from hidet.ir.types import MemorySpace, PointerType, VectorType

Effect = Literal["pure", "reads", "writes", "waits"]
"""pure: the value follows from the arguments and from which thread asks. reads: from memory too. writes: changes memory
or another state of the device. waits: orders this thread's work with that of others, so no access moves across it."""


@dataclass(frozen=True, slots=True)
class Value:
    """A parameter passed by value.

    dtypes: element types it accepts, () for every one. lanes: numbers of SIMD lanes it accepts.
    group: arguments of one group have the same type; "" for a parameter of its own.
    """

    name: str
    dtypes: tuple[DType, ...] = ()
    lanes: tuple[int, ...] = (1,)
    group: str = ""


@dataclass(frozen=True, slots=True)
class Immediate:
    """A parameter that is part of the instruction: an i32 constant from `least` to `most`, a multiple of `step`."""

    name: str
    least: int
    most: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """A parameter that is an address: a pointer, or a buffer, which stands for its first element.

    spaces: where it may point. dtypes: elements it may point to, () for every one. align: bytes the address is a
    multiple of, 0 for those of an element. nbytes: how many bytes from there are accessed, 0 when that is no constant.
    group: as for `Value`, the elements having the same type.
    """

    name: str
    spaces: tuple[MemorySpace, ...]
    dtypes: tuple[DType, ...] = ()
    align: int = 0
    nbytes: int = 0
    group: str = ""


Parameter = Value | Immediate | Memory


@dataclass(frozen=True, slots=True)
class SameAs:
    """A result of the type of the argument called `parameter`."""

    parameter: str


@dataclass(frozen=True, slots=True)
class ElementsOf:
    """A result of one or several consecutive elements of what the argument `parameter` points to.

    most_bytes: of all lanes together.
    """

    parameter: str
    most_bytes: int = 16


Result = DType | VectorType | PointerType | SameAs | ElementsOf | None


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """D[m, n] = A[m, k] B[k, n] + C[m, n], or the part of it that one instruction computes."""

    m: int
    n: int
    k: int
    a: DType
    b: DType
    accumulator: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsic:
    """One operation of the hardware.

    name: "cuda." and words. family: the table it stands in. result: None for no value; such calls have type None and
    stand in `Evaluate`. arch: least compute capability times ten. is_arch_specific: only in code for exactly one
    architecture (sm_90a). threads: how many threads execute it together: 1, a warp (32), a warp group (128), 0 for
    the whole block. ptx: the instruction's name in the PTX ISA manual, where its meaning is defined. matrix: set for
    matrix operations.
    """

    name: str
    family: str
    doc: str
    ptx: str
    parameters: tuple[Parameter, ...] = ()
    result: Result = None
    effect: Effect = "pure"
    arch: int = 80
    is_arch_specific: bool = False
    threads: int = 1
    matrix: MatrixShape | None = None


def table(*rows: Intrinsic) -> dict[str, Intrinsic]:
    """Rows by name. ValueError for a name that occurs twice."""
    found = {row.name: row for row in rows}
    if len(found) != len(rows):
        raise ValueError("an intrinsic is listed twice")
    return found

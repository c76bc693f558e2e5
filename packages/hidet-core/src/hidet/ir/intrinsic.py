"""Intrinsics: operations of the hardware, which a program calls by name and no module defines, as data.

    Intrinsic         one operation: parameters, result, effect
    IntrinsicFamily   the operations of one wheel: their table, what each computes, how targets spell them

A call (`hidet.ir.expr.Call`) holds its intrinsic as a node of a graph holds its operator, so nothing has to be looked
up by name but text. Wheels offer families from the hook `hidet_intrinsics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from hidet.dtypes import DType
from hidet.errors import PluginError
from hidet.ir.types import MemorySpace, PointerType, VectorType
from hidet.loading import load_object

Effect = Literal["pure", "reads", "writes", "waits"]
"""pure: the value follows from the arguments and from which thread asks. reads: from memory too. writes: changes memory
or another state of the device. waits: orders this thread's work with that of others, so no access moves across it."""


@dataclass(frozen=True, slots=True)
class Value:
    """A parameter passed by value.

    dtypes: element types it accepts, () for every one. lanes: numbers of SIMD lanes it accepts, () for every one.
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


@dataclass(frozen=True, slots=True)
class Rest:
    """Any number of further arguments, scalars of these element types. The last parameter."""

    name: str
    dtypes: tuple[DType, ...]


Parameter = Value | Immediate | Memory | Rest


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntrinsicFamily:
    """The intrinsics of one wheel, as it offers them from the hook `hidet_intrinsics`.

    name: the names of its rows begin with it and a dot ("acme.popcount").
    load: "package.module:attribute" of its rows, a mapping from name to `Intrinsic`.
    meanings: the same of a mapping from name to what an intrinsic computes: a function of numpy arrays that returns
        one, or a meaning of the simulator of launches. "" where only a target knows.
    simulator: "package.module:attribute" of the `hidet.ir.interpret.Simulator` that runs launches, with blocks of
        threads, of kernels that call its intrinsics. "" where none is needed.
    spellings: by name of a target, the same of a mapping from name to what the target's code generator writes; in the
        form that this target documents. A target's own table counts first.
    """

    name: str
    load: str
    meanings: str = ""
    simulator: str = ""
    spellings: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""
    replaces: str | None = None

    def resolve(self) -> Mapping[str, Intrinsic]:
        """The rows by name. PluginError where they cannot be loaded."""
        rows: Mapping[str, Intrinsic] = self._load(self.load)
        return rows

    def meaning(self, name: str) -> Any:
        """What the intrinsic `name` computes; None where nothing says so. PluginError as for `resolve`."""
        return self._load(self.meanings).get(name) if self.meanings else None

    def load_simulator(self) -> Any:
        """What runs launches of kernels that call these; None where nothing is said. PluginError as for `resolve`."""
        return self._load(self.simulator) if self.simulator else None

    def spelling(self, target: str, name: str) -> Any:
        """What the code generator of `target` writes for the intrinsic `name`; None where only the target may know."""
        place = self.spellings.get(target)
        return None if place is None else self._load(place).get(name)

    def _load(self, place: str) -> Any:
        try:
            return _loaded(place)
        except Exception as error:
            raise PluginError(
                f"intrinsics {self.name!r}: cannot load {place!r}: {type(error).__name__}: {error}",
                hint="`hidet plugins -v` names the plug-in that provides them",
            ) from error


_loaded = cache(load_object)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intrinsic:
    """One operation of the hardware.

    name: the family's name and words, with dots between. group: what it belongs to within the family. result: None for
    no value; such calls have type None and stand in `Evaluate`. arch: least compute capability times ten.
    is_arch_specific: only in code for exactly one architecture (sm_90a). threads: how many threads execute it together:
    1, a warp (32), a warp group (128), 0 for the whole block. ptx: the instruction's name in the PTX ISA manual, where
    its meaning is defined. matrix: set for matrix operations.
    """

    name: str
    family: IntrinsicFamily
    group: str
    doc: str
    ptx: str = ""
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

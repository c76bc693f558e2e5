"""What a StableHLO module says, however it was written down: functions of operations with regions.

Names of operators, attributes and element types are the same whether text or bytecode was read: dialects stablehlo,
mhlo and vhlo have the bare name of the operator ("dot_general"), others their own ("chlo.erf"), and structured
attributes (`#stablehlo.gather<...>`) are attributes of their own, as VHLO has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hidet.dtypes import DType
from hidet.loc import Loc

Shape = tuple[int | None, ...]
"""Extents; None for one that is open ("?")."""

MAX_NESTING = 64
"""Regions in regions, types in types, and functions that call each other."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A tensor's type."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        extents = "".join("?x" if extent is None else f"{extent}x" for extent in self.shape)
        return f"tensor<{extents}{self.dtype.name}>"


@dataclass(frozen=True, slots=True)
class Scalar:
    """An element type where MLIR has one beside a tensor, as the type of a number."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class FunctionType:
    """What a function takes and returns."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that no tensor of hidet has: tokens, tuples, quantised elements. text: as messages name it."""

    text: str

    def __str__(self) -> str:
        return self.text


Type = Ranked | Scalar | FunctionType | OtherType


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a function, as an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute that nothing reads. text: what there is of it."""

    text: str


Attribute = Any
"""None (unit), bool, int, float, str, tuple, dict, numpy array, `Symbol`, `Opaque` or a `Type`."""

Place = Callable[[], Loc | None]
"""Finds out where an operation comes from: most are never asked."""


def place_of(operation: Operation, around: Loc | None) -> Loc | None:
    """Where an operation comes from. around: the place of the call that it is written out for, whose line it has where
    its own function knows none."""
    place = operation.place()
    if place is None or place.file is not None or around is None:
        return place or around
    return Loc(around.file, around.line, around.column, place.name, around.parent)


def nowhere() -> Loc | None:
    """Of an operation whose place nobody wrote down."""
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation. operands, results: numbers of values, which are unique in the module. types: of the results."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Type, ...]
    attributes: Mapping[str, Attribute]
    regions: tuple[Block, ...] = ()
    place: Place = nowhere


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A region of one block. returned: the operands of the operation that ends it."""

    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    operations: tuple[Operation, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function. argument_names: how the model calls its arguments, "" where it does not. results: attributes of its
    results."""

    name: str
    block: Block
    argument_names: tuple[str, ...]
    argument_attributes: tuple[Mapping[str, Attribute], ...]
    result_attributes: tuple[Mapping[str, Attribute], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A module. source: the file that it is from, for messages."""

    name: str
    functions: Mapping[str, Function]
    source: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

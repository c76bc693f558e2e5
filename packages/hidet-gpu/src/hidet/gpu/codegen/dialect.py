"""What the printer has to be told of a GPU's C or C++: a value that a target makes once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.dtypes import DType
from hidet.gpu.codegen.spelling import Spelling
from hidet.gpu.codegen.text import Text
from hidet.ir.types import Type

if TYPE_CHECKING:
    from hidet.gpu.codegen.expression import ExpressionEmitter
    from hidet.gpu.codegen.function import FunctionEmitter
    from hidet.gpu.codegen.prelude import Piece, Prelude
    from hidet.ir.expr import Expr
    from hidet.ir.func import Function
    from hidet.ir.intrinsic import Intrinsic
    from hidet.ir.stmt import Stmt, Store


@dataclass(frozen=True, slots=True, eq=False)
class ReservedNames:
    """Names that programs cannot have.

    words: of the language and of the prelude: no variable is called so. declared: what the compiler declares before it
    reads a source: no function is called so. macros: what replaces every name that equals it.
    """

    words: frozenset[str]
    declared: re.Pattern[str]
    macros: re.Pattern[str]


@dataclass(frozen=True, slots=True, eq=False)
class SharedMemory:
    """How arrays of a block are declared.

    qualifier: in front of one ("__shared__ "). static_bytes: as much as kernels may declare; what goes beyond is asked
    for when they are launched. dynamic: the line that declares that memory as bytes called `shared_memory`, which begin
    at a multiple of `dynamic_align`. align: bytes that an array of so many bytes is aligned to. is_of_kernel: whether
    arrays are declared where a kernel begins, and nowhere else.
    """

    qualifier: str
    static_bytes: int
    dynamic: str
    dynamic_align: int
    align: Callable[[int], int]
    is_of_kernel: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ByValue:
    """A parameter of a kernel that is a struct of words: its type as a piece, the parameter, and the line of the body
    that makes a pointer to its words."""

    piece: Piece
    parameter: str
    line: str


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One language.

    spelling: its types, literals and library. reserved: names that are not free. shared: memory of a block.
    pieces: helpers by name. The printer asks for those of `hidet.gpu.codegen.cpp` and, where they are there, for
        "bf16_at", "one_plus_erf", "one_plus_tanh", "quotient" and "rounded_to_bf16", which are faster ways of the
        hardware.
    device, device_call: in front of a device function that is inlined, and of one that is not.
    kernel: the head of a kernel up to its brace, from the function, its parameters and the threads of a block where
        they are known.
    by_value: a parameter in constant memory of (name, type of an element, number of elements).
    block_index: the index of a block along {axis}, x, y or z, whose number is {number}.
    table: in front of a constant array. unroll: the line in front of a loop that is to be unrolled. align: how memory
        is aligned to {bytes}.
    vector: a vector, of its type and lanes: of a function from the name of a lane's number to that lane's text.
    vector_piece: what declares the type of a vector.
    typed: a helper of a piece for a type, ready to be called, from (prelude, piece, function, type); the piece may
        be made for the type.
    bits_as: the function that gives the bits of a type as another one, ready to be called, from (prelude, new type, old
        type).
    wide_store: the function that writes a run of elements in one instruction, whose piece it asks for; None for stores
        that are written element by element.
    intrinsic: a call of a hardware operation, from (emitter, intrinsic, arguments, type); CodegenError where there is
        no spelling.
    statements: how statements are written that no two languages share: `Assert`, `Print`, `Assembly`. Those that are
        missing are refused.
    """

    spelling: Spelling
    reserved: ReservedNames
    shared: SharedMemory
    pieces: Mapping[str, Piece]
    device: str
    device_call: str
    kernel: Callable[[Function, str, int | None], str]
    by_value: Callable[[str, str, int], ByValue]
    block_index: str
    table: str
    unroll: str
    align: str
    vector: Callable[[Type, DType, int, Callable[[str], Text]], Text]
    vector_piece: Callable[[DType, int], Piece]
    typed: Callable[[Prelude, str, str, Type], str]
    bits_as: Callable[[Prelude, Type, Type], str]
    wide_store: Callable[[Prelude, Store], str | None]
    intrinsic: Callable[[ExpressionEmitter, Intrinsic, list[Expr], Type], Text]
    statements: Mapping[type[Stmt], Callable[[FunctionEmitter, Any], None]]

    @property
    def name(self) -> str:
        """What the language is called in errors."""
        return self.spelling.name

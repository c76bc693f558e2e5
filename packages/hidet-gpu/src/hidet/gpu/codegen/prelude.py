"""Text that a source begins with, piece by piece: helpers, each of which names what it needs itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir.types import Type, VectorType, element_dtype, lanes_of

if TYPE_CHECKING:
    from hidet.gpu.codegen.dialect import Dialect


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text under a name, and the names of the pieces that must stand before it."""

    name: str
    text: str
    needs: tuple[str, ...] = ()


class Prelude:
    """The pieces one source needs, in an order in which each comes after what it needs."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.spelling = dialect.spelling
        self._texts: dict[str, str] = {}

    def has(self, name: str) -> bool:
        """Whether the dialect has a piece."""
        return name in self.dialect.pieces

    def use(self, *names: str) -> None:
        """Ask for pieces of the dialect."""
        for name in names:
            piece = self.dialect.pieces.get(name)
            if piece is None:
                raise CodegenError(f"the prelude of {self.dialect.name} has no piece {name!r}")
            self.add(piece)

    def add(self, piece: Piece) -> None:
        """Ask for a piece that is not in the table."""
        if piece.name not in self._texts:
            self.use(*piece.needs)
            self._texts[piece.name] = piece.text

    def use_type(self, dtype: DType) -> None:
        """Ask for what declares the type of an element."""
        if dtype in self.spelling.structs:
            self.use(dtype.short)
        elif dtype is dtypes.tf32:
            self.use("tf32")

    def declare(self, type_: Type) -> str:
        """The name of a type, which is declared then."""
        if isinstance(type_, DType | VectorType):
            self.use_type(element_dtype(type_))
        if lanes_of(type_) > 1:
            self.add(self.dialect.vector_piece(element_dtype(type_), lanes_of(type_)))
        return self.spelling.type_name(type_)

    def texts(self) -> Iterable[str]:
        """The pieces asked for, in order."""
        return self._texts.values()

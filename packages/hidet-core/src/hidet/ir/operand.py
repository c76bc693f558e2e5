"""`Operand`: a tensor that a compute definition names, and that expressions in it read elements of."""

from __future__ import annotations

from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import VerifyError
from hidet.ir import build
from hidet.ir.expr import Access, Expr
from hidet.records import record


@record
class Operand:
    """A tensor named inside a definition; identity is the object. Subscripting reads an element."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Access:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.shape):
            raise VerifyError(f"operand {self.name} has {len(self.shape)} axes but is read with {len(given)} indices")
        return Access(self, tuple(map(build.index, given)), self.dtype)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

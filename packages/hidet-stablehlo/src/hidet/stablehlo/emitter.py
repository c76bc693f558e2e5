"""`StableHloEmitter`: the emitter of the kit, and what StableHLO says of an operation's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter
from hidet.graph import Value
from hidet.stablehlo.program import Ranked, Type


class StableHloEmitter(Emitter):
    """Adds the types of the results, which StableHLO's operations have beside their operands."""

    types: tuple[Type, ...] = ()

    @property
    def result(self) -> Ranked:
        """The type of the only result. UnsupportedOp where that is no tensor."""
        if len(self.types) != 1:
            raise ImportFailed(f"{self.operator} has {len(self.types)} results, expected one")
        (found,) = self.types
        if not isinstance(found, Ranked):
            raise UnsupportedOp(f"{self.operator} makes a {found}")
        return found

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The extents of the only result. ImportFailed where some are open, which the operator has no words for."""
        shape = self.result.shape
        numbers = [extent for extent in shape if extent is not None]
        if len(numbers) != len(shape) or min(numbers, default=0) < 0:
            raise ImportFailed(f"{self.operator} makes {self.result}: its extents must be numbers")
        return tuple(numbers)

    def shape_of_result(self, *like: Sequence[Dim]) -> tuple[Dim, ...]:
        """The extents of the only result; open ones are those of the first of `like` with as many axes."""
        shape = self.result.shape
        for known in like:
            if len(known) == len(shape):
                return tuple(own if own is not None else other for own, other in zip(shape, known, strict=True))
        return self.result_shape

    def whole(self, attribute: Any, what: str, count: int | None = None) -> tuple[int, ...]:
        """An attribute that is whole numbers: an array of one axis, a tuple, one number. ImportFailed for others, and
        where there are not `count` (None takes any number of them)."""
        array = numpy.asarray(attribute if attribute is not None else ())
        if array.size == 0:
            array = numpy.zeros(0, numpy.int64)
        if array.dtype.kind not in "iub" or array.ndim > 1 or array.size > 1 << 16:
            raise ImportFailed(f"{what} of {self.operator} are no whole numbers")
        found = tuple(int(item) for item in array.reshape(-1))
        if count is not None and len(found) != count:
            raise ImportFailed(f"{what} of {self.operator} are {list(found)}, expected {count} numbers")
        return found

    def axes(self, attribute: Any, rank: int, what: str) -> tuple[int, ...]:
        """An attribute that is different axes of a tensor of that rank."""
        found = self.whole(attribute, what)
        if len(set(found)) != len(found) or any(not 0 <= axis < rank for axis in found):
            raise ImportFailed(f"{what} of {self.operator} are {list(found)}, expected axes of a tensor of rank {rank}")
        return found

    def axis(self, attribute: Any, rank: int, what: str) -> int:
        """An attribute that is one axis of a tensor of that rank."""
        found = self.axes(attribute, rank, what)
        if len(found) != 1:
            raise ImportFailed(f"{what} of {self.operator} is {list(found)}, expected one axis")
        return found[0]

    def filled(self, number: Any, shape: Sequence[Dim], like: Value) -> Value:
        """A tensor of one number, of the element type of `like`."""
        return self.emit("full", shape=tuple(shape), value=number, dtype=like.tensor.dtype)

"""`TorchEmitter`: what the operator mappings write graphs with.

It adds to the kit's what aten needs everywhere: constants and conversions under torch's promotion rules, what torch
inferred, and which values have memory of their own.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, DimExpr, Symbol, as_dim, hint_value
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, NodeFacts, Number
from hidet.graph import GraphBuilder, Node, OperatorSpec, TensorType, Value
from hidet.ir.constants import wrapped


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python number that is known at run time only, e.g. the square root of a size: a tensor without axes.

    It is a float or, in a tensor of bool, a truth; whole numbers are dims.
    """

    value: Value


# What aten calls a Tensor or a Scalar.
Operand = Value | Scalar | Number | DimExpr


Layout = tuple[tuple[Dim, ...], Dim]


@dataclass(frozen=True, slots=True)
class AtenFacts(NodeFacts):
    """What torch inferred about the aten node being imported.

    results: types of its results, None for one that is no tensor.
    stored: its first argument and the tensors that this is a view of, nearest first, each with the strides and storage
    offset that it has in eager mode. fresh: symbols in the sizes of its results that neither arguments of the call nor
    nodes so far tell. traced: the value of a size in the call that was traced, None where that is not known.
    """

    results: tuple[TensorType | None, ...] = ()
    stored: Callable[[], Iterable[tuple[Value, Layout]]] = tuple
    fresh: Sequence[str] = ()
    traced: Callable[[Dim], int | None] = hint_value


def conversion_of(device: str) -> str:
    """What torch makes of floats out of the range of an integer type, as attribute out_of_range of `cast`: what the
    processor makes of them."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return "lowest" if device == "cpu" and is_x86 else "nearest"


class TorchEmitter(Emitter):
    """Writes nodes into `builder`.

    facts: of the aten node being imported. data_sizes: names of symbols whose values nodes tell. size_values: graph
    values that are sizes, by the names of their symbols: inputs, and numbers that were read. place: where the model is,
    "cpu", "cuda:1", …; device: its type, since eager mode computes some operators in other types on a processor than on
    a GPU.
    """

    facts: AtenFacts

    def __init__(self, builder: GraphBuilder, place: str) -> None:
        super().__init__(builder)
        self.place = place
        self.device = place.partition(":")[0]
        self.facts = AtenFacts()
        self.data_sizes: set[str] = set()
        self.size_values: dict[str, Value] = {}
        self._given_state: list[tuple[Value, Value]] | None = None
        self._views: dict[Value, Value | None] = {}

    def nested(self, builder: GraphBuilder) -> TorchEmitter:
        """An emitter for the builder of a sub-graph."""
        return TorchEmitter(builder, self.place)

    @property
    def results(self) -> tuple[TensorType | None, ...]:
        """Types of all results of the aten node; None for one that is no tensor."""
        return self.facts.results

    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        first = self.results[0] if self.results else None
        if first is None:
            raise UnsupportedOp("the operator has no tensor result")
        return first

    def random_source(self, seed: int | None = None) -> tuple[Value, Value, int]:
        """Seed and offset, inputs drawn from torch's generator once a call, and a stream number for one operator."""
        if self._given_state is None:
            return super().random_source(seed)
        if not self._given_state:
            raise UnsupportedOp("an operator that draws random numbers twice, from one state")
        return (*self._given_state.pop(), 0)

    def _draw_state(self) -> tuple[Value, Value]:
        scalar = TensorType(dtypes.i64, ())
        return self.builder.input(scalar, "seed"), self.builder.input(scalar, "offset")

    @contextmanager
    def drawing_from(self, seed: Value, offset: Value) -> Iterator[None]:
        """Inside, one operator draws from this state instead of from what is drawn once a call."""
        self._given_state = [(seed, offset)]
        try:
            yield
        finally:
            self._given_state = None

    # --- memory --------------------------------------------------------------------------------------------------

    def emit_all(
        self, op: str | OperatorSpec, inputs: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """Apply an operator and return all its values; one without a definition is written as its decomposition, and
        has memory of its own. UnsupportedOp when core lacks it."""
        outputs = super().emit_all(op, inputs, attrs)
        spec = self.builder.operators[op] if isinstance(op, str) else op
        self._views.update(dict.fromkeys(outputs, inputs[0] if spec.kind == "view" else None))
        return outputs

    def made_by(self, value: Value, op: str) -> Node | None:
        """The node that makes `value`, where it applies that operator, and is no part of how another one is written."""
        return super().made_by(value, op) if value in self._views and not self.owns_memory(value) else None

    def own(self, value: Value) -> Value:
        """Note that a value that the builder has emitted has memory of its own."""
        self._views[value] = None
        return value

    def owns_memory(self, value: Value) -> bool:
        """Whether a value is known to have memory of its own, and to be no view."""
        return self._views.get(value, value) is None

    def base(self, value: Value) -> Value:
        """The value whose elements `value` shows in another order or selection: what stands before all views."""
        while (source := self._views.get(value)) is not None:
            value = source
        return value

    # --- numbers and element types -------------------------------------------------------------------------------

    def constant(self, number: Number, dtype: DType) -> Value:
        """A tensor without axes. Integers wrap around in an integer type, as in torch."""
        return super().constant(wrapped(number, dtype) if isinstance(number, int) and dtype.is_int else number, dtype)

    def size_value(self, symbol: Symbol) -> Value | None:
        """A value that is, or holds, what a symbol stands for; None for one that only shapes of arguments tell."""
        known = self.size_values.get(symbol.name)
        return self.size(as_dim(symbol)) if known is None and symbol.name in self.data_sizes else known

    def operand(self, given: Operand, dtype: DType) -> Value:
        """A tensor or number as a tensor of `dtype`."""
        if isinstance(given, Value):
            return self.cast(given, dtype)
        if isinstance(given, Scalar):
            return self.cast(given.value, dtype)
        if isinstance(given, DimExpr):
            return self.size(given, dtype)
        return self.constant(given, dtype)

    def cast(self, value: Value, dtype: DType) -> Value:
        """`value` converted to `dtype`, itself when it is of that type; out of range as in eager mode."""
        if value.tensor.dtype == dtype:
            return value
        return self.emit("cast", value, dtype=dtype, out_of_range=conversion_of(self.device))

    # --- what torch inferred -------------------------------------------------------------------------------------

    def as_inferred(self, value: Any) -> Any:
        """What a handler made; extents that torch's guards make numbers are these numbers, so that they broadcast."""
        if isinstance(value, tuple):
            return tuple(self._with_numbers(got, number) for number, got in enumerate(value))
        return self._with_numbers(value, 0)

    def _with_numbers(self, value: Any, number: int) -> Any:
        want = self.results[number] if number < len(self.results) else None
        if not isinstance(value, Value) or want is None or len(want.shape) != value.tensor.rank:
            return value
        pairs = list(zip(value.tensor.shape, want.shape, strict=True))
        is_told = any(isinstance(got, DimExpr) and extent == 1 for got, extent in pairs)
        # Also where it is proved that they are: operators broadcast what is 1 without a proof.
        return self.emit("reshape", value, shape=want.shape) if is_told else value

    def has_inferred_rank(self, value: Any) -> bool:
        """Whether what a handler made has as many axes as torch infers. Else torch is wrong: the rank of a result
        follows from the operator's definition."""
        made = value if isinstance(value, tuple) else (value,)
        pairs = zip(made, self.results, strict=False)
        return all(got.tensor.rank == want.rank for got, want in pairs if isinstance(got, Value) and want is not None)

    def require_inferred(self, value: Any) -> None:
        """UnsupportedOp unless a handler made what torch infers; else the handler is wrong, and eager mode is right."""
        made = value if isinstance(value, tuple) else (value,)
        for number, (got, want) in enumerate(zip(made, self.results, strict=False)):
            if isinstance(got, Value) and want is not None:
                if not _agree(got.tensor, want):
                    raise UnsupportedOp(f"result {number} would be {got.type}, torch infers {want}")
            elif got is None and want is not None and self.is_read(number):
                raise UnsupportedOp(f"result {number} is read, but core does not compute it")


_DEFAULT_OF_NUMBER: tuple[tuple[type, DType], ...] = (
    (bool, dtypes.boolean),
    (int, dtypes.i64),
    (float, dtypes.f32),
    (complex, dtypes.c64),
)


def _category(dtype: DType) -> int:
    """bool, integers, floats, complex: types of a higher category win over tensors of a lower one."""
    return 0 if dtype.is_bool else 1 if dtype.is_int else 2 if dtype.is_float else 3


def promote_operands(*operands: Operand, default_float: DType = dtypes.f32) -> DType:
    """The type that torch computes in, as `torch.result_type` has it for any number of operands.

    Tensors with axes count most, tensors without axes next, numbers least: a lower rank matters only when its category
    is higher. `default_float` is the type of a float number among integers (`torch.get_default_dtype()`).
    """
    ranks: list[DType | None] = [None, None, None]
    for given in operands:
        if isinstance(given, Value):
            rank, dtype = (0 if given.tensor.rank else 1), given.tensor.dtype
        else:
            rank, dtype = 2, _number_dtype(given, default_float)
        known = ranks[rank]
        ranks[rank] = dtype if known is None else dtypes.promote(known, dtype)
    found: DType | None = None
    for candidate in ranks:
        if candidate is not None and (found is None or _category(candidate) > _category(found)):
            found = candidate
    if found is None:
        raise UnsupportedOp("an operator without operands has no common type")
    return found


def _number_dtype(given: Scalar | Number | DimExpr, default_float: DType) -> DType:
    if isinstance(given, Scalar):
        dtype = given.value.tensor.dtype
        return default_float if dtype.is_float else dtypes.boolean if dtype.is_bool else dtypes.i64
    if isinstance(given, DimExpr):
        return dtypes.i64
    dtype = next(dtype for kind, dtype in _DEFAULT_OF_NUMBER if isinstance(given, kind))
    return default_float if dtype.is_float else dtype


def _agree(made: TensorType, inferred: TensorType) -> bool:
    """Whether dtypes are equal, and sizes where both are fixed."""
    if made.dtype != inferred.dtype or made.rank != inferred.rank:
        return False
    pairs = zip(made.shape, inferred.shape, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))

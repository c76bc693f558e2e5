"""`Emitter`: what the operator mappings write graphs with.

It adds to GraphBuilder what aten needs everywhere: constants and conversions under torch's promotion rules, and views
that are not repeated: a reshape of a reshape is one reshape, a permutation that changes nothing is no node.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, DimExpr, Symbol, as_dim, prove_equal
from hidet.dtypes import DType
from hidet.errors import UnsupportedOp
from hidet.graph import Attrs, DimType, GraphBuilder, OperatorSpec, TensorType, Value
from hidet.ir.constants import wrapped


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python number that is known at run time only, e.g. the square root of a size: a tensor without axes.

    It is a float or, in a tensor of bool, a truth; whole numbers are dims.
    """

    value: Value


Number = bool | int | float | complex
# What aten calls a Tensor or a Scalar.
Operand = Value | Scalar | Number | DimExpr


@dataclass(frozen=True, slots=True)
class Origin:
    """The node that made a value."""

    op: str
    inputs: tuple[Value | None, ...]
    attrs: Attrs
    is_view: bool


Layout = tuple[tuple[Dim, ...], Dim]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What torch inferred about the aten node being imported.

    results: types of its results, None for one that is no tensor. read: numbers of the results that anyone reads.
    stored: its first argument and the tensors that this is a view of, nearest first, each with the strides and storage
    offset that it has in eager mode. fresh: symbols in the sizes of its results that neither arguments of the call nor
    nodes so far tell.
    """

    results: tuple[TensorType | None, ...] = ()
    read: frozenset[int] = frozenset()
    stored: Callable[[], Iterable[tuple[Value, Layout]]] = tuple
    fresh: Sequence[str] = ()


def conversion_of(device: str) -> str:
    """What torch makes of floats out of the range of an integer type, as attribute out_of_range of `cast`: what the
    processor makes of them."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return "lowest" if device == "cpu" and is_x86 else "nearest"


class Emitter:
    """Writes nodes into `builder`.

    facts: of the aten node being imported. data_sizes: names of symbols whose values nodes tell. size_values: graph
    values that are sizes, by the names of their symbols: inputs, and numbers that were read. device: "cpu", "cuda", …:
    where the model is; eager mode computes some operators in other types on a processor than on a GPU.
    """

    def __init__(self, builder: GraphBuilder, device: str) -> None:
        self.builder = builder
        self.device = device
        self.facts = NodeFacts()
        self.origins: dict[Value, Origin] = {}
        self.data_sizes: set[str] = set()
        self.size_values: dict[str, Value] = {}
        self.random_inputs: tuple[Value, Value] | None = None
        self.random_nodes = 0
        self._given_state: list[tuple[Value, Value]] | None = None
        self._constants: dict[tuple[DType, type, Any], Value] = {}

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

    def is_read(self, number: int) -> bool:
        """Whether anyone reads that result of the aten node."""
        return number in self.facts.read

    def random_source(self) -> tuple[Value, Value, int]:
        """Seed and offset, inputs drawn from torch's generator once a call, and a stream number for one operator."""
        if self._given_state is not None:
            if not self._given_state:
                raise UnsupportedOp("an operator that draws random numbers twice, from one state")
            return (*self._given_state.pop(), 0)
        if self.random_inputs is None:
            scalar = TensorType(dtypes.i64, ())
            self.random_inputs = self.builder.input(scalar, "seed"), self.builder.input(scalar, "offset")
        self.random_nodes += 1
        return (*self.random_inputs, self.random_nodes - 1)

    @contextmanager
    def drawing_from(self, seed: Value, offset: Value) -> Iterator[None]:
        """Inside, one operator draws from this state instead of from what is drawn once a call."""
        self._given_state = [(seed, offset)]
        try:
            yield
        finally:
            self._given_state = None

    # --- nodes ---------------------------------------------------------------------------------------------------

    def emit(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Apply a core operator with one output."""
        (value,) = self.emit_all(op, inputs, attrs)
        return value

    def emit_all(
        self, op: str | OperatorSpec, inputs: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """Apply an operator and return all its values; one without a definition is written as its decomposition.

        UnsupportedOp when core lacks it.
        """
        if isinstance(op, str) and op not in self.builder.operators:
            raise UnsupportedOp(f"core has no operator {op}")
        spec = self.builder.operators[op] if isinstance(op, str) else op
        if spec.define is None and spec.decompose is not None:
            outputs = tuple(spec.decompose(self.builder, inputs, spec.attrs(attrs)))
        else:
            outputs = self.builder.emit_all(spec, inputs, attrs)
        origin = Origin(spec.name, tuple(inputs), Attrs(attrs), spec.kind == "view")
        self.origins.update(dict.fromkeys(outputs, origin))
        return outputs

    def own(self, value: Value) -> Value:
        """Note that a value that the builder has emitted has memory of its own."""
        self.origins[value] = Origin("", (), Attrs({}), False)
        return value

    # --- numbers and element types -------------------------------------------------------------------------------

    def constant(self, number: Number, dtype: DType) -> Value:
        """A tensor without axes. Integers wrap around in an integer type, as in torch."""
        key = (dtype, type(number), str(number))
        known = self._constants.get(key)
        if known is None:
            held = wrapped(number, dtype) if isinstance(number, int) and dtype.is_int else number
            known = self._constants[key] = self.builder.constant(held, dtype)
        return known

    def size(self, size: Dim, dtype: DType = dtypes.i64) -> Value:
        """A size as a tensor without axes."""
        if isinstance(size, int):
            return self.constant(size, dtype)
        return self.emit("full", shape=(), value=size, dtype=dtype)

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

    # --- views ---------------------------------------------------------------------------------------------------

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` in another shape, which holds no -1."""
        origin = self.origins.get(value)
        while origin is not None and origin.op == "reshape" and origin.inputs[0] is not None:
            value = origin.inputs[0]
            origin = self.origins.get(value)
        return value if same_shape(value.tensor.shape, shape) else self.emit("reshape", value, shape=tuple(shape))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """`value` with its axes in another order; negative axes count from the end."""
        rank = value.tensor.rank
        order = tuple(axis % rank for axis in perm)
        origin = self.origins.get(value)
        if origin is not None and origin.op == "transpose" and origin.inputs[0] is not None:
            inner = origin.attrs["perm"]
            value, order = origin.inputs[0], tuple(inner[axis] for axis in order)
        return value if order == tuple(range(rank)) else self.emit("transpose", value, perm=order)

    def expand(self, value: Value, shape: Sequence[Dim]) -> Value:
        """`value` with axes of extent 1 repeated and leading axes added; `shape` holds no -1."""
        return value if same_shape(value.tensor.shape, shape) else self.emit("expand", value, shape=tuple(shape))

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` with new axes of extent 1 at these places of the result."""
        return self.emit("unsqueeze", value, axes=tuple(axes)) if axes else value

    def squeeze(self, value: Value, axes: Sequence[int]) -> Value:
        """`value` without those of `axes` that have extent 1."""
        rank = value.tensor.rank
        gone = tuple(axis % rank for axis in axes if rank and value.tensor.shape[axis % rank] == 1)
        return self.emit("squeeze", value, axes=gone) if gone else value

    def contents(self, value: Value) -> Value:
        """The value whose elements `value` shows in another order or selection: what stands before all views."""
        origin = self.origins.get(value)
        while origin is not None and origin.is_view and origin.inputs[0] is not None:
            value = origin.inputs[0]
            origin = self.origins.get(value)
        return value

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
        return self.reshape(value, want.shape) if is_told else value

    def require_inferred(self, value: Any) -> None:
        """UnsupportedOp unless a handler made what torch infers; else the handler is wrong, and eager mode is right."""
        made = value if isinstance(value, tuple) else (value,)
        for number, (got, want) in enumerate(zip(made, self.results, strict=False)):
            if isinstance(got, Value) and want is not None:
                if not _agree(got.tensor, want):
                    raise UnsupportedOp(f"result {number} would be {got.type}, torch infers {want}")
            elif got is None and want is not None and self.is_read(number):
                raise UnsupportedOp(f"result {number} is read, but core does not compute it")


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are provably equal."""
    return len(a) == len(b) and all(x is y or prove_equal(x, y) is True for x, y in zip(a, b, strict=True))


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


def is_dim(value: object) -> bool:
    """Whether a value is a size: an int or a symbolic one."""
    return isinstance(value, int | DimExpr) and not isinstance(value, bool)


def dim_value(value: Value) -> Dim | None:
    """The size that a `DimType` value stands for; None for tensors."""
    return value.type.dim if isinstance(value.type, DimType) else None


def _agree(made: TensorType, inferred: TensorType) -> bool:
    """Whether dtypes are equal, and sizes where both are fixed."""
    if made.dtype != inferred.dtype or made.rank != inferred.rank:
        return False
    pairs = zip(made.shape, inferred.shape, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))

"""Everything about a stage of a host program that depends on values of symbols alone, resolved once a shape class."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.dims import Dim, DimExpr, compile_evaluator
from hidet.errors import ShapeError
from hidet.loc import Loc
from hidet.runtime.memory import Allocate
from hidet.runtime.parameters import number_error
from hidet.runtime.plan import plan_memory
from hidet.runtime.program import (
    ForeignCall,
    HostProgram,
    ObjectSlot,
    OutputSlot,
    Place,
    Segment,
    Step,
    TensorSlot,
    step_places,
)
from hidet.runtime.stages import Stage

if TYPE_CHECKING:
    from hidet.runtime.parameter_sets import ParameterState

Resolve = Callable[[Dim], int]


@dataclass(slots=True)
class Execution:
    """What one running call owns: the slot table, and the arena of `nbytes` that its temporaries lie in."""

    table: Any
    address: int
    arena: object
    nbytes: int = 0
    # That of the parameters whose addresses the table has; not the parameters, which would live as long.
    key: tuple[int, ...] | None = None

    def copied(self) -> Execution:
        """The same with a table of its own."""
        table = type(self.table).from_buffer_copy(self.table)
        return Execution(table, ctypes.addressof(table), self.arena, self.nbytes)

    def fill(self, addresses: Mapping[int, int], parameters: ParameterState | None) -> None:
        """Write addresses to their slots: of the call's own tensors, and of its parameters where they have changed."""
        table = self.table
        if parameters is not None and parameters.key is not self.key:
            for slot, address in parameters.addresses.items():
                table[slot] = address
            self.key = parameters.key
        for slot, address in addresses.items():
            table[slot] = address


@dataclass(frozen=True, slots=True)
class ResolvedTensor:
    """A tensor with sizes known; strides and offset in elements."""

    slot: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype_name: str
    itemsize: int


@dataclass(frozen=True, slots=True)
class ResolvedOutput:
    """An output with sizes known. nbytes: of the memory it needs, None when it lies in another output or an input.

    is_whole: its elements are all of that memory, so that it needs no view.
    """

    tensor: ResolvedTensor
    nbytes: int | None
    is_whole: bool


ResolvedArgument = ResolvedTensor | ObjectSlot | int | None


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """Arguments and results of a step other than a segment, sizes known. Results made by the step are not among them.

    Arguments are in the order of `step_places`.
    """

    arguments: tuple[ResolvedArgument, ...]
    results: tuple[ResolvedTensor, ...]


class SizeEvaluator:
    """Values of all sizes of a stage from those of its symbols: one generated function, made once."""

    def __init__(self, stage: Stage) -> None:
        self._sizes: dict[int, DimExpr] = {id(d): d for d in stage.resolved if isinstance(d, DimExpr)}
        self._evaluate = compile_evaluator(list(self._sizes.values()), stage.names) if self._sizes else None

    def __call__(self, values: Sequence[int]) -> Resolve:
        """The size of each dim object of the program, with the symbols at `values`."""
        if self._evaluate is None:
            return lambda dim: dim if isinstance(dim, int) else _no_value(dim)
        known: Mapping[int, int] = dict(zip(self._sizes, self._evaluate(values), strict=True))
        return lambda dim: dim if isinstance(dim, int) else known[id(dim)]


def _no_value(dim: Dim) -> int:
    raise AssertionError(f"the size {dim} is no size of the program")


class ShapeClass:
    """A memory plan, sizes and outputs for one tuple of symbol values, and executions that are free to be used."""

    __slots__ = ("_buffer_slots", "_size_slots", "arena_bytes", "arenas", "calls", "free", "outputs", "used")

    def __init__(self, program: HostProgram, stage: Stage, resolve: Resolve) -> None:
        _require_sizes(stage, resolve)
        _require_numbers(stage, resolve)
        buffers = stage.buffers
        plan = plan_memory([(b.first, b.last) for b in buffers], [max(resolve(b.nbytes), 0) for b in buffers])
        self.arena_bytes = plan.nbytes
        self._buffer_slots = [(b.slot, offset) for b, offset in zip(buffers, plan.offsets, strict=True)]
        self._size_slots = [(slot, resolve(dim)) for slot, dim in stage.sizes]
        self.outputs = [(number, _resolve_output(program.outputs[number], resolve)) for number in stage.outputs]
        steps = (program.steps[number] for number in stage.steps)
        self.calls = [_resolve_call(step, resolve) for step in steps if not isinstance(step, Segment)]
        self.free: list[Execution] = []
        self.arenas: list[tuple[object, int]] = []
        self.used = 0

    def enter(self, table: Any, allocate: Allocate) -> tuple[object, int]:
        """Lay a later stage out in the table of a call. What it returns goes back to `arenas` when the call ends."""
        try:
            memory = self.arenas.pop()
        except IndexError:
            memory = allocate(self.arena_bytes)
        for slot, offset in self._buffer_slots:
            table[slot] = memory[1] + offset
        for slot, value in self._size_slots:
            table[slot] = value
        return memory

    def take(self, slots: int, constants: Sequence[tuple[int, int]], allocate: Allocate) -> Execution:
        """An execution nobody uses: a freed one, or a new one with its fixed slots filled.

        allocate: gives the arena of a new one.
        """
        try:
            return self.free.pop()
        except IndexError:
            return self.make(slots, constants, allocate)

    def make(self, slots: int, constants: Sequence[tuple[int, int]], allocate: Allocate) -> Execution:
        """A new execution with its fixed slots filled."""
        table = (ctypes.c_int64 * max(slots, 1))()
        arena, base = allocate(self.arena_bytes)
        for slot, offset in self._buffer_slots:
            table[slot] = base + offset
        for slot, value in (*self._size_slots, *constants):
            table[slot] = value
        return Execution(table, ctypes.addressof(table), arena, self.arena_bytes)


def _require_sizes(stage: Stage, resolve: Resolve) -> None:
    """ShapeError for the first size that differs from what the code relies on."""
    for check in stage.size_checks:
        left, right = resolve(check.left), resolve(check.right)
        if left != right if check.is_equality else left > right:
            relation = "equal to" if check.is_equality else "at most"
            raise ShapeError(
                f"operator {check.what} needs {_size_text(check.left, left)} to be {relation} "
                f"{_size_text(check.right, right)}",
                loc=Loc(name=check.place) if check.place else None,
            )


def _require_numbers(stage: Stage, resolve: Resolve) -> None:
    """DTypeError for the first number that the integer type that it is passed as does not hold."""
    for check in stage.number_checks:
        value = resolve(check.value)
        if not check.dtype.min <= value <= check.dtype.max:
            error = number_error(check.what, value, check.dtype)
            error.loc = Loc(name=check.place) if check.place else None
            raise error


def _size_text(dim: Dim, value: int) -> str:
    return str(value) if isinstance(dim, int) else f"{dim} = {value}"


def _resolve_tensor(tensor: TensorSlot, resolve: Resolve) -> ResolvedTensor:
    return ResolvedTensor(
        tensor.slot,
        tuple(map(resolve, tensor.shape)),
        tuple(map(resolve, tensor.strides)),
        resolve(tensor.offset),
        tensor.dtype.name,
        tensor.dtype.nbytes,
    )


def _resolve_output(output: OutputSlot, resolve: Resolve) -> ResolvedOutput | int | None:
    """The output with sizes known; a plain integer for a size, None for a result that a step makes."""
    if output.is_made or output.host is not None:
        return None
    if output.tensor is None:
        assert output.size is not None
        return resolve(output.size)
    tensor = _resolve_tensor(output.tensor, resolve)
    nbytes = None if output.storage is None else max(resolve(output.storage), 0)
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
    used = 0 if 0 in tensor.shape else last + 1
    return ResolvedOutput(tensor, nbytes, nbytes == used * tensor.itemsize and tensor.offset == 0)


def _resolve_call(step: Step, resolve: Resolve) -> ResolvedCall:
    arguments = tuple(_resolve_place(place, resolve) for place in step_places(step))
    if not isinstance(step, ForeignCall) or step.is_made:
        return ResolvedCall(arguments, ())
    results = (_resolve_tensor(result, resolve) for result in step.results if isinstance(result, TensorSlot))
    return ResolvedCall(arguments, tuple(results))


def _resolve_place(place: Place | None, resolve: Resolve) -> ResolvedArgument:
    if place is None or isinstance(place, ObjectSlot):
        return place
    return _resolve_tensor(place, resolve) if isinstance(place, TensorSlot) else resolve(place)

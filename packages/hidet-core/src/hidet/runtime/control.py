"""Steps of a host program that the host itself carries out: sizes read from memory, branches and loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from hidet import dims
from hidet.dims import Dim, prove_equal, symbols
from hidet.dtypes import boolean, i64
from hidet.errors import ShapeError
from hidet.graph.position import is_outside, position_error
from hidet.loc import Loc
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.frame import Frame, Located, address_in, address_of, flag, located, row_major, tell
from hidet.runtime.memory import require_memory
from hidet.runtime.program import (
    Branch,
    HostProgram,
    Loop,
    ObjectSlot,
    PositionCheck,
    ReadSizes,
    SubProgram,
    TensorSlot,
)
from hidet.runtime.shape_class import ResolvedCall, ResolvedTensor
from hidet.runtime.symbol_values import symbol_reader


class Callee(Protocol):
    """Runs a program on tensors that `pointer` locates."""

    program: HostProgram

    def execute(
        self,
        arguments: Sequence[Any],
        adapter: TensorAdapter,
        pointer: Callable[[Any], int],
    ) -> list[Any]:
        """Results, as `Executor.run` gives them."""

    def repeat(
        self, arguments: Sequence[Any], adapter: TensorAdapter, pointer: Callable[[Any], int], carried: int, count: int
    ) -> list[Any] | None:
        """As `Executor.repeat`."""


def read_sizes(step: ReadSizes, call: ResolvedCall, frame: Frame) -> None:
    """Values of symbols. ShapeError for one that its symbol cannot have."""
    (source,) = call.arguments
    assert isinstance(source, ResolvedTensor)
    read = frame.memory.read(address_in(source, frame), step.source.dtype, len(step.symbols))
    for symbol, value in zip(step.symbols, read, strict=True):
        if not symbol.admits(value):
            raise ShapeError(f"a size computed from data is {value}, expected {symbol.facts()}")
        frame.values[symbol.name] = value


def check_positions(step: PositionCheck, call: ResolvedCall, frame: Frame) -> None:
    """PositionError when there is a position outside of its axis."""
    worst, extent, count = call.arguments
    assert isinstance(worst, ResolvedTensor) and isinstance(extent, int) and isinstance(count, int)
    if count <= 0:
        return
    (found,) = frame.memory.read(address_in(worst, frame), i64, 1)
    if is_outside(found, extent, step.wraps):
        raise position_error(found, extent, step.wraps, step.what, Loc(name=step.place) if step.place else None)


class BranchStep:
    """Runs one of two programs."""

    def __init__(self, step: Branch, then: Callee, otherwise: Callee) -> None:
        self.step = step
        self._then, self._otherwise = then, otherwise
        self._checks = _Checks(step.then), _Checks(step.otherwise)

    def run(self, call: ResolvedCall, frame: Frame) -> None:
        """Keep the results of the branch that the condition chooses."""
        step = self.step
        condition, *arguments = call.arguments
        count = len(step.then.arguments)
        if flag(condition, frame):
            callee, chosen, checks = self._then, arguments[:count], self._checks[0]
        else:
            callee, chosen, checks = self._otherwise, arguments[count:], self._checks[1]
        given = [located(argument, frame) for argument in chosen]
        checks(given, step.name)
        results = callee.execute(given, frame.adapter, address_of)
        for place, value in zip(step.results, results, strict=True):
            frame.keep(place, value)
        tell(step.name, step.results, step.defines, results, frame)


class LoopStep:
    """Runs a program repeatedly."""

    def __init__(self, step: Loop, body: Callee) -> None:
        self.step = step
        self._body = body
        self._checks = _Checks(step.body)
        outputs = body.program.outputs[1 if step.tests else 0 :]
        self._carried_checks = _Checks(step.body, [output.tensor for output in outputs[: step.carried]])
        self._is_alike = not step.tests and self._carried_checks.are_none

    def run(self, call: ResolvedCall, frame: Frame) -> None:
        """Iterate, then keep the final values and the stacks."""
        step, adapter, memory = self.step, frame.adapter, frame.memory
        limit, condition, _, *arguments = call.arguments
        most: Any = limit
        if isinstance(limit, ResolvedTensor) and isinstance(step.limit, TensorSlot):
            most = memory.read(address_in(limit, frame), step.limit.dtype, 1)[0]
        goes_on = condition is None or flag(condition, frame)
        # An address of its own: the body reads the number of the iteration from there.
        number, where = adapter.empty((), (), "int64")
        given: list[Any] = [Located(where, (), number), *[located(argument, frame) for argument in arguments]]
        if goes_on and isinstance(most, int) and most > 0 and self._is_alike:
            self._checks(given, step.name)
            repeated = self._body.repeat(given, adapter, address_of, step.carried, most)
            if repeated is not None:
                for place, value in zip(step.results, repeated, strict=True):
                    frame.keep(place, value)
                tell(step.name, step.results, step.defines, repeated, frame)
                return
        carried = range(1, 1 + step.carried)
        final: list[Any] = [None] * step.carried
        is_counted = isinstance(most, int) and not step.tests
        stacks = [_Stack(place, most if is_counted else None) for place in step.results[step.carried :]]
        first = 1 if step.tests else 0
        iteration = 0
        checks = self._checks
        while goes_on and (not isinstance(most, int) or iteration < most):
            memory.write(where, iteration)
            checks(given, step.name)
            made = self._body.execute(given, adapter, address_of)
            for index in carried:
                value = final[index - 1] = made[first + index - 1]
                is_object = isinstance(step.results[index - 1], ObjectSlot)
                given[index] = value if is_object else Located(adapter.pointer(value), value.shape, value)
            for stack, value in zip(stacks, made[first + step.carried :], strict=True):
                stack.append(value, frame)
            if first:
                goes_on = bool(memory.read(adapter.pointer(made[0]), boolean, 1)[0])
            iteration += 1
            checks = self._carried_checks
        if iteration == 0:
            final = [_copied(argument, place, frame) for argument, place in zip(given[1:], step.results, strict=False)]
        results = [*final[: step.carried], *(stack.finish(frame) for stack in stacks)]
        for place, value in zip(step.results, results, strict=True):
            frame.keep(place, value)
        tell(step.name, step.results, step.defines, results, frame)


class _Stack:
    """Results of iterations, stacked along a new axis 0. With a known count each is put in its place at once."""

    def __init__(self, place: TensorSlot | ObjectSlot, count: int | None) -> None:
        assert isinstance(place, TensorSlot)
        self._place = place
        self._count = count
        self._rows: list[Any] = []
        self._done = 0
        self._whole: Any = None
        self._address = 0
        self._shape: tuple[int, ...] = ()

    def append(self, value: Any, frame: Frame) -> None:
        """ShapeError when its shape differs from that of the results before."""
        shape = tuple(value.shape)
        if self._done == 0:
            self._shape = shape
        elif shape != self._shape:
            raise ShapeError(f"a loop makes results of shapes {self._shape} and {shape}, which cannot be stacked")
        if self._count is None:
            if not frame.stream:
                # The rows, which systems grant one by one until they end the process, and the stack of them.
                require_memory(2 * (self._done + 1) * self._row_bytes())
            self._rows.append(value)
        else:
            if self._whole is None:
                self._allocate(self._count, frame)
            self._put(value, frame)
        self._done += 1

    def finish(self, frame: Frame) -> Any:
        """The stack. Extents that nothing has told, because there was no iteration, are 0."""
        if self._done == 0:
            names = frame.values
            extents = [e if all(s.name in names for s in symbols(e)) else 0 for e in self._place.shape[1:]]
            self._shape = tuple(dims.evaluate(extent, names) for extent in extents)
        if self._whole is None:
            self._allocate(self._done, frame)
            rows, self._rows, self._done = self._rows, [], 0
            for row in rows:
                self._put(row, frame)
                self._done += 1
        return self._whole

    def _allocate(self, count: int, frame: Frame) -> None:
        shape = (count, *self._shape)
        self._whole, self._address = frame.adapter.empty(shape, row_major(shape), self._place.dtype.name)

    def _row_bytes(self) -> int:
        return math.prod(self._shape) * self._place.dtype.nbytes

    def _put(self, value: Any, frame: Frame) -> None:
        nbytes = self._row_bytes()
        if nbytes:
            frame.memory.copy(self._address + self._done * nbytes, frame.adapter.pointer(value), nbytes)


class _Checks:
    """Extents of a program's inputs that must be compared with those given, because they cannot be proved equal."""

    def __init__(self, sub: SubProgram, carried: Sequence[TensorSlot | None] = ()) -> None:
        """carried: what stands for the arguments after the first one, in place of those that the step starts with."""
        given = list(sub.arguments)
        given[1 : 1 + len(carried)] = [
            old if new is None else new for new, old in zip(carried, given[1:], strict=False)
        ]
        told = {(s.input, s.axis) for s in sub.program.symbols if s.is_plain}
        self._unproved: list[tuple[int, int, Dim]] = []
        for number, (place, expected) in enumerate(zip(given, sub.program.inputs, strict=True)):
            if isinstance(place, TensorSlot) and expected.tensor is not None:
                pairs = zip(place.shape, expected.tensor.shape, strict=True)
                self._unproved += [
                    (number, axis, wanted)
                    for axis, (have, wanted) in enumerate(pairs)
                    if (number, axis) not in told and prove_equal(have, wanted) is not True
                ]
        self._names = [source.name for source in sub.program.symbols]
        self._read = symbol_reader(sub.program.symbols)

    @property
    def are_none(self) -> bool:
        """Whether there is nothing to compare."""
        return not self._unproved

    def __call__(self, given: Sequence[Any], name: str) -> None:
        """ShapeError for an extent that differs."""
        if not self._unproved:
            return
        values: Mapping[str, int] = dict(zip(self._names, self._read(given), strict=True))
        for number, axis, wanted in self._unproved:
            expected = dims.evaluate(wanted, values)
            if given[number].shape[axis] != expected:
                raise ShapeError(
                    f"operator {name}: axis {axis} of value {number} is {given[number].shape[axis]}, expected {wanted} "
                    f"= {expected}"
                )


def _copied(argument: Any, place: TensorSlot | ObjectSlot, frame: Frame) -> Any:
    """The initial value of a loop without iterations, in memory of its own."""
    if isinstance(place, ObjectSlot):
        return argument
    made, address = frame.adapter.empty(argument.shape, row_major(argument.shape), place.dtype.name)
    nbytes = place.dtype.nbytes
    for extent in argument.shape:
        nbytes *= extent
    if nbytes:
        frame.memory.copy(address, argument.address, nbytes)
    return made

"""Running a host program: tables, arenas, outputs, and the call of each segment.

The memory plan is shared; each call takes an `Execution` (a table and an arena) of its shape class from a free list and
returns it, so that concurrent calls never share temporaries and results of earlier calls stay valid. There are no
locks: what threads share is replaced as a whole or changed by one operation of a built-in list.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from warnings import warn

from hidet.errors import FallbackWarning, HidetError
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.control import BranchStep, LoopStep, check_positions, read_sizes
from hidet.runtime.foreign import call_foreign
from hidet.runtime.frame import Frame, row_major
from hidet.runtime.memory import Allocate, HostMemory, host_arena
from hidet.runtime.program import (
    Branch,
    ForeignCall,
    HostProgram,
    Loop,
    PositionCheck,
    ReadSizes,
    Segment,
    Step,
    SubProgram,
)
from hidet.runtime.realigned import Realigner, find_misaligned
from hidet.runtime.replay import Call, Instance, Replays
from hidet.runtime.shape_class import ResolvedOutput, ShapeClass, SizeEvaluator
from hidet.runtime.stages import Stage, split_stages
from hidet.runtime.symbol_values import symbol_reader

if TYPE_CHECKING:
    from hidet.runtime.parameter_sets import ParameterState
    from hidet.target import DeviceMemory, DeviceWork

SegmentFunction = Callable[..., object]
"""Code of a segment: takes the address of the slot table, and on a device the handle of a stream besides."""

MAX_SHAPE_CLASSES = 8
"""Shape classes kept, with their arenas; beyond that the one used longest ago is dropped."""


class Executor:
    """Runs one host program on tensors of one framework at a time."""

    def __init__(
        self,
        program: HostProgram,
        functions: Mapping[str, SegmentFunction],
        constants: Sequence[Any],
        memory: DeviceMemory | None = None,
        replay_after: int | None = None,
    ) -> None:
        """constants: the store of arrays that the program's constants, and those of programs inside, index.

        memory: of the device where the tensors are; None is the memory of this process. replay_after: how often a call
        runs as it is before it is captured and replayed; None captures none.
        """
        self.program = program
        self._device = memory
        arrays = [(c.slot, constants[c.index]) for c in program.constants]
        self._host_constants = [(slot, array) for slot, array in arrays if array.dtype.hasobject]
        numbers = [(slot, array) for slot, array in arrays if not array.dtype.hasobject]
        placed = [(slot, *_placed(array, memory)) for slot, array in numbers]
        self._keep_alive = [arrays, placed]
        self._constants = [(slot, address) for slot, _, address in placed]
        self._clock = itertools.count(1)
        self._read_symbols = symbol_reader(program.symbols)
        used = [(n, i.tensor.slot) for n, i in enumerate(program.inputs) if i.tensor is not None and i.is_used]
        self._tensor_inputs = used
        self._other_inputs = [(n, slot) for n, slot in used if not program.inputs[n].is_parameter]
        self._realigner = Realigner(program)
        self._host_inputs = [(n, i.host.slot) for n, i in enumerate(program.inputs) if i.host is not None]
        self._steps = [self._step(step, functions, constants) for step in program.steps]
        returned = [n for n, o in enumerate(program.outputs) if o.mutates is None]
        self._place = {number: place for place, number in enumerate(returned)}
        self._first, *self._later = [_StageRunner(program, stage, self._clock) for stage in split_stages(program)]
        is_compiled = not self._later and all(callable(step) for step in self._steps)
        self._is_plain = is_compiled and not any(output.host for output in program.outputs)
        are_tensors = all(output.tensor is not None for output in program.outputs)
        # Iterations leave their results wherever in a stack they belong.
        self._repeats = self._is_plain and memory is None and are_tensors and not program.aligned
        self.replays: Replays | None = None
        if memory is not None and memory.can_capture and replay_after is not None and self._is_plain:
            self.replays = Replays(program, memory, replay_after)

    def _step(self, step: Step, functions: Mapping[str, SegmentFunction], constants: Sequence[Any]) -> Any:
        """What runs a step: the function of a segment, or an object with its programs."""

        def callee(inner: SubProgram) -> Executor:
            return Executor(inner.program, functions, constants, self._device)

        if isinstance(step, Branch):
            return BranchStep(step, callee(step.then), callee(step.otherwise))
        if isinstance(step, Loop):
            return LoopStep(step, callee(step.body))
        return functions[step.symbol] if isinstance(step, Segment) else step

    @property
    def shape_classes(self) -> int:
        """How many shape classes are kept."""
        return len(self._first.classes)

    @property
    def may_guess(self) -> bool:
        """Whether `guess` may do anything."""
        return self.replays is not None and self.program.is_repeatable and bool(self.replays.instances)

    def guess(self, arguments: Sequence[Any], adapter: TensorAdapter, parameters: ParameterState) -> list[Any] | None:
        """As `run`, for parameters that may turn out to be others; None for a call that is not captured."""
        replays, device = self.replays, self._device
        assert replays is not None and device is not None
        stream = adapter.stream()
        if device.is_capturing(stream):
            return None
        values = self._read_symbols(arguments)
        shapes = self._first.shape_class(values, stream)
        results: list[Any] = [None] * len(self._place)
        storages: dict[int, Any] = {}
        addresses = self._locate(shapes, arguments, adapter, adapter.pointer, parameters, results, storages)
        copies = self._realign(addresses, parameters, values, adapter, stream)
        call = Call(stream, values, addresses, parameters)
        is_done = self._replayed(replays, shapes, call, adapter, is_guess=True)
        del copies
        return results if is_done else None

    def record(
        self, arguments: Sequence[Any], adapter: TensorAdapter, parameters: ParameterState | None = None
    ) -> tuple[DeviceWork, object] | None:
        """A call as work that can be launched again and again, on the same memory, and what keeps that alive. None on
        the host, on a device that records nothing, for a program that runs from Python in part, and for tensors that a
        call has to copy first. The call must have run before: that loads kernels."""
        device = self._device
        if device is None or not device.can_capture or not self._is_plain:
            return None
        values, stream = self._read_symbols(arguments), adapter.stream()
        shapes = self._first.shape_class(values, stream)
        results: list[Any] = [None] * len(self._place)
        storages: dict[int, Any] = {}
        addresses = self._locate(shapes, arguments, adapter, adapter.pointer, parameters, results, storages)
        if self._realign(addresses, parameters, values, adapter, stream):
            return None
        execution = shapes.make(self.program.slots, self._constants, _allocator(adapter))
        execution.fill(addresses, parameters)
        work = device.capture(lambda stream: self._run_plain(execution.address, stream))
        return work, (execution, results, storages, arguments, parameters)

    def run(
        self, arguments: Sequence[Any], adapter: TensorAdapter, parameters: ParameterState | None = None
    ) -> list[Any]:
        """Run once. `parameters`: of the call; None for a program without any."""
        return self.execute(arguments, adapter, adapter.pointer, parameters)

    def execute(
        self,
        arguments: Sequence[Any],
        adapter: TensorAdapter,
        pointer: Callable[[Any], int],
        parameters: ParameterState | None = None,
    ) -> list[Any]:
        """As `run`, on tensors that have a `shape` and that `pointer` locates; results are tensors of `adapter`."""
        values = self._read_symbols(arguments)
        # Work in one stream is in order, so an arena may be used again at once, but by its own stream alone.
        stream: tuple[int, ...] = () if self._device is None else (adapter.stream(),)
        shapes = self._first.shape_class(values, *stream)
        results: list[Any] = [None] * len(self._place)
        storages: dict[int, Any] = {}
        addresses = self._locate(shapes, arguments, adapter, pointer, parameters, results, storages)
        copies = self._realign(addresses, parameters, values, adapter, *stream)
        is_recorded = self._device is not None and self._device.is_capturing(*stream)
        if self.replays is not None and not is_recorded:
            call = Call(stream[0], values, addresses, parameters)
            if self._replayed(self.replays, shapes, call, adapter):
                return results
        allocate = host_arena if self._device is None else _allocator(adapter)
        if is_recorded:
            # What a graph of somebody else's writes to is its own, because it runs whenever its owner likes, and what
            # it reads stays as long as it does.
            assert self._device is not None
            self._device.keep_for_graph(stream[0], (self._keep_alive, parameters, copies))
            execution = shapes.make(self.program.slots, self._constants, allocate)
        else:
            execution = shapes.take(self.program.slots, self._constants, allocate)
        execution.fill(addresses, parameters)
        if self._is_plain:
            self._run_plain(execution.address, *stream)
        else:
            names = (source.name for source in self.program.symbols)
            memory = HostMemory() if self._device is None else self._device.in_stream(stream[0])
            frame = Frame(execution.table, adapter, memory, dict(zip(names, values, strict=True)), stream)
            frame.objects.update(self._host_constants)
            frame.objects.update((slot, arguments[number]) for number, slot in self._host_inputs)
            self._run_stages(frame, shapes, execution.address, results, storages, allocate)
        if not is_recorded:
            shapes.free.append(execution)
        del storages, copies
        return results

    def repeat(
        self, arguments: Sequence[Any], adapter: TensorAdapter, pointer: Callable[[Any], int], carried: int, count: int
    ) -> list[Any] | None:
        """Run `count` times, at least once; None where this has to be done call by call, with nothing run.

        Argument 0 is an i64 that counts up from 0; the first `carried` results are the next arguments 1, 2, …; further
        results are stacked along a new axis 0. The table is laid out once: iterations change addresses alone.
        """
        if not self._repeats or len(self._place) < len(self.program.outputs):
            return None
        values = self._read_symbols(arguments)
        shapes = self._first.shape_class(values)
        outputs = [output for _, output in shapes.outputs]
        made = [output.tensor for output in outputs if isinstance(output, ResolvedOutput) and output.is_whole]
        if len(made) < len(outputs):
            return None
        if any(tensor.shape != tuple(arguments[1 + n].shape) for n, tensor in enumerate(made[:carried])):
            return None
        addresses = {slot: pointer(arguments[number]) for number, slot in self._tensor_inputs}
        # What an iteration reads, the next one may overwrite.
        pairs: list[tuple[int | None, int, list[int]]] = []
        results: list[Any] = []
        kept: list[list[Any]] = []
        given = {number: slot for number, slot in self._tensor_inputs if number <= carried}
        for number, tensor in enumerate(made[:carried]):
            blocks = [adapter.empty(tensor.shape, tensor.strides, tensor.dtype_name) for _ in range(min(count, 2))]
            kept.append([block for block, _ in blocks])
            pairs.append((given.get(1 + number), tensor.slot, [address for _, address in blocks]))
        stacks: list[tuple[int, int, int]] = []
        for tensor in made[carried:]:
            shape = (count, *tensor.shape)
            whole, address = adapter.empty(shape, row_major(shape), tensor.dtype_name)
            results.append(whole)
            stacks.append((tensor.slot, address, math.prod(tensor.shape) * tensor.itemsize))
        execution = shapes.take(self.program.slots, self._constants, host_arena)
        execution.fill(addresses, None)
        table, address, steps = execution.table, execution.address, self._steps
        turn = ctypes.c_int64.from_address(pointer(arguments[0]))
        for iteration in range(count):
            turn.value = iteration
            into = iteration % 2
            for source, target, places in pairs:
                if iteration and source is not None:
                    table[source] = places[1 - into]
                table[target] = places[into]
            for slot, start, nbytes in stacks:
                table[slot] = start + iteration * nbytes
            for step in steps:
                step(address)
        shapes.free.append(execution)
        return [*(blocks[(count - 1) % 2] for blocks in kept), *results]

    def _locate(
        self,
        shapes: ShapeClass,
        arguments: Sequence[Any],
        adapter: TensorAdapter,
        pointer: Callable[[Any], int],
        parameters: ParameterState | None,
        results: list[Any],
        storages: dict[int, Any],
    ) -> dict[int, int]:
        """Addresses of what each call has others of, by slot: of results, which are allocated, and of inputs."""
        addresses: dict[int, int] = {}
        self._allocate(shapes, addresses, adapter, results, storages)
        for number, slot in self._tensor_inputs if parameters is None else self._other_inputs:
            addresses[slot] = pointer(arguments[number])
        return addresses

    def _realign(
        self,
        addresses: dict[int, int],
        parameters: ParameterState | None,
        values: tuple[int, ...],
        adapter: TensorAdapter,
        *stream: int,
    ) -> list[Any]:
        """Copies of the inputs that do not begin where steps need it, which take their places in `addresses`."""
        realigner = self._realigner
        wanted = find_misaligned(realigner.slots if parameters is None else realigner.others, addresses)
        sources: Mapping[int, int] = addresses
        if parameters is not None and parameters.misaligned:
            wanted += parameters.misaligned
            sources = {**addresses, **parameters.addresses}
        if not wanted:
            return []
        memory = HostMemory() if self._device is None else self._device.in_stream(*stream)
        return realigner.replace(wanted, addresses, sources, values, adapter, memory)

    def _replayed(
        self, replays: Replays, shapes: ShapeClass, call: Call, adapter: TensorAdapter, is_guess: bool = False
    ) -> bool:
        """Whether a captured call did the work."""

        def capture(in_place: bool) -> Instance | None:
            try:
                # The arena of calls before, which nobody else needs any more.
                arena = replays.arena(call.scope)
                execution = arena or shapes.take(self.program.slots, self._constants, _allocator(adapter))
                execution.fill(call.addresses, call.parameters)

                def run(into: int) -> None:
                    self._run_plain(execution.address, into)

                if in_place:
                    return replays.captured_in_place(call, execution, run)
                values = zip((source.name for source in self.program.symbols), call.values, strict=True)
                return replays.captured(call, shapes, dict(values), adapter, execution, run)
            except (MemoryError, RuntimeError) as error:  # torch's own is a RuntimeError
                if isinstance(error, HidetError) and not isinstance(error, MemoryError):
                    raise
                warn(
                    FallbackWarning(f"calls are not captured, because there is no memory for them: {error}"),
                    stacklevel=2,
                )
                return None

        instance = replays.find(call, capture, is_guess)
        if instance is not None:
            assert self._device is not None
            instance.replay(self._device, call)
        return instance is not None

    def _run_plain(self, address: int, *stream: int) -> None:
        for step in self._steps:
            step(address, *stream)

    def _run_stages(
        self,
        frame: Frame,
        shapes: ShapeClass,
        address: int,
        results: list[Any],
        storages: dict[int, Any],
        allocate: Allocate,
    ) -> None:
        self._run_steps(self._first, shapes, address, frame)
        entered = []
        for stage in self._later:
            shapes = stage.shape_class(tuple(frame.values.values()), *frame.stream)
            entered.append((shapes, shapes.enter(frame.table, allocate)))
            self._allocate(shapes, frame.table, frame.adapter, results, storages)
            self._run_steps(stage, shapes, address, frame)
        for number, output in enumerate(self.program.outputs):
            if output.host is not None:
                results[self._place[number]] = frame.objects[output.host.slot]
            elif output.is_made:
                assert output.tensor is not None
                results[self._place[number]] = frame.made[output.tensor.slot]
        for shapes, arena in entered:
            shapes.arenas.append(arena)

    def _run_steps(self, stage: _StageRunner, shapes: ShapeClass, address: int, frame: Frame) -> None:
        calls = iter(shapes.calls)
        for number in stage.stage.steps:
            step = self._steps[number]
            if isinstance(step, ForeignCall):
                call_foreign(step, next(calls), frame)
            elif isinstance(step, PositionCheck):
                check_positions(step, next(calls), frame)
            elif isinstance(step, ReadSizes):
                read_sizes(step, next(calls), frame)
            elif isinstance(step, BranchStep | LoopStep):
                step.run(next(calls), frame)
            else:
                step(address, *frame.stream)

    def _allocate(
        self, shapes: ShapeClass, table: Any, adapter: TensorAdapter, results: list[Any], storages: dict[int, Any]
    ) -> None:
        """Memory for the results that a stage lays out. `storages`: what of it must stay alive during the call."""
        for number, output in shapes.outputs:
            if not isinstance(output, ResolvedOutput):
                if output is not None:
                    results[self._place[number]] = output
                continue
            place = self._place.get(number)
            if place is None:
                continue
            tensor = output.tensor
            if output.is_whole:
                made, table[tensor.slot] = adapter.empty(tensor.shape, tensor.strides, tensor.dtype_name)
                storages[number] = results[place] = made
                continue
            shared = self.program.outputs[number].same_as
            if shared is None:
                assert output.nbytes is not None
                storages[number], table[tensor.slot] = adapter.empty((output.nbytes,), (1,), "uint8")
            owner = storages[number if shared is None else shared]
            results[place] = adapter.view(owner, tensor.shape, tensor.strides, tensor.offset, tensor.dtype_name)


def _allocator(adapter: TensorAdapter) -> Allocate:
    """Memory of the device that the arguments lie on, from their library, which orders its use by streams."""
    return lambda nbytes: adapter.empty((nbytes,), (1,), "uint8") if nbytes else (None, 0)


def _placed(array: Any, memory: DeviceMemory | None) -> tuple[object, int]:
    """The owner and the address of a constant where code reads it."""
    return (array, array.ctypes.data) if memory is None else memory.upload(array)


class _StageRunner:
    """The shape classes of one stage."""

    def __init__(self, program: HostProgram, stage: Stage, clock: Iterator[int]) -> None:
        self.stage = stage
        self.classes: Mapping[tuple[int, ...], ShapeClass] = {}
        self._program = program
        self._evaluate = SizeEvaluator(stage)
        self._latest: ShapeClass | None = None
        self._clock = clock

    def shape_class(self, values: tuple[int, ...], *stream: int) -> ShapeClass:
        """The class of these values of the stage's symbols; a new one replaces the one used longest ago."""
        key = (*stream, *values)
        shapes = self.classes.get(key)
        if shapes is None:
            shapes = ShapeClass(self._program, self.stage, self._evaluate(values))
            shapes.used = next(self._clock)
            # A new mapping replaces the old one. Two threads may lose each other's entry, which costs time only.
            kept = sorted(self.classes.items(), key=lambda item: -item[1].used)[: MAX_SHAPE_CLASSES - 1]
            self.classes = {**dict(kept), key: shapes}
            self._latest = shapes
        elif shapes is not self._latest:
            shapes.used = next(self._clock)
            self._latest = shapes
        return shapes

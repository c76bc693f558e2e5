"""Calls of a program on a device as one launch: calls that repeat are captured as a graph of kernels and replayed.

A captured call owns its memory: an arena, and a place for each input and result. Inputs are copied in and results out
into fresh memory, so that results stay valid after the next call. Parameters, prepared tensors and tensors that the
call overwrites are used where they lie; a call with others is another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hidet import dims
from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.memory import Memory
from hidet.runtime.program import HostProgram, TensorSlot
from hidet.runtime.shape_class import Execution, ResolvedOutput, ShapeClass

if TYPE_CHECKING:
    from hidet.target import DeviceMemory, DeviceWork

REPLAY_AFTER: Mapping[str, int | None] = {
    "default": 2,
    "reduce-overhead": 1,
    "max-autotune": 1,
    "max-autotune-no-cudagraphs": None,
}
"""How often a call runs before it is captured, by the mode of `hidet.context.Options`.

One run always comes first: it loads the kernels, which nothing may do while a call is captured.
"""

MAX_INSTANCES = 8
"""Captured calls that are kept."""

IDLE_CALLS = 64
"""Calls of a program after which an instance that none of them used may make room for another one."""

MAX_COUNTED = 64
"""Calls whose repetitions are counted; beyond that counting starts anew."""

LAUNCH_TIME, COPY_TIME = 1.5, 2.0
"""Microseconds of the host: that a kernel of a graph saves, and that a copy into or out of it costs."""

COPIED_BYTES = 250_000
"""Bytes that are copied in a microsecond: a quarter of what devices do, because with tensors so large that this counts
it is the device that takes the time, and launches cost little beside it."""

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Memory of an instance that an input or a result is copied from or to. number: of the input or output."""

    number: int
    address: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Memory of one instance: `held` keeps it, with that of temporaries, of `nbytes` in all."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    held: object
    nbytes: int


@dataclass(slots=True, eq=False)
class Instance:
    """A captured call. used: the number of the call that replayed it last."""

    work: DeviceWork
    places: Places
    used: int = 0
    # The memory is one call's at a time; on the device, the stream keeps calls in order.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def replay(
        self, memory: Memory, stream: int, sources: Mapping[int, int], results: Callable[[], Sequence[int]]
    ) -> None:
        """Run once. sources: addresses of the tensor inputs by their numbers; results: makes those of the outputs."""
        with self.lock:
            for place in self.places.inputs:
                memory.copy(place.address, sources[place.number], place.nbytes)
            self.work.launch(stream)
            for place, target in zip(self.places.outputs, results(), strict=True):
                memory.copy(target, place.address, place.nbytes)


class Replays:
    """The captured calls of one program.

    after: how often a call runs as it is before it is captured. A call whose copies would cost more than its launches
    is never captured. fixed: numbers of the inputs that are used where they lie.
    """

    def __init__(self, program: HostProgram, memory: DeviceMemory, after: int) -> None:
        self._program = program
        self._memory = memory
        self._after = after
        overwritten = {output.mutates for output in program.outputs if output.mutates is not None}
        tensors = [
            (number, slot.tensor)
            for number, slot in enumerate(program.inputs)
            if slot.tensor is not None and slot.is_used
        ]
        self.fixed = [n for n, _ in tensors if program.inputs[n].is_parameter or n in overwritten]
        self._copied = [(n, tensor) for n, tensor in tensors if n not in self.fixed]
        self._instances: dict[Key, Instance | None] = {}
        self._counts: dict[Key, int] = {}
        self._calls = 0
        self._lock = threading.Lock()

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The captured calls that are kept."""
        return tuple(instance for instance in list(self._instances.values()) if instance is not None)

    def find(
        self,
        values: Sequence[int],
        stream: int,
        addresses: Mapping[int, int],
        prepared: Sequence[int],
        capture: Callable[[], Instance | None],
    ) -> Instance | None:
        """The captured form of a call, which `capture` makes when it is time; None for a call that runs as it is.

        capture: gives None for a call that is not worth it, or cannot be captured.

        values: of the program's symbols. addresses: of the tensor inputs by their numbers.
        """
        if self._memory.is_capturing(stream):
            return None
        key = (stream, *values, *[addresses[number] for number in self.fixed], *prepared)
        with self._lock:
            self._calls += 1
            if key in self._instances:
                found = self._instances[key]
            elif self._is_due(key):
                found = self._instances[key] = capture()
            else:
                return None
            if found is not None:
                found.used = self._calls
            return found

    def _is_due(self, key: Key) -> bool:
        """Count a call, and tell whether it is to be captured now."""
        count = self._counts.get(key, 0) + 1
        if len(self._counts) >= MAX_COUNTED and key not in self._counts:
            self._counts.clear()
        self._counts[key] = count
        if count <= self._after:
            return False
        if len(self._instances) >= MAX_INSTANCES:
            oldest = min(self._instances, key=self._last_use)
            if self._calls - self._last_use(oldest) < IDLE_CALLS:
                return False
            del self._instances[oldest]
        del self._counts[key]
        return True

    def _last_use(self, key: Key) -> int:
        instance = self._instances[key]
        return 0 if instance is None else instance.used

    def places(
        self, shapes: ShapeClass, values: Mapping[str, int], adapter: TensorAdapter, execution: Execution
    ) -> Places:
        """Memory of an instance for inputs that are copied and for results; `execution` is told where it is."""
        held: list[object] = [execution]

        def place(slot: int, number: int, nbytes: int) -> Place:
            owner, address = adapter.empty((nbytes,), (1,), "uint8") if nbytes else (None, 0)
            held.append(owner)
            execution.table[slot] = address
            return Place(number, address, nbytes)

        inputs = [place(t.slot, number, _nbytes(t, values)) for number, t in self._copied]
        outputs = [place(o.tensor.slot, number, o.nbytes or 0) for number, o in owned_outputs(shapes)]
        nbytes = sum(one.nbytes for one in (*inputs, *outputs)) + shapes.arena_bytes
        return Places(tuple(inputs), tuple(outputs), held, nbytes)

    def captured(self, places: Places, run: Callable[[int], None]) -> Instance | None:
        """An instance, which has not run yet, of what `run` puts into a stream; None where it is not worth it."""
        work = self._memory.capture(run)
        return Instance(work, places) if _is_worthwhile(work, places) else None


def _nbytes(tensor: TensorSlot, values: Mapping[str, int]) -> int:
    """Bytes from the first to the last element of an input."""
    shape = [dims.evaluate(dim, values) for dim in tensor.shape]
    strides = [dims.evaluate(dim, values) for dim in tensor.strides]
    extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return extent * tensor.dtype.nbytes


def owned_outputs(shapes: ShapeClass) -> list[tuple[int, ResolvedOutput]]:
    """Results that have memory of their own, by number."""
    return [(n, o) for n, o in shapes.outputs if isinstance(o, ResolvedOutput) and o.nbytes is not None]


def _is_worthwhile(work: DeviceWork, places: Places) -> bool:
    """Whether copies in and out cost less than the launches that are saved."""
    copied = [place.nbytes for place in (*places.inputs, *places.outputs)]
    return work.kernels * LAUNCH_TIME > len(copied) * COPY_TIME + sum(copied) / COPIED_BYTES

"""Calls of a program on a device as one launch: calls that repeat are captured as a graph of kernels and replayed.

Where all tensors of a call lie as they lay before, they are used there; they often do, since allocators hand out again
what was freed. Otherwise the captured call has a place for each input and result: inputs are copied in and results out
into fresh memory. Either way results stay valid after the next call. Parameters and tensors that the
call overwrites are always used where they lie; a call with others is another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.memory import Memory
from hidet.runtime.program import HostProgram
from hidet.runtime.realigned import input_bytes
from hidet.runtime.shape_class import Execution, ResolvedOutput, ShapeClass

if TYPE_CHECKING:
    from hidet.runtime.parameter_sets import ParameterState
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

IN_PLACE_AFTER = 8
"""How often a call runs with all tensors at the same addresses before it is captured for these: often enough that it is
no coincidence."""

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
class Call:
    """What tells a call from others.

    values: of symbols, which decide every size. addresses: of its inputs and results by slot, in the order that all
    calls have. parameters: of the call; None where they are inputs like others.
    """

    stream: int
    values: tuple[int, ...]
    addresses: Mapping[int, int]
    parameters: ParameterState | None = None

    @property
    def scope(self) -> tuple[int, ...]:
        """What calls have in common whose memory has the same sizes and is used in order."""
        return (self.stream, *self.values)

    @property
    def places(self) -> tuple[int, ...]:
        """Where its parameters lie."""
        return () if self.parameters is None else self.parameters.key


@dataclass(frozen=True, slots=True)
class Place:
    """Memory of an instance that the input or result of a slot is copied to or from."""

    slot: int
    address: int
    nbytes: int


@dataclass(slots=True, eq=False)
class Instance:
    """A captured call. inputs, outputs: places of tensors that are copied. held: keeps their memory. used: the number
    of the call that replayed it last."""

    work: DeviceWork
    scope: tuple[int, ...]
    execution: Execution
    inputs: tuple[Place, ...] = ()
    outputs: tuple[Place, ...] = ()
    held: tuple[object, ...] = ()
    used: int = 0
    # The graph and the places are one call's at a time; on the device, the stream keeps calls in order.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def copied(self) -> int:
        """Bytes of its places."""
        return sum(place.nbytes for place in (*self.inputs, *self.outputs))

    def replay(self, device: DeviceMemory, call: Call) -> None:
        """Run once."""
        if not self.inputs and not self.outputs:
            with self.lock:
                self.work.launch(call.stream)
            return
        memory: Memory = device.in_stream(call.stream)
        with self.lock:
            for place in self.inputs:
                memory.copy(place.address, call.addresses[place.slot], place.nbytes)
            self.work.launch(call.stream)
            for place in self.outputs:
                memory.copy(call.addresses[place.slot], place.address, place.nbytes)


class Replays:
    """The captured calls of one program.

    after: how often a call runs as it is before it is captured. A call whose copies would cost more than its launches
    is never captured that way.
    """

    def __init__(self, program: HostProgram, memory: DeviceMemory, after: int) -> None:
        self._memory = memory
        self._after = after
        overwritten = {output.mutates for output in program.outputs if output.mutates is not None}
        tensors = [
            (number, slot.tensor)
            for number, slot in enumerate(program.inputs)
            if slot.tensor is not None and slot.is_used
        ]
        fixed = [n for n, _ in tensors if program.inputs[n].is_parameter or n in overwritten]
        self._copied = [tensor for n, tensor in tensors if n not in fixed]
        self._fixed_slots = [tensor.slot for n, tensor in tensors if n in fixed]
        self._instances: dict[Key, Instance] = {}
        self._refused: set[Key] = set()
        self._counts: dict[Key, int] = {}
        self._calls = 0
        self._lock = threading.Lock()

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The captured calls that are kept."""
        return tuple(self._instances.values())

    def find(self, call: Call, capture: Callable[[bool], Instance | None], is_guess: bool = False) -> Instance | None:
        """The captured form of a call, which `capture` makes when it is time; None for a call that runs as it is.

        capture: takes whether tensors are used where they lie; gives None for a call that is not worth it, or cannot be
        captured. is_guess: the parameters may be others, so that nothing is said of a call that is not captured yet.
        """
        scope, places = call.scope, call.places
        in_place = (True, scope, places, *call.addresses.values())
        with self._lock:
            found = self._instances.get(in_place)
            if found is None:
                # Parameters that are passed like other inputs are fixed, too.
                fixed = [call.addresses[slot] for slot in self._fixed_slots if slot in call.addresses]
                moving = (False, scope, places, *fixed)
                known = self._instances.get(moving)
                if known is None and is_guess:
                    return None
                found = self._due(in_place, IN_PLACE_AFTER, lambda: capture(True)) or known
                found = found or self._due(moving, self._after, lambda: capture(False))
            self._calls += 1
            if found is not None:
                found.used = self._calls
            return found

    def arena(self, scope: tuple[int, ...]) -> Execution | None:
        """A table with the arena of a captured call of this scope: their launches are in the order of one stream."""
        for instance in self._instances.values():
            if instance.scope == scope:
                return instance.execution.copied()
        return None

    def _due(self, key: Key, after: int, capture: Callable[[], Instance | None]) -> Instance | None:
        """Count a call, and capture it when it has run often enough and there is room."""
        if key in self._refused:
            return None
        count = self._counts.get(key, 0) + 1
        if len(self._counts) >= MAX_COUNTED and key not in self._counts:
            self._counts.clear()
            self._refused.clear()
        self._counts[key] = count
        if count <= after or not self._has_room():
            return None
        del self._counts[key]
        found = capture()
        if found is None:
            self._refused.add(key)
        else:
            self._instances[key] = found
        return found

    def _has_room(self) -> bool:
        """Whether another instance may be kept; one that is idle makes room."""
        if len(self._instances) < MAX_INSTANCES:
            return True
        oldest = min(self._instances, key=lambda key: self._instances[key].used)
        if self._calls - self._instances[oldest].used < IDLE_CALLS:
            return False
        del self._instances[oldest]
        return True

    def captured_in_place(self, call: Call, execution: Execution, run: Callable[[int], None]) -> Instance | None:
        """An instance, which has not run yet, of what `run` puts into a stream; None where it is not worth it."""
        made = Instance(self._memory.capture(run), call.scope, execution)
        return made if _is_worthwhile(made) else None

    def captured(
        self,
        call: Call,
        shapes: ShapeClass,
        values: Mapping[str, int],
        adapter: TensorAdapter,
        execution: Execution,
        run: Callable[[int], None],
    ) -> Instance | None:
        """As `captured_in_place`, with places for inputs and results. values: of the program's symbols by name."""
        held: list[object] = []

        def place(slot: int, nbytes: int) -> Place:
            owner, address = adapter.empty((nbytes,), (1,), "uint8") if nbytes else (None, 0)
            held.append(owner)
            execution.table[slot] = address
            return Place(slot, address, nbytes)

        inputs = tuple(place(tensor.slot, input_bytes(tensor, values)) for tensor in self._copied)
        results = (o for _, o in shapes.outputs if isinstance(o, ResolvedOutput))
        outputs = tuple(place(o.tensor.slot, o.nbytes) for o in results if o.nbytes is not None)
        work = self._memory.capture(run)
        made = Instance(work, call.scope, execution, inputs, outputs, tuple(held))
        return made if _is_worthwhile(made) else None


def _is_worthwhile(instance: Instance) -> bool:
    """Whether the launch of the graph, and copies in and out, cost less than the launches that are saved."""
    copies = len(instance.inputs) + len(instance.outputs)
    cost = LAUNCH_TIME + copies * COPY_TIME + instance.copied / COPIED_BYTES
    return instance.work.kernels * LAUNCH_TIME > cost

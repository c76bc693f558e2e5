"""What a program knows of its parameters: where they lie, and what was prepared from them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.executor import Executor, SegmentFunction
from hidet.runtime.program import HostProgram

if TYPE_CHECKING:
    from hidet.target import DeviceMemory

Versions = Callable[[Any], object]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ParameterState:
    """One state of one set of parameters. A call keeps it until it ends.

    identity: of the tensors, as long as the state is kept. places: where they lie. versions: of those that something
    was prepared from. addresses: what calls write to their tables, by slot: of parameters that they read, and of what
    was prepared; key: these addresses in order. owners: of what was prepared, and of the parameters' memory: as long as
    that is held, no other parameter can lie at the same address.
    """

    identity: tuple[int, ...]
    places: list[int]
    versions: list[object]
    addresses: Mapping[int, int]
    key: tuple[int, ...]
    owners: tuple[object, ...]


class ParameterSets:
    """The states of the sets of parameters that a program is called with.

    Frontends run one graph for all modules of the same code, layers of a model for instance. Each set of parameters has
    a state of its own, which is dropped as soon as one of its tensors is. What the prepare program made of a set is
    made again when an address or a version differs. States are immutable, and one assignment replaces them, so that
    threads may call with different parameters at once.
    """

    def __init__(
        self,
        program: HostProgram,
        functions: Mapping[str, SegmentFunction],
        constants: Sequence[Any],
        memory: DeviceMemory | None = None,
    ) -> None:
        """program: the main program. constants: the store of those of its prepare program."""
        prepared = program.prepare_inputs
        read = [n for n, i in enumerate(program.inputs) if i.is_parameter and i.tensor is not None and i.is_used]
        self._numbers = (*prepared, *(number for number in read if number not in prepared))
        self._read = [(self._numbers.index(number), _slot(program, number)) for number in read]
        self._prepared_slots = program.prepared
        self._count = len(prepared)
        self._memory = memory
        self._executor = None
        if program.prepare is not None:
            self._executor = Executor(program.prepare, functions, constants, memory)
        self._sets: dict[tuple[int, ...], tuple[ParameterState, tuple[object, ...]]] = {}
        # The state of the last call, and of those before where it is the same: not kept by that.
        self._latest: Callable[[], ParameterState | None] = _nothing
        self._expected: Callable[[], ParameterState | None] = _nothing
        self._take = item_getter(self._numbers)
        self._lock, self._lock_owner = threading.Lock(), os.getpid()

    @property
    def sets(self) -> tuple[ParameterState, ...]:
        """The states that are kept, one a set of parameters."""
        return tuple(state for state, _ in list(self._sets.values()))

    def state(
        self, arguments: Sequence[Any], adapter: TensorAdapter, versions: Versions | None = None
    ) -> ParameterState:
        """The state of the parameters among the arguments of the main program."""
        parameters = self._take(arguments)
        identity = tuple(map(id, parameters))
        kept = self._sets.get(identity)
        if kept is not None and self._is_current(kept[0], parameters, adapter, versions):
            found = kept[0]
        else:
            # One thread at a time, because results may be as large as the parameters.
            with self._process_lock():
                kept = self._sets.get(identity)
                if kept is not None and self._is_current(kept[0], parameters, adapter, versions):
                    found = kept[0]
                else:
                    found = self._make(identity, parameters, adapter, versions)
        self._expected = self._latest if self._latest() is found else _nothing
        if self._latest() is not found:
            self._latest = weakref.ref(found)
        return found

    def expected(self) -> ParameterState | None:
        """The state that the calls before had; None where they had different ones."""
        return self._expected()

    def expect_nothing(self) -> None:
        """Forget which state the calls before had."""
        self._latest = self._expected = _nothing

    def are_in(
        self,
        state: ParameterState,
        arguments: Sequence[Any],
        adapter: TensorAdapter,
        versions: Versions | None = None,
    ) -> bool:
        """Whether `state` is that of the parameters among the arguments."""
        parameters = self._take(arguments)
        is_same = tuple(map(id, parameters)) == state.identity
        return is_same and self._is_current(state, parameters, adapter, versions)

    def _is_current(
        self, state: ParameterState, parameters: Sequence[Any], adapter: TensorAdapter, versions: Versions | None
    ) -> bool:
        if not adapter.lie_at(parameters, state.places):
            return False
        return versions is None or list(map(versions, parameters[: self._count])) == state.versions

    def _make(
        self,
        identity: tuple[int, ...],
        parameters: Sequence[Any],
        adapter: TensorAdapter,
        versions: Versions | None,
    ) -> ParameterState:
        # Read before they are used: what changes meanwhile is a change.
        counted = [] if versions is None else list(map(versions, parameters[: self._count]))
        places = list(map(adapter.pointer, parameters))
        made = [] if self._executor is None else self._executor.run(parameters[: self._count], adapter)
        addresses = dict(zip(self._prepared_slots, map(adapter.pointer, made), strict=True))
        addresses.update((slot, places[place]) for place, slot in self._read)
        owners = (*made, *map(adapter.memory_of, parameters))
        state = ParameterState(identity, places, counted, addresses, tuple(addresses.values()), owners)
        if made and self._memory is not None:
            stream = adapter.stream()
            if self._memory.is_capturing(stream):
                # Nothing is computed before the graph runs, and then for the graph alone.
                return state
            # Calls in other streams use the results too.
            self._memory.finish(stream)
        sets = weakref.ref(self)

        def forget(_: object) -> None:
            living = sets()
            if living is not None:
                living._sets.pop(identity, None)

        self._sets[identity] = (state, tuple(weakref.ref(parameter, forget) for parameter in parameters))
        return state

    def _process_lock(self) -> threading.Lock:
        """The lock of this process: a thread of a parent may have held the parent's when it forked."""
        if self._lock_owner != os.getpid():
            self._lock, self._lock_owner = threading.Lock(), os.getpid()
        return self._lock


def _nothing() -> None:
    """In place of a reference to a state."""


def _slot(program: HostProgram, number: int) -> int:
    tensor = program.inputs[number].tensor
    assert tensor is not None
    return tensor.slot


def item_getter(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes the items of some numbers out of a sequence."""
    if len(numbers) == 1:
        return lambda items: (items[numbers[0]],)
    return itemgetter(*numbers) if numbers else lambda items: ()

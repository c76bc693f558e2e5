"""What a program knows of its parameters: where they lie.

What they hold is read by every call. Nothing is kept that was computed from them: no library counts every way in which
a tensor may be written to.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.program import HostProgram
from hidet.runtime.realigned import find_misaligned


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ParameterState:
    """One set of parameters. A call keeps it until it ends.

    identity: of the tensors, as long as the state is kept. places: where they lie. addresses: what calls write to their
    tables, by slot; key: these addresses in order. owners: of the parameters' memory: as long as that is held, no other
    parameter can lie at the same address. asserted: identities and places of those of `HostProgram.asserted`.
    misaligned: slots of those of `HostProgram.aligned` that calls have to copy.
    """

    identity: tuple[int, ...]
    places: list[int]
    addresses: Mapping[int, int]
    key: tuple[int, ...]
    owners: tuple[object, ...]
    asserted: tuple[tuple[int, ...], list[int]] = ((), [])
    misaligned: tuple[int, ...] = ()


class ParameterSets:
    """The states of the sets of parameters that a program is called with.

    Frontends run one graph for all modules of the same code, layers of a model for instance. Each set of parameters has
    a state of its own, which is dropped as soon as one of its tensors is, and replaced where a tensor has moved. States
    are immutable, so that threads may call with different parameters at once.
    """

    def __init__(self, program: HostProgram) -> None:
        """program: the main program."""
        self._numbers = tuple(
            number
            for number, given in enumerate(program.inputs)
            if given.is_parameter and given.tensor is not None and given.is_used
        )
        self._slots = [_slot(program, number) for number in self._numbers]
        self._aligned = [slot for n, slot in zip(self._numbers, self._slots, strict=True) if n in program.aligned]
        self._sets: dict[tuple[int, ...], tuple[ParameterState, tuple[object, ...]]] = {}
        # The state of the last call, and of those before where it is the same: not kept by that.
        self._latest: Callable[[], ParameterState | None] = _nothing
        self._expected: Callable[[], ParameterState | None] = _nothing
        self._take = item_getter(self._numbers)
        self._asserted = [place for place, number in enumerate(self._numbers) if number in program.asserted]
        self._take_asserted = item_getter([self._numbers[place] for place in self._asserted])

    @property
    def sets(self) -> tuple[ParameterState, ...]:
        """The states that are kept, one a set of parameters."""
        return tuple(state for state, _ in list(self._sets.values()))

    def state(self, arguments: Sequence[Any], adapter: TensorAdapter) -> ParameterState:
        """The state of the parameters among the arguments of the main program."""
        parameters = self._take(arguments)
        identity = tuple(map(id, parameters))
        kept = self._sets.get(identity)
        if kept is not None and adapter.lie_at(parameters, kept[0].places):
            found = kept[0]
        else:
            found = self._make(identity, parameters, adapter)
        self._expected = self._latest if self._latest() is found else _nothing
        if self._latest() is not found:
            self._latest = weakref.ref(found)
        return found

    def expected(self, arguments: Sequence[Any], adapter: TensorAdapter) -> ParameterState | None:
        """The state that the calls before had; None where they had different ones, and where parameters that assertions
        depend on are not in it."""
        state = self._expected()
        if state is None or not self._asserted:
            return state
        given = self._take_asserted(arguments)
        identity, places = state.asserted
        return state if tuple(map(id, given)) == identity and adapter.lie_at(given, places) else None

    def expect_nothing(self) -> None:
        """Forget which state the calls before had."""
        self._latest = self._expected = _nothing

    def are_in(self, state: ParameterState, arguments: Sequence[Any], adapter: TensorAdapter) -> bool:
        """Whether `state` is that of the parameters among the arguments."""
        parameters = self._take(arguments)
        return tuple(map(id, parameters)) == state.identity and adapter.lie_at(parameters, state.places)

    def _make(self, identity: tuple[int, ...], parameters: Sequence[Any], adapter: TensorAdapter) -> ParameterState:
        places = list(map(adapter.pointer, parameters))
        addresses = dict(zip(self._slots, places, strict=True))
        owners = tuple(map(adapter.memory_of, parameters))
        asserted = tuple([identity[n] for n in self._asserted]), [places[n] for n in self._asserted]
        misaligned = tuple(find_misaligned(self._aligned, addresses))
        state = ParameterState(identity, places, addresses, tuple(addresses.values()), owners, asserted, misaligned)
        sets = weakref.ref(self)

        def forget(_: object) -> None:
            living = sets()
            if living is not None:
                living._sets.pop(identity, None)

        self._sets[identity] = (state, tuple(weakref.ref(parameter, forget) for parameter in parameters))
        return state


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

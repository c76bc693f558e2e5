"""Results of a prepare program, made anew when a parameter changes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.executor import Executor, SegmentFunction
from hidet.runtime.program import HostProgram

if TYPE_CHECKING:
    from hidet.target import DeviceMemory

Versions = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class PreparedResults:
    """What was computed from one state of one set of parameters. A call keeps it until it ends.

    key: addresses and versions of the parameters. addresses: of the results, in order. owners: the results, and the
    memory of the parameters: as long as that is held, no other parameter can lie at the same address.
    """

    key: tuple[object, ...]
    addresses: tuple[int, ...]
    owners: tuple[object, ...]


class PreparedProgram:
    """Runs a prepare program when addresses or versions of its parameters differ from those of their last run.

    Frontends run one graph for all modules of the same code, layers of a model for instance. Each set of parameters has
    results of its own, which are dropped as soon as one of its tensors is. Results are immutable, and one assignment
    replaces them, so that threads may call with different parameters at once.
    """

    def __init__(
        self,
        program: HostProgram,
        inputs: Sequence[int],
        functions: Mapping[str, SegmentFunction],
        constants: Sequence[Any],
        memory: DeviceMemory | None = None,
    ) -> None:
        self._inputs = inputs
        self._memory = memory
        self._executor = Executor(program, functions, constants, memory)
        self._sets: dict[tuple[int, ...], tuple[PreparedResults, tuple[object, ...]]] = {}
        self._lock, self._lock_owner = threading.Lock(), os.getpid()

    @property
    def sets(self) -> tuple[PreparedResults, ...]:
        """The results that are kept, one a set of parameters."""
        return tuple(results for results, _ in list(self._sets.values()))

    def results(
        self, arguments: Sequence[Any], adapter: TensorAdapter, versions: Versions | None = None
    ) -> PreparedResults:
        """Up-to-date results. `arguments` are those of the main program."""
        parameters = [arguments[number] for number in self._inputs]
        key: tuple[object, ...] = tuple(map(adapter.pointer, parameters))
        if versions is not None:
            key += tuple(map(versions, parameters))
        identity = tuple(map(id, parameters))
        known = self._known(identity, key)
        if known is not None:
            return known
        # One thread at a time, because results may be as large as the parameters.
        with self._process_lock():
            return self._known(identity, key) or self._run(identity, key, parameters, adapter)

    def _known(self, identity: tuple[int, ...], key: tuple[object, ...]) -> PreparedResults | None:
        kept = self._sets.get(identity)
        return kept[0] if kept is not None and kept[0].key == key else None

    def _run(
        self,
        identity: tuple[int, ...],
        key: tuple[object, ...],
        parameters: Sequence[Any],
        adapter: TensorAdapter,
    ) -> PreparedResults:
        made = self._executor.run(parameters, adapter)
        if self._memory is not None:
            # Calls in other streams use the results too.
            self._memory.finish(adapter.stream())
        owners = (*made, *map(adapter.memory_of, parameters))
        results = PreparedResults(key, tuple(map(adapter.pointer, made)), owners)
        program = weakref.ref(self)

        def forget(_: object) -> None:
            living = program()
            if living is not None:
                living._sets.pop(identity, None)

        self._sets[identity] = (results, tuple(weakref.ref(parameter, forget) for parameter in parameters))
        return results

    def _process_lock(self) -> threading.Lock:
        """The lock of this process: a thread of a parent may have held the parent's when it forked."""
        if self._lock_owner != os.getpid():
            self._lock, self._lock_owner = threading.Lock(), os.getpid()
        return self._lock

"""Results of a prepare program, made anew when a parameter changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet.runtime.adapter import TensorAdapter
from hidet.runtime.executor import Executor, SegmentFunction
from hidet.runtime.program import HostProgram

Versions = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class PreparedResults:
    """What was computed from one state of the parameters. A call keeps it until it ends.

    addresses: of the results, in order. owners: the results, and the memory of the parameters: as long as that is held,
    no other parameter can lie at the same address.
    """

    key: tuple[object, ...]
    addresses: tuple[int, ...]
    owners: tuple[object, ...]


class PreparedProgram:
    """Runs a prepare program when addresses or versions of its parameters differ from those of the last run.

    Threads that call with different parameters at once each get results for theirs: results are immutable, and one
    assignment replaces them.
    """

    def __init__(
        self,
        program: HostProgram,
        inputs: Sequence[int],
        functions: Mapping[str, SegmentFunction],
        constants: Sequence[tuple[int, int, object]],
    ) -> None:
        self._inputs = inputs
        self._executor = Executor(program, functions, constants)
        self._results: PreparedResults | None = None
        self._lock, self._lock_owner = threading.Lock(), os.getpid()

    def results(
        self, arguments: Sequence[Any], adapter: TensorAdapter, versions: Versions | None = None
    ) -> PreparedResults:
        """Up-to-date results. `arguments` are those of the main program."""
        parameters = [arguments[number] for number in self._inputs]
        key: tuple[object, ...] = tuple(map(adapter.pointer, parameters))
        if versions is not None:
            key += tuple(map(versions, parameters))
        known = self._results
        if known is not None and known.key == key:
            return known
        # One thread at a time, because results may be as large as the parameters.
        with self._process_lock():
            known = self._results
            if known is None or known.key != key:
                known = self._results = self._run(key, parameters, adapter)
            return known

    def _run(self, key: tuple[object, ...], parameters: Sequence[Any], adapter: TensorAdapter) -> PreparedResults:
        results = self._executor.run(parameters, adapter)
        owners = (*results, *map(adapter.memory_of, parameters))
        return PreparedResults(key, tuple(map(adapter.pointer, results)), owners)

    def _process_lock(self) -> threading.Lock:
        """The lock of this process: a thread of a parent may have held the parent's when it forked."""
        if self._lock_owner != os.getpid():
            self._lock, self._lock_owner = threading.Lock(), os.getpid()
        return self._lock

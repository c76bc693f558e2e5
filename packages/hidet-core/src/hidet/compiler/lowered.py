"""What a graph becomes before it is machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hidet.records import record

if TYPE_CHECKING:
    from hidet.host.program import HostCode
    from hidet.runtime.program import HostProgram
    from hidet.schedule.select import ScheduledGraph


@record
class LoweredGraph:
    """The host program of a graph, and all that is to be compiled for it.

    constants, prepare_constants: arrays that the program, and its preparation, index. main_code, prepare_code: what is
    to be compiled. main, prepare: the schedules of the graph, and of its preparation, sub-graphs among them.
    """

    program: HostProgram
    constants: tuple[Any, ...]
    prepare_constants: tuple[Any, ...]
    main_code: Sequence[tuple[ScheduledGraph, HostCode]]
    prepare_code: Sequence[tuple[ScheduledGraph, HostCode]]
    main: tuple[ScheduledGraph, ...]
    prepare: tuple[ScheduledGraph, ...]


class LateLowered(LoweredGraph):
    """What a graph would become that came out of the cache as a whole: found by the steps that were left out, when
    something of it is first read. make: takes these steps."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], LoweredGraph]) -> None:
        object.__setattr__(self, "_make", make)

    def __getattr__(self, name: str) -> Any:
        names = [each.name for each in fields(LoweredGraph)]
        if name not in names:
            raise AttributeError(name)
        made: LoweredGraph = self._make()
        for each in names:
            object.__setattr__(self, each, getattr(made, each))
        return getattr(made, name)

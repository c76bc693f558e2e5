"""Preparing once and for all: `prepare` reads constants alone, so that its results are constants too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy

from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.executor import Executor, SegmentFunction
from hidet.runtime.program import ConstantSlot, HostProgram, map_subprograms, programs_of

if TYPE_CHECKING:
    from hidet.runtime.compiled import CodeBundle
    from hidet.target import DeviceMemory


def needs_baking(program: HostProgram) -> bool:
    """Whether this program, or one inside it, has something to prepare."""
    return any(part.prepare is not None for part in programs_of(program))


def bake_prepared(
    bundle: CodeBundle, functions: Mapping[str, SegmentFunction], memory: DeviceMemory | None = None
) -> CodeBundle:
    """The bundle with results of prepare programs in the place of the constants that they alone read.

    A saved model then holds packed weights alone and has nothing to prepare when it is loaded. memory: of the device
    the code runs on; None for the host.
    """
    store = list(bundle.constants)

    def baked(program: HostProgram) -> HostProgram:
        return program if program.prepare is None else _baked(program, store, store, functions, memory)

    program = map_subprograms(bundle.program, baked)
    kept = bundle.prepare_constants
    if program.prepare is not None:
        program, kept = _baked(program, bundle.prepare_constants, store, functions, memory), ()
    return _without_unread(replace(bundle, program=program, constants=tuple(store), prepare_constants=kept))


def _baked(
    program: HostProgram,
    read: Sequence[Any],
    store: list[Any],
    functions: Mapping[str, SegmentFunction],
    memory: DeviceMemory | None,
) -> HostProgram:
    """The program without its prepare program, whose constants are in `read`; results are added to `store`."""
    assert program.prepare is not None
    executor = Executor(program.prepare, functions, read, memory)
    first = len(store)
    if memory is None:
        store += [_flat(result) for result in executor.run((), NumpyAdapter())]
    else:
        store += [memory.download(result) for result in executor.run((), memory.adapter())]
    constants = tuple(ConstantSlot(slot, first + number) for number, slot in enumerate(program.prepared))
    return replace(program, prepare=None, prepared=(), constants=(*program.constants, *constants))


def _without_unread(bundle: CodeBundle) -> CodeBundle:
    """The bundle without constants that no program reads any more."""
    read = sorted({c.index for program in programs_of(bundle.program) for c in program.constants})
    places = {old: new for new, old in enumerate(read)}

    def renumbered(program: HostProgram) -> HostProgram:
        return replace(program, constants=tuple(ConstantSlot(c.slot, places[c.index]) for c in program.constants))

    program = renumbered(map_subprograms(bundle.program, renumbered))
    return replace(bundle, program=program, constants=tuple(bundle.constants[index] for index in read))


def _flat(result: Any) -> Any:
    """The elements of an array in the order in which they lie in memory: the program knows its strides."""
    last = sum((extent - 1) * stride for extent, stride in zip(result.shape, result.strides, strict=True))
    count = 0 if result.size == 0 else last // result.itemsize + 1
    return numpy.lib.stride_tricks.as_strided(result, (count,), (result.itemsize,))


def _copy(array: Any) -> Any:
    """A copy, aligned for vectors."""
    return NumpyAdapter().laid_out(array, [stride // array.itemsize for stride in array.strides])


def with_own_constants(bundle: CodeBundle, given: Sequence[Any]) -> CodeBundle:
    """The bundle with copies of those of the arrays `given` that somebody else may write to.

    Some weights are used as they are and others only after packing: an update of the model would show in the former
    alone, and results would be neither the old nor the new ones.
    """
    foreign = {id(array) for array in given if array.flags.writeable}

    def own(arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(_copy(array) if id(array) in foreign else array for array in arrays)

    return replace(bundle, constants=own(bundle.constants), prepare_constants=own(bundle.prepare_constants))

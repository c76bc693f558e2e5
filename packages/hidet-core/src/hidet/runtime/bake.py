"""Preparing once and for all: when everything that `prepare` reads is constant, its results are constants too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hidet.runtime.adapter import NumpyAdapter
from hidet.runtime.executor import Executor, SegmentFunction, constant_slots
from hidet.runtime.program import ConstantSlot

if TYPE_CHECKING:
    from hidet.runtime.compiled import CodeBundle


def bake_prepared(bundle: CodeBundle, functions: Mapping[str, SegmentFunction]) -> CodeBundle:
    """The bundle with the results of its prepare program in the place of the constants that only that one reads.

    A saved model then holds packed weights alone and has nothing to prepare when it is loaded. The prepare program must
    take no arguments.
    """
    program = bundle.program
    assert program.prepare is not None and not program.prepare.inputs
    executor = Executor(program.prepare, functions, constant_slots(program.prepare, bundle.prepare_constants))
    made = [_flat(result) for result in executor.run((), NumpyAdapter())]
    first = len(bundle.constants)
    baked = (ConstantSlot(slot, first + number) for number, slot in enumerate(program.prepared))
    final = replace(program, prepare=None, prepared=(), constants=(*program.constants, *baked))
    return replace(bundle, program=final, constants=(*bundle.constants, *made), prepare_constants=())


def _flat(result: Any) -> Any:
    """The elements of an array in the order in which they lie in memory: the program knows its strides."""
    import numpy

    last = sum((extent - 1) * stride for extent, stride in zip(result.shape, result.strides, strict=True))
    count = 0 if result.size == 0 else last // result.itemsize + 1
    return numpy.lib.stride_tricks.as_strided(result, (count,), (result.itemsize,))

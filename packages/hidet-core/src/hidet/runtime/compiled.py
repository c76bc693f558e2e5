"""`CompiledGraph`: what `hidet.compile` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hidet.errors import DTypeError, LaunchError, ShapeError
from hidet.runtime.adapter import NumpyAdapter, TensorAdapter
from hidet.runtime.executor import Executor, SegmentFunction
from hidet.runtime.program import HostProgram, NodeCounts

if TYPE_CHECKING:
    from hidet.target import Binary


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What a compilation did.

    nodes: graph nodes by class. kernels: distinct kernels of the graph itself, its prepare program aside. tasks: fusion
    groups; programs: how many different ones a rule built; modules: how many modules were compiled, or taken from the
    kernel cache (cached_modules). seconds: time by phase ("graph", "build", "compile", "load"). notes: rules skipped
    and why. weight_bytes, prepared_bytes: parameters and constants as given, and what the prepare program keeps beside
    them; tensors of symbolic size are not counted.
    """

    nodes: NodeCounts
    kernels: int
    tasks: int = 0
    programs: int = 0
    modules: int = 0
    cached_modules: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    weight_bytes: int = 0
    prepared_bytes: int = 0

    def __str__(self) -> str:
        from hidet.runtime.report_text import report_text

        return report_text(self)


@dataclass(frozen=True, slots=True)
class CodeBundle:
    """Everything needed to run or save a compiled graph: the program, its binaries and its constants' arrays."""

    program: HostProgram
    binaries: tuple[Binary, ...]
    constants: tuple[Any, ...]
    prepare_constants: tuple[Any, ...] = ()
    target: str = "cpu"
    arch: str = ""


class CompiledGraph:
    """A callable model. Results are fresh tensors; several threads may call it at once."""

    def __init__(
        self,
        bundle: CodeBundle,
        functions: Mapping[str, SegmentFunction],
        report: CompileReport,
        keep_alive: object = None,
    ) -> None:
        self.bundle = bundle
        self._report = report
        self._code = keep_alive
        program = bundle.program
        self._executor = Executor(program, functions, _constant_slots(program, bundle.constants))
        self._prepare = None
        if program.prepare is not None:
            self._prepare = _Prepared(program, functions, bundle.prepare_constants)

    def __call__(self, *tensors: Any) -> Any:
        """Run on numpy arrays or torch tensors, in the order of the graph's inputs; one result is returned bare.

        ShapeError or DTypeError names the argument that does not fit.
        """
        adapter, arguments = self._checked(tensors)
        results = self.run(arguments, adapter)
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self, arguments: Sequence[Any], adapter: TensorAdapter, versions: Callable[[Any], object] | None = None
    ) -> list[Any]:
        """Run without checks on tensors of `adapter`'s library. `versions(tensor)` changes when a parameter does."""
        prepared: Sequence[int] = ()
        if self._prepare is not None:
            prepared = self._prepare.addresses(arguments, adapter, versions)
        return self._executor.run(arguments, adapter, prepared)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that `hidet.load` runs where only hidet-core and the target's wheel are installed.

        ArtifactError when the graph has operators that run outside compiled code.
        """
        from hidet.runtime.artifact import save

        save(self.bundle, path)

    def report(self) -> CompileReport:
        """What the compilation did."""
        return self._report

    def _checked(self, tensors: Sequence[Any]) -> tuple[TensorAdapter, list[Any]]:
        inputs = self.bundle.program.inputs
        if len(tensors) != len(inputs):
            raise LaunchError(f"the compiled graph takes {len(inputs)} arguments, got {len(tensors)}")
        import numpy

        adapter = NumpyAdapter()
        arguments: list[Any] = []
        for number, (given, expected) in enumerate(zip(tensors, inputs, strict=True)):
            if expected.tensor is None:
                arguments.append(int(given))
                continue
            array = numpy.asarray(given)
            slot = expected.tensor
            if array.dtype != slot.dtype.numpy():
                raise DTypeError(f"argument {number} ({expected.name}) is {array.dtype}, expected {slot.dtype.name}")
            if len(array.shape) != len(slot.shape) or any(
                isinstance(want, int) and want != have for want, have in zip(slot.shape, array.shape, strict=True)
            ):
                wanted = ", ".join(map(str, slot.shape))
                raise ShapeError(f"argument {number} ({expected.name}) has shape {array.shape}, expected [{wanted}]")
            arguments.append(numpy.ascontiguousarray(array).reshape(array.shape))
        return adapter, arguments


class _Prepared:
    """Results of the prepare program, recomputed when a parameter changes."""

    def __init__(
        self, program: HostProgram, functions: Mapping[str, SegmentFunction], constants: Sequence[Any]
    ) -> None:
        assert program.prepare is not None
        self._inputs = program.prepare_inputs
        self._executor = Executor(program.prepare, functions, _constant_slots(program.prepare, constants))
        self._key: tuple[object, ...] | None = None
        self._results: list[Any] = []
        self._addresses: list[int] = []

    def addresses(
        self, arguments: Sequence[Any], adapter: TensorAdapter, versions: Callable[[Any], object] | None
    ) -> Sequence[int]:
        """Addresses of up-to-date results."""
        chosen = [arguments[n] for n in self._inputs]
        pointer = adapter.pointer
        key = tuple(map(pointer, chosen))
        if versions is not None:
            key += tuple(map(versions, chosen))  # type: ignore[arg-type]  # a mixed key
        if key != self._key:
            results = self._executor.run(chosen, adapter)
            self._addresses = [pointer(r) for r in results]
            self._results = results
            self._key = key
        return self._addresses


def _constant_slots(program: HostProgram, arrays: Sequence[Any]) -> list[tuple[int, int, object]]:
    return [(c.slot, arrays[c.index].ctypes.data, arrays[c.index]) for c in program.constants]

"""Checking the arguments of a call: element types, shapes, values of symbols, and how tensors lie in memory."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy

from hidet import dims
from hidet.dims import Dim, DimExpr, Symbol
from hidet.errors import DTypeError, HidetError, LaunchError, ShapeError
from hidet.runtime.adapter import CheckedAdapter, NumpyAdapter, TensorFacts, adapter_for, adapter_named
from hidet.runtime.program import HostProgram, ObjectSlot, TensorSlot
from hidet.runtime.signature import Signature, signature_of_inputs
from hidet.runtime.symbol_values import source_text, symbol_reader

if TYPE_CHECKING:
    from hidet.target import DeviceMemory

MAX_KNOWN = 64
"""Kinds of arguments that need no second check."""

Copies = tuple[tuple[int, tuple[int, ...]], ...]


class ArgumentCheck:
    """Turns what a caller passes into what a program runs on, or raises an error that names the argument.

    Arguments of the same kind (types, shapes, strides) as in an earlier call are not checked again.
    """

    def __init__(
        self, program: HostProgram, memory: DeviceMemory | None = None, signature: Signature | None = None
    ) -> None:
        """memory: of the device where tensors have to be; None for the host. signature: in whose terms messages name
        arguments; None for that of a graph.

        A device's graph takes arrays of the host as well, if all of its tensors are such: `CompiledGraph` copies them.
        """
        self._inputs = program.inputs
        self._tensors = [number for number, given in enumerate(program.inputs) if given.tensor is not None]
        self._memory = memory
        self._signature = signature or signature_of_inputs([given.name for given in program.inputs])
        self._sources = program.symbols
        self._overwritten = {output.mutates for output in program.outputs if output.mutates is not None}
        self._symbols = _input_symbols(program)
        self._read_symbols = symbol_reader(program.symbols)
        self._adapters: dict[type, CheckedAdapter] = {}
        self._known: dict[Hashable, Copies] = {}

    def __call__(self, given: Sequence[Any]) -> tuple[CheckedAdapter, list[Any]]:
        """The adapter for these tensors, and the arguments: tensors whose memory can be read as it is, host values as
        they are, and integers.

        LaunchError, DTypeError or ShapeError for arguments that do not fit.
        """
        inputs = self._inputs
        if len(given) != len(inputs):
            raise LaunchError(f"the compiled graph takes {len(inputs)} arguments, got {len(given)}")
        adapter = self._adapter(given)
        arguments: list[Any] = []
        kinds: list[Hashable] = []
        for number, (value, expected) in enumerate(zip(given, inputs, strict=True)):
            if expected.host is not None:
                argument = self._host_value(value, number, expected.host)
                kinds.append(getattr(argument, "shape", None))
            elif expected.tensor is None:
                argument = self._integer(value, number)
                kinds.append(argument)
            else:
                try:
                    argument = adapter.convert(value)
                except HidetError as error:
                    error.message = f"{self._place(number)}: {error.message}"
                    raise
                kinds.append(adapter.signature(argument))
            arguments.append(argument)
        for number in self._overwritten:
            if isinstance(given[number], list | tuple | Number):
                raise LaunchError(
                    f"{self._place(number)} is overwritten by the graph, but it is a {type(given[number]).__name__}",
                    hint="pass a tensor or an array",
                )
        key = tuple(kinds)
        copies = self._known.get(key)
        if copies is None:
            copies = self._check(arguments, adapter)
            # Replaced as a whole, so that no thread sees a half-emptied table.
            self._known = {**self._known, key: copies} if len(self._known) < MAX_KNOWN else {key: copies}
        for number, strides in copies:
            arguments[number] = adapter.laid_out(arguments[number], strides)
        return adapter, arguments

    def _adapter(self, given: Sequence[Any]) -> CheckedAdapter:
        """That of the first tensor, on a device of the first that is no array of the host; the others are converted."""
        found: CheckedAdapter | None = None
        for number in self._tensors:
            kind = type(given[number])
            found = self._adapters.get(kind)
            if found is None:
                found = self._adapters[kind] = adapter_for(kind, self._memory)
            if self._memory is None or not found.is_host:
                return found
        return found or adapter_named({self._signature.tensor_type}, self._memory) or NumpyAdapter()

    def _integer(self, value: Any, number: int) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise LaunchError(f"{self._place(number)} is a {type(value).__name__}, expected an integer") from None

    def _host_value(self, value: Any, number: int, slot: ObjectSlot) -> Any:
        """An array of strings, a list of arrays, or None; LaunchError or ShapeError for anything else."""
        if slot.shape is not None:
            array = numpy.asarray(value, object)
            if array.ndim != len(slot.shape):
                wanted = ", ".join(map(str, slot.shape))
                raise ShapeError(f"{self._place(number)} has shape {list(array.shape)}, expected [{wanted}]")
            return array
        items = value if isinstance(value, list | tuple) else [value]
        if value is not None and not all(isinstance(item, numpy.ndarray) for item in items):
            raise LaunchError(
                f"{self._place(number)} is a {type(value).__name__}, expected an array, a list of arrays or None"
            )
        return list(items) if isinstance(value, list | tuple) else value

    def _check(self, arguments: Sequence[Any], adapter: CheckedAdapter) -> Copies:
        facts: list[TensorFacts | None] = []
        for number, (argument, expected) in enumerate(zip(arguments, self._inputs, strict=True)):
            if expected.tensor is None:
                facts.append(None)
                continue
            try:
                found = adapter.describe(argument)
            except HidetError as error:
                error.message = f"{self._place(number)}: {error.message}"
                raise
            self._check_type(found, expected.tensor, number, adapter)
            facts.append(found)
        values = self._symbol_values(arguments)
        copies = []
        for number, (found_facts, expected) in enumerate(zip(facts, self._inputs, strict=True)):
            if found_facts is None:
                if expected.host is None:
                    self._check_size(expected.size, arguments[number], values, number, None)
                for axis, wanted in enumerate((expected.host and expected.host.shape) or ()):
                    self._check_size(wanted, arguments[number].shape[axis], values, number, axis)
                continue
            slot = expected.tensor
            assert slot is not None
            for axis, (wanted, extent) in enumerate(zip(slot.shape, found_facts.shape, strict=True)):
                self._check_size(wanted, extent, values, number, axis)
            strides = _evaluate(slot.strides, values)
            if strides is not None and not _lies_so(found_facts, strides):
                self._require_copyable(number, strides)
                copies.append((number, strides))
            if number in self._overwritten and not found_facts.is_writable:
                raise LaunchError(f"{self._place(number)} is overwritten by the graph, but it is read-only")
        return tuple(copies)

    def _check_type(self, found: TensorFacts, slot: TensorSlot, number: int, adapter: CheckedAdapter) -> None:
        device = "cpu" if self._memory is None or adapter.is_host else self._memory.name
        if found.device != device:
            where = "the CPU" if device == "cpu" else device
            raise LaunchError(
                f"{self._place(number)} is on {found.device}, expected a tensor on {where}",
                hint="move it there, or compile for the target that it is on",
            )
        if found.dtype != slot.dtype:
            raise DTypeError(f"{self._place(number)} is {found.dtype.name}, expected {slot.dtype.name}")
        if len(found.shape) != len(slot.shape) or any(
            isinstance(wanted, int) and wanted != extent for wanted, extent in zip(slot.shape, found.shape, strict=True)
        ):
            wanted = ", ".join(map(str, slot.shape))
            is_other_size = len(found.shape) == len(slot.shape)
            raise ShapeError(
                f"{self._place(number)} has shape {list(found.shape)}, expected [{wanted}]",
                hint=(is_other_size and self._signature.size_hint) or None,
            )

    def _symbol_values(self, arguments: Sequence[Any]) -> dict[str, int]:
        """Values of symbols by name. ShapeError for one that its symbol cannot have."""
        values = self._read_symbols(arguments)
        for source, value in zip(self._sources, values, strict=True):
            symbol = self._symbols[source.name]
            if not symbol.admits(value):
                where = source_text(source, self._inputs[source.input].name)
                raise ShapeError(f"{where} makes {symbol.name} {value}, expected {symbol.facts()}")
        return {source.name: value for source, value in zip(self._sources, values, strict=True)}

    def _check_size(
        self, wanted: Dim | None, extent: int, values: dict[str, int], number: int, axis: int | None
    ) -> None:
        """ShapeError when an extent, or an integer argument, is not what the symbols' values make it."""
        expected = None if wanted is None else _evaluate([wanted], values)
        if expected is None or expected[0] == extent:
            return
        names = {symbol.name for symbol in dims.symbols(wanted)} if isinstance(wanted, DimExpr) else set()
        sources = [source for source in self._sources if source.name in names]
        reasons = [f"{source_text(s, self._inputs[s.input].name)} makes {s.name} {values[s.name]}" for s in sources]
        place = self._place(number) if axis is None else f"axis {axis} of {self._place(number)}"
        raise ShapeError(
            f"{place} is {extent}, expected {wanted}" + (f" = {expected[0]}: {', '.join(reasons)}" if reasons else "")
        )

    def _require_copyable(self, number: int, strides: tuple[int, ...]) -> None:
        if number in self._overwritten:
            raise ShapeError(
                f"{self._place(number)} is overwritten by the graph, so it must lie in memory with strides "
                f"{list(strides)} (in elements)",
                hint="pass a contiguous tensor",
            )

    def _place(self, number: int) -> str:
        return self._signature.places(len(self._inputs))[number]


def _input_symbols(program: HostProgram) -> dict[str, Symbol]:
    """The symbols of a program's inputs by name."""
    found: list[Dim] = []
    for given in program.inputs:
        if given.size is not None:
            found.append(given.size)
        if given.tensor is not None:
            found += given.tensor.shape
        if given.host is not None:
            found += given.host.shape or ()
    return {symbol.name: symbol for dim in found for symbol in dims.symbols(dim)}


def _evaluate(sizes: Sequence[Dim], values: dict[str, int]) -> tuple[int, ...] | None:
    """Sizes at the symbols' values; None when one has a symbol whose value no argument tells."""
    if any(symbol.name not in values for size in sizes for symbol in dims.symbols(size)):
        return None
    return tuple(dims.evaluate(size, values) for size in sizes)


def _lies_so(facts: TensorFacts, strides: Sequence[int]) -> bool:
    """Whether elements lie where `strides` say; axes of extent one, and empty tensors, lie anywhere."""
    if facts.obstacle is not None:
        return False
    triples = zip(facts.shape, facts.strides, strides, strict=True)
    return 0 in facts.shape or all(extent == 1 or have == want for extent, have, want in triples)

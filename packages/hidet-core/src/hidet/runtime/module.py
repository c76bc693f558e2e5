"""Compiled modules of functions that Python calls with tensors and numbers."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, NoReturn

from hidet import dtypes
from hidet.errors import HidetError, LaunchError, suggestion
from hidet.ir.func import Module
from hidet.notebook import Shown
from hidet.runtime.adapter import CheckedAdapter, TensorFacts, adapter_for
from hidet.runtime.bounds import BoundsChecks
from hidet.runtime.parameters import CELL_FORMATS, CallSignature, Parameter, check_number
from hidet.target import DeviceMemory, KernelUsage

MAX_KNOWN = 256
"""Kinds of arguments that need no second check."""

_NOT_TENSORS = (bool, int, float, complex, str, bytes, list, tuple, dict, type(None))


@dataclass(frozen=True, slots=True, eq=False)
class _QuickCheck:
    """Tensors of the kinds of an earlier call, told by one test.

    places: which arguments are tensors. stream: of the tensors' library on their device.
    """

    guard: Callable[..., bool]
    places: tuple[int, ...]
    pointer: Callable[[Any], int]
    stream: Callable[[], int]
    sizes: tuple[int, ...]


class _OtherDeviceError(Exception):
    """All tensors of a call lie on another device of the target."""

    def __init__(self, device: str) -> None:
        self.device = device


class CompiledFunction:
    """One function; call it with tensors for pointers and tensor parameters, and numbers for scalars, in the order of
    the parameters or by their names.

    Tensors are checked for dtype, shape, device and contiguity once for each kind. Numbers must fit their types. On a
    GPU the work is put into the stream in which the first tensor's library works now; the call does not wait for it.
    Where no device was named, tensors of any device of the target are taken: the code is loaded there, too.
    """

    def __init__(
        self,
        signature: CallSignature,
        run: Callable[..., object],
        device: str,
        prints: bool,
        bounds: BoundsChecks | None = None,
        code: object = None,
        memory: DeviceMemory | None = None,
        elsewhere: Callable[[str], CompiledModule] | None = None,
    ) -> None:
        """code: the machine code that `run` calls, kept as long as the function. run: takes a table, by its address or
        as bytes that it only reads, and on a device a stream. device: where tensors have to be. memory: of that device;
        None for the host. elsewhere: the module for another device by its name; None where there is only this one.
        """
        self.signature = signature
        self._code = code
        self._memory = memory
        self._count = len(signature.given)
        self._bounds = bounds
        self._run = run
        self._device = device
        self._has_streams = device != "cpu"
        self._prints = prints
        self._is_memory = tuple(parameter.is_memory for parameter in signature.given)
        formats = ["Q" if p.is_memory else CELL_FORMATS[p.dtype] for p in signature.given]
        formats += ["q"] * len(signature.sizes) + ["Q"] * (bounds is not None)
        cells = max(len(formats) + (signature.result is not None), 1)
        # The cell of the result is padding, filled by the function.
        self._cells = struct.Struct("<" + "".join(formats) + "8x" * (cells - len(formats)))
        self._table = ctypes.c_char * (8 * cells)
        self._result = None if signature.result is None else struct.Struct("<" + CELL_FORMATS[signature.result])
        self._with_numbers = signature.has_dependent_shapes
        # Every object packs as a truth value; all other numbers are checked by packing them.
        self._has_truths = any(p.dtype is dtypes.boolean and not p.is_memory for p in signature.given)
        self._adapters: dict[type, CheckedAdapter] = {}
        self._known: dict[Hashable, tuple[int, ...]] = {}
        self._last: tuple[list[Hashable], tuple[int, ...]] | None = None
        self._quick: _QuickCheck | None = None
        self._launch: Callable[[tuple[Any, ...]], bool] | None = None
        self._elsewhere = elsewhere
        # The function on the device that was called last besides this one.
        self._other: CompiledFunction | None = None

    @property
    def name(self) -> str:
        """As in the module."""
        return self.signature.function

    @property
    def device(self) -> str:
        """Where tensors must be: "cpu", or for example "cuda:0"."""
        return self._device

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Run the function; the value it returns, or None.

        Raises LaunchError, DTypeError or ShapeError for arguments that do not fit.
        """
        if keywords:
            arguments = self.signature.in_order(arguments, keywords)
        if len(arguments) != self._count:
            raise self.signature.count_error(len(arguments))
        launch = self._launch
        if launch is not None and launch(arguments):
            return None
        other = self._other
        if other is not None and other._launch is not None and other._launch(arguments):
            return None
        quick = self._quick
        if quick is not None and quick.guard(*[arguments[place] for place in quick.places]):
            values = list(arguments)
            for place in quick.places:
                values[place] = quick.pointer(values[place])
            sizes = quick.sizes
            stream = quick.stream() if self._has_streams else 0
        else:
            try:
                values, sizes, stream, _held = self._bind(arguments)
            except _OtherDeviceError as error:
                assert self._elsewhere is not None
                self._other = self._elsewhere(error.device)[self.name]
                return self._other(*arguments)
        if self._has_truths:
            self._check_numbers(arguments)
        owner = None
        if self._bounds is not None:
            owner, words = self._bounds.words_for_call()
            sizes = (*sizes, words)
        try:
            cells = self._cells.pack(*values, *sizes)
        except (struct.error, OverflowError, TypeError):
            self._check_numbers(arguments)
            raise
        if self._prints:
            # Compiled code writes to the file, past Python's buffer.
            sys.stdout.flush()
        # Only a function that returns something writes to its table.
        table = cells if self._result is None else self._table.from_buffer_copy(cells)
        if self._has_streams:
            self._run(table, stream)
        else:
            self._run(table)
        if self._bounds is not None:
            self._bounds.verify(sizes[-1], stream)
            del owner  # kept the words alive until they were read
        return None if self._result is None else self._result.unpack_from(table, len(cells) - 8)[0]

    def profile(self, *arguments: Any, warmup: int = 1, number: int = 2, repeat: int = 10) -> list[float]:
        """Milliseconds of a call: `repeat` means of `number` calls each, for which the device is waited for."""
        for _ in range(warmup):
            self(*arguments)
        means = []
        for _ in range(repeat):
            self._finish()
            start = time.perf_counter()
            for _ in range(number):
                self(*arguments)
            self._finish()
            means.append((time.perf_counter() - start) * 1e3 / number)
        return means

    def _finish(self) -> None:
        """Wait for the devices that calls use."""
        for function in (self, self._other):
            if function is not None and function._memory is not None:
                function._memory.synchronize()

    def _bind(self, arguments: tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...], int, list[Any]]:
        """Values for the table, extents, the stream, and what must live as long as the call."""
        values: list[Any] = []
        kinds: list[Hashable] = []
        held: list[Any] = []
        adapters: list[CheckedAdapter] = []
        stream = 0
        for argument, is_memory in zip(arguments, self._is_memory, strict=True):
            if is_memory:
                adapter = self._adapters.get(type(argument))
                if adapter is None:
                    try:
                        adapter, tensor = self._converted(argument)
                    except HidetError as error:
                        (place, *_) = [number for number, other in enumerate(arguments) if other is argument]
                        self._blame(self.signature.given[place], error)
                        raise
                    if tensor is not argument:
                        held.append(tensor)
                        argument = tensor
                adapters.append(adapter)
                kinds.append(adapter.outline(argument))
                try:
                    values.append(adapter.pointer(argument))
                except RuntimeError:
                    # What has no address, as sparse tensors have none, is refused with what was expected.
                    self._check(arguments)
                    raise
                if self._has_streams and not stream:
                    stream = adapter.stream_of(argument)
            else:
                values.append(argument)
                if self._with_numbers:
                    kinds.append(argument)
        # Comparing with the call before is quicker than hashing.
        last = self._last
        if last is not None and last[0] == kinds:
            return values, last[1], stream, held
        sizes = self._sizes(arguments, kinds)
        if not held and not self._with_numbers and None not in kinds:
            self._quick = _quick_check(arguments, self._is_memory, adapters, sizes)
            self._launch = self._make_launch(self._quick)
        return values, sizes, stream, held

    def _make_launch(self, quick: _QuickCheck | None) -> Callable[[tuple[Any, ...]], bool] | None:
        """A whole call on a device whose arguments are all tensors of known kinds, False for others.

        What most kernels are called with, with nothing to look up on the way. None for functions that have more to do.
        """
        has_more = self._bounds is not None or self._prints or self._result is not None
        if quick is None or not self._has_streams or has_more or not all(self._is_memory):
            return None
        guard, pointer, stream, sizes = quick.guard, quick.pointer, quick.stream, quick.sizes
        pack, run = self._cells.pack, self._run

        def launch(arguments: tuple[Any, ...]) -> bool:
            if not guard(*arguments):
                return False
            run(pack(*map(pointer, arguments), *sizes), stream())
            return True

        return launch

    def _converted(self, argument: Any) -> tuple[CheckedAdapter, Any]:
        """The adapter of a tensor whose type is new, or foreign to all libraries, and the tensor in that library."""
        if isinstance(argument, _NOT_TENSORS):
            raise LaunchError(
                f"got a {type(argument).__name__} where it takes a tensor",
                hint="pass a numpy array, a torch tensor or anything with __dlpack__",
            )
        adapter = adapter_for(type(argument), self._memory)
        tensor = adapter.convert(argument)
        if tensor is argument:
            self._adapters = {**self._adapters, type(argument): adapter}
        return adapter, tensor

    def _sizes(self, arguments: tuple[Any, ...], kinds: list[Hashable]) -> tuple[int, ...]:
        """Extents that the arguments give, which are checked unless they are of a kind that was checked before."""
        is_plain = None not in kinds
        found = self._known.get(tuple(kinds)) if is_plain else None
        if found is None:
            found = self._check(arguments)
            if not is_plain:
                return found
            # Replaced as a whole, so that no thread sees a half-emptied table.
            self._known = {**(self._known if len(self._known) < MAX_KNOWN else {}), tuple(kinds): found}
        self._last = (kinds, found)
        return found

    def _check(self, arguments: tuple[Any, ...]) -> tuple[int, ...]:
        facts: list[TensorFacts | None] = []
        for argument, parameter in zip(arguments, self.signature.given, strict=True):
            if not parameter.is_memory:
                facts.append(None)
                continue
            try:
                adapter, tensor = self._converted(argument)
                facts.append(adapter.describe(tensor))
            except HidetError as error:
                self._blame(parameter, error)
                raise
        self._check_numbers(arguments)
        devices = {fact.device for fact in facts if fact is not None}
        if self._elsewhere is not None and len(devices) == 1 and self._is_sibling(*devices):
            raise _OtherDeviceError(*devices)
        return self.signature.sizes_of(facts, arguments, self._device)

    def _blame(self, parameter: Parameter, error: HidetError) -> None:
        """Say which argument an error is about."""
        error.message = f"argument {parameter.name} of {self.name}: {error.message}"

    def _is_sibling(self, device: str) -> bool:
        """Whether it is another device of the same target."""
        return device != self._device and device.partition(":")[0] == self._device.partition(":")[0]

    def _check_numbers(self, arguments: tuple[Any, ...]) -> None:
        """Raise DTypeError for the first argument that is no number of its parameter's type."""
        for parameter, argument in zip(self.signature.given, arguments, strict=True):
            if not parameter.is_memory:
                check_number(self.name, parameter, argument)


def _quick_check(
    arguments: tuple[Any, ...],
    is_memory: tuple[bool, ...],
    adapters: list[CheckedAdapter],
    sizes: tuple[int, ...],
) -> _QuickCheck | None:
    """A quick check for further calls; None where no single library has one for all tensors."""
    places = tuple(place for place, flag in enumerate(is_memory) if flag)
    if not places or any(adapter is not adapters[0] for adapter in adapters):
        return None
    adapter = adapters[0]
    guard = adapter.guard([arguments[place] for place in places])
    if guard is None:
        return None
    return _QuickCheck(guard, places, adapter.pointer, adapter.stream, sizes)


class CompiledModule(Shown):
    """Functions compiled together. Calling the module calls its entry; `module["name"]` is one function.

    kernels: what each kernel takes of a GPU, by name.
    """

    def __init__(
        self,
        ir_module: Module,
        load: Callable[[], Mapping[str, CompiledFunction]],
        source: Callable[[], str],
        kernels: Mapping[str, KernelUsage],
    ) -> None:
        """load: puts the code where it runs and gives its functions; called when the first of them is asked for."""
        self.ir_module = ir_module
        self.kernels = dict(kernels)
        self._load = load
        self._source = source

    def __repr__(self) -> str:
        names = ", ".join(function.name for function in self.ir_module.functions if function.kind != "device")
        return f"<{type(self).__name__} with {names}>"

    @functools.cached_property
    def functions(self) -> dict[str, CompiledFunction]:
        """What Python may call, by name. The errors of the target where its code cannot run on this machine."""
        return dict(self._load())

    def load(self) -> None:
        """Put the code where it runs now, not when the first function is asked for. Raises what `functions` raises."""
        _ = self.functions

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Call the entry: the function called `launch`, else the first one that Python may call."""
        return self.functions[self.ir_module.entry](*arguments, **keywords)

    def __getitem__(self, name: str) -> CompiledFunction:
        """A function by name; `launch` is the entry where no function has that name. LaunchError for unknown names."""
        found = self.functions.get(self.ir_module.entry if name == "launch" else name)
        found = self.functions.get(name, found)
        if found is None:
            _unknown(name, self.functions)
        return found

    def profile(self, *arguments: Any, warmup: int = 1, number: int = 2, repeat: int = 10) -> list[float]:
        """Milliseconds of a call of the entry, see `CompiledFunction.profile`."""
        entry = self.functions[self.ir_module.entry]
        return entry.profile(*arguments, warmup=warmup, number=number, repeat=repeat)

    def source(self, color: bool = False) -> str:
        """What the target's compiler got: LLVM IR, or CUDA C++. color: with the escape codes of a terminal."""
        text = self._source()
        return _coloured(text) if color else text


def _unknown(name: str, functions: Mapping[str, CompiledFunction]) -> NoReturn:
    raise LaunchError(f"the module has no function {name!r} to call", hint=suggestion(name, functions))


def _coloured(text: str) -> str:
    from rich.console import Console
    from rich.syntax import Syntax

    out = StringIO()
    language = "llvm" if "target triple" in text[:200] else "cuda"
    Console(file=out, force_terminal=True, width=200).print(Syntax(text, language))
    return out.getvalue()

"""The host program of a compiled graph: frozen data that the executor runs and an artifact stores.

Compiled segments read everything they need from one table of 8-byte slots: addresses of tensors and values of sizes.
Slots that depend on sizes alone are filled once a shape; a call only writes addresses of its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hidet.dims import Dim, Symbol
from hidet.dtypes import DType
from hidet.records import record

ALIGNED = 16
"""Bytes at multiples of which tensors begin whose elements steps read several at a time."""


@record(eq=True)
class TensorSlot:
    """A tensor whose address is in `slot`. Strides are in elements."""

    slot: int
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class ObjectSlot:
    """A value on the host that is no tensor in memory: a sequence, an optional value, a tensor of strings.

    It is a Python object in a table of its own: a list of arrays, an array, or None for an absent value.
    shape: of a tensor of strings; None for other values.
    """

    slot: int
    shape: tuple[Dim, ...] | None = None


@record(eq=True)
class InputSlot:
    """One argument of a call: a tensor, a host value, or with neither a plain integer, whose value is `size`.

    is_used: whether steps or results find the tensor in its slot; not, where nothing reads it.
    """

    tensor: TensorSlot | None
    is_parameter: bool = False
    size: Dim | None = None
    name: str = ""
    host: ObjectSlot | None = None
    is_used: bool = True


@record(eq=True)
class OutputSlot:
    """One result of a call.

    tensor: where it lies. storage: bytes of fresh memory it needs, None when it lies in the storage of another
    output, `same_as`. mutates: number of the input whose memory it is written to instead; such a result is not
    returned. size: a plain integer result. host: a host value. is_made: the tensor was made by a step, and is returned.
    """

    tensor: TensorSlot | None
    storage: Dim | None = None
    same_as: int | None = None
    mutates: int | None = None
    size: Dim | None = None
    host: ObjectSlot | None = None
    is_made: bool = False


@record(eq=True)
class ArenaBuffer:
    """Temporary memory: its bytes, and the first and last step during which it must not be overwritten."""

    slot: int
    nbytes: Dim
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of kernels compiled into one host function `void symbol(pool, table)`."""

    symbol: str


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """Where a symbol's value comes from: extent `axis` of input number `input`, or the integer input itself (None).

    The value is (extent - offset) * multiplier / divisor: an extent of 2 * s + 6 has offset 6 and divisor 2.
    """

    name: str
    input: int
    axis: int | None
    offset: int = 0
    multiplier: int = 1
    divisor: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether the extent is the value."""
        return (self.offset, self.multiplier, self.divisor) == (0, 1, 1)


Place = TensorSlot | ObjectSlot | Dim
"""What a step takes: a tensor, a host value, or a size."""


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """A node run by the frontend's framework, or by numpy.

    arguments: where its tensor inputs lie, None for absent ones. results: where compiled code expects its outputs.
    attrs: of an operator that numpy runs, which `call` takes besides; None for the frontend's own callables.
    is_made: the results stay where the callee made them, and tell the symbols `defines`.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Place | None, ...]
    results: tuple[TensorSlot | ObjectSlot, ...]
    attrs: Mapping[str, Any] | None = None
    is_made: bool = False
    defines: tuple[SymbolSource, ...] = ()

    @property
    def is_host(self) -> bool:
        """Whether numpy runs it."""
        return self.attrs is not None


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """`left` has to equal `right`, or be at most `right`; operator `what` at `place` ("": unknown) relies on it."""

    left: Dim
    right: Dim
    is_equality: bool
    what: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class NumberCheck:
    """`value` has to be a number of the integer type `dtype`: argument `what` of the operator at `place` is of it."""

    value: Dim
    dtype: DType
    what: str
    place: str = ""


@record(eq=True)
class ConstantSlot:
    """Constant number `index` of the constant store lies at the address in `slot`."""

    slot: int
    index: int


@dataclass(frozen=True, slots=True)
class PositionCheck:
    """A step that ends the call with PositionError when a tensor of `count` positions has one outside of an axis.

    worst: the i64 that `hidet.graph.position` reduces the positions to. what, place: for the message; place is where
    the operator stands in the user's model, "" where that is unknown.
    """

    worst: TensorSlot
    extent: Dim
    count: Dim
    wraps: bool
    what: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class ReadSizes:
    """Integers in memory whose values are those of symbols: the host waits until they are there."""

    source: TensorSlot
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class SubProgram:
    """A program that a step runs, on `arguments`, one an input of it."""

    program: HostProgram
    arguments: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Run one of two programs. Results stay where it made them, and tell the symbols `defines`."""

    name: str
    condition: TensorSlot
    then: SubProgram
    otherwise: SubProgram
    results: tuple[TensorSlot | ObjectSlot, ...]
    defines: tuple[SymbolSource, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """Run a program repeatedly: its arguments are the number of the iteration, carried values and captures.

    limit: how often at most; None for no limit. condition: whether it runs at all, None if so. tests: the program's
    first result says whether another iteration follows. carried: how many arguments after the number are replaced by
    results. results: the final carried values, then what each iteration makes, stacked along a new axis 0.
    """

    name: str
    body: SubProgram
    limit: TensorSlot | Dim | None
    condition: TensorSlot | None
    tests: bool
    carried: int
    results: tuple[TensorSlot | ObjectSlot, ...]
    defines: tuple[SymbolSource, ...] = ()


Step = Segment | ForeignCall | PositionCheck | ReadSizes | Branch | Loop


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgram:
    """What a call does.

    A step that tells symbols ends a stage: what depends on these is laid out when they are known.

    slots: length of the table. sizes: slots whose value is a size. stored: slots of constants and of what is prepared,
    and how many bytes steps may read there. symbols: sources of the symbols that sizes are made
    of. prepare: the program that computes `prepared` slots from constants alone, once and for all. size_checks: what
    code relies on and nobody could prove; checked once a shape class, as `number_checks` are, which say that sizes fit
    integers that they are passed as. is_repeatable: a call may be done again, after one with other parameters, and
    nothing tells that it was: it overwrites no input. asserted: numbers of the parameters that assertions on a device
    depend on, which must be the right ones all the same. aligned: numbers of the inputs that steps take to begin at a
    multiple of `ALIGNED` bytes: a call copies those that do not.
    """

    slots: int
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    steps: tuple[Step, ...]
    buffers: tuple[ArenaBuffer, ...] = ()
    sizes: tuple[tuple[int, Dim], ...] = ()
    constants: tuple[ConstantSlot, ...] = ()
    stored: tuple[tuple[int, Dim], ...] = ()
    symbols: tuple[SymbolSource, ...] = ()
    prepare: HostProgram | None = None
    prepared: tuple[int, ...] = ()
    size_checks: tuple[SizeCheck, ...] = ()
    number_checks: tuple[NumberCheck, ...] = ()
    is_repeatable: bool = False
    asserted: tuple[int, ...] = ()
    aligned: tuple[int, ...] = ()


def program_sizes(program: HostProgram) -> list[Dim]:
    """Every size that a call needs, apart from those of its inputs; some occur more than once."""
    found: list[Dim] = [buffer.nbytes for buffer in program.buffers] + [dim for _, dim in program.sizes]
    found += [dim for check in program.size_checks for dim in (check.left, check.right)]
    found += [check.value for check in program.number_checks]
    for output in program.outputs:
        found += output_sizes(output)
    for step in program.steps:
        found += step_sizes(step)
    return found


def output_sizes(output: OutputSlot) -> list[Dim]:
    """The sizes that allocating an output needs."""
    found = [dim for dim in (output.storage, output.size) if dim is not None]
    return found if output.tensor is None or output.is_made else found + _sizes_of(output.tensor)


def step_sizes(step: Step) -> list[Dim]:
    """The sizes that must be known when a step starts: those of its arguments, and of results in planned memory."""
    places = step_places(step)
    if isinstance(step, ForeignCall) and not step.is_made:
        places += step.results
    return [dim for place in places if place is not None for dim in _sizes_of(place)]


def step_places(step: Step) -> list[Place | None]:
    """What a step takes: its own arguments, then those of the programs it may run."""
    if isinstance(step, ForeignCall):
        return list(step.arguments)
    if isinstance(step, PositionCheck):
        return [step.worst, step.extent, step.count]
    if isinstance(step, ReadSizes):
        return [step.source]
    if isinstance(step, Branch):
        return [step.condition, *step.then.arguments, *step.otherwise.arguments]
    return [step.limit, step.condition, *step.body.arguments] if isinstance(step, Loop) else []


def _sizes_of(place: Place) -> list[Dim]:
    if isinstance(place, TensorSlot):
        return [*place.shape, *place.strides, place.offset]
    return [] if isinstance(place, ObjectSlot) else [place]


def defined_names(step: Step) -> tuple[str, ...]:
    """Names of the symbols whose values a step tells, in the order in which it does."""
    if isinstance(step, ReadSizes):
        return tuple(symbol.name for symbol in step.symbols)
    return () if isinstance(step, Segment | PositionCheck) else tuple(source.name for source in step.defines)


def subprograms(step: Step) -> tuple[SubProgram, ...]:
    """The programs that a step may run."""
    if isinstance(step, Branch):
        return (step.then, step.otherwise)
    return (step.body,) if isinstance(step, Loop) else ()


def programs_of(program: HostProgram) -> Iterator[HostProgram]:
    """A program and all programs that its steps may run."""
    yield program
    for step in program.steps:
        for inner in subprograms(step):
            yield from programs_of(inner.program)


def map_subprograms(program: HostProgram, change: Callable[[HostProgram], HostProgram]) -> HostProgram:
    """The program with every program inside it changed, inner ones first."""

    def changed(inner: SubProgram) -> SubProgram:
        return replace(inner, program=change(map_subprograms(inner.program, change)))

    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, Branch):
            steps.append(replace(step, then=changed(step.then), otherwise=changed(step.otherwise)))
        else:
            steps.append(replace(step, body=changed(step.body)) if isinstance(step, Loop) else step)
    return replace(program, steps=tuple(steps))


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Graph nodes by how they run; those of sub-graphs are counted once, however often they run.

    names: (class, operator) for each task that is not plainly scheduled. places: where in the user's model each of
    those stands, "" where that is unknown.
    """

    scheduled: int = 0
    fallback: int = 0
    routine: int = 0
    host: int = 0
    eager: int = 0
    names: tuple[tuple[str, str], ...] = field(default=())
    places: tuple[str, ...] = field(default=())
    control: int = 0


def segment_symbols(program: HostProgram) -> list[str]:
    """Symbols of every segment of a program, of those inside it, and of their prepare programs."""
    found: list[str] = []
    for part in programs_of(program):
        found += [step.symbol for step in part.steps if isinstance(step, Segment)]
        found += [] if part.prepare is None else segment_symbols(part.prepare)
    return found

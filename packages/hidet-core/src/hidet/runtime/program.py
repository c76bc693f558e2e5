"""The host program of a compiled graph: frozen data that the executor runs and an artifact stores.

Compiled segments read everything they need from one table of 8-byte slots: addresses of tensors and values of sizes.
Slots that depend on sizes alone are filled once a shape; a call only writes addresses of its inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hidet.dims import Dim
from hidet.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A tensor whose address is in `slot`. Strides are in elements."""

    slot: int
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class InputSlot:
    """One argument of a call. `tensor` None: a plain integer, whose value is `size`."""

    tensor: TensorSlot | None
    is_parameter: bool = False
    size: Dim | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """One result of a call.

    tensor: where it lies. storage: bytes of fresh memory it needs, None when it lies in the storage of another
    output, `same_as`. mutates: number of the input whose memory it is written to instead; such a result is not
    returned. size: a plain integer result.
    """

    tensor: TensorSlot | None
    storage: Dim | None = None
    same_as: int | None = None
    mutates: int | None = None
    size: Dim | None = None


@dataclass(frozen=True, slots=True)
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
class ForeignCall:
    """A node run by the frontend's framework, or by numpy.

    arguments: where its tensor inputs lie, None for absent ones. results: where compiled code expects its outputs.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[TensorSlot | Dim | None, ...]
    results: tuple[TensorSlot, ...]
    is_host: bool = False


@dataclass(frozen=True, slots=True)
class PositionCheck:
    """A step that ends the call with PositionError when a tensor of `count` positions has one outside of an axis.

    worst: the i64 that `hidet.graph.position` folds the positions to. what, place: for the message; place is where the
    operator stands in the user's model, "" where that is unknown.
    """

    worst: TensorSlot
    extent: Dim
    count: Dim
    wraps: bool
    what: str
    place: str = ""


Step = Segment | ForeignCall | PositionCheck


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


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """`left` has to equal `right`, or be at most `right`; operator `what` at `place` ("": unknown) relies on it."""

    left: Dim
    right: Dim
    is_equality: bool
    what: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class ConstantSlot:
    """Constant number `index` of the constant store lies at the address in `slot`."""

    slot: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgram:
    """What a call does.

    slots: length of the table. sizes: slots whose value is a size. symbols: sources of the symbols that sizes are made
    of. prepare: the program that computes `prepared` slots from parameters, its inputs being the inputs numbered
    `prepare_inputs`. size_checks: what code relies on and nobody could prove; checked once a shape class.
    """

    slots: int
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    steps: tuple[Step, ...]
    buffers: tuple[ArenaBuffer, ...] = ()
    sizes: tuple[tuple[int, Dim], ...] = ()
    constants: tuple[ConstantSlot, ...] = ()
    symbols: tuple[SymbolSource, ...] = ()
    prepare: HostProgram | None = None
    prepare_inputs: tuple[int, ...] = ()
    prepared: tuple[int, ...] = ()
    size_checks: tuple[SizeCheck, ...] = ()


def program_sizes(program: HostProgram) -> list[Dim]:
    """Every size that a call needs, apart from those of its inputs; some occur more than once."""
    found: list[Dim] = [buffer.nbytes for buffer in program.buffers] + [dim for _, dim in program.sizes]
    found += [dim for check in program.size_checks for dim in (check.left, check.right)]
    tensors = [output.tensor for output in program.outputs if output.tensor is not None]
    for output in program.outputs:
        found += [dim for dim in (output.storage, output.size) if dim is not None]
    for step in program.steps:
        if isinstance(step, ForeignCall):
            given = [argument for argument in step.arguments if argument is not None]
            tensors += [item for item in (*given, *step.results) if isinstance(item, TensorSlot)]
            found += [item for item in given if not isinstance(item, TensorSlot)]
        elif isinstance(step, PositionCheck):
            tensors.append(step.worst)
            found += [step.extent, step.count]
    for tensor in tensors:
        found += [*tensor.shape, *tensor.strides, tensor.offset]
    return found


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Graph nodes by how they run.

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

"""Calls of a device's graph on tensors of the host, which are copied to the device, and results back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hidet.runtime.adapter import CheckedAdapter
from hidet.runtime.frame import span
from hidet.runtime.program import HostProgram

if TYPE_CHECKING:
    from hidet.runtime.adapter import TensorFacts
    from hidet.target import DeviceMemory

Run = Callable[[Sequence[Any], CheckedAdapter], list[Any]]


def run_copied(
    program: HostProgram, arguments: Sequence[Any], adapter: CheckedAdapter, memory: DeviceMemory, run: Run
) -> list[Any]:
    """What `run` gives on copies of the arguments, as tensors of `adapter`'s library; what it overwrites is copied
    into the arguments.

    Copies lie in memory as the arguments do, what is between their elements included.
    """
    device = memory.adapter()
    transfer = memory.in_stream(device.stream())

    def send(tensor: Any) -> Any:
        facts = adapter.describe(tensor)
        made, address = device.empty(facts.shape, facts.strides, facts.dtype.name)
        transfer.from_host(address, adapter.pointer(tensor), _bytes(facts))
        return made

    def fetch(tensor: Any) -> Any:
        facts = device.describe(tensor)
        made, address = adapter.empty(facts.shape, facts.strides, facts.dtype.name)
        transfer.to_host(address, device.pointer(tensor), _bytes(facts))
        return made

    placed = [
        value if given.tensor is None else send(value) for value, given in zip(arguments, program.inputs, strict=True)
    ]
    results = run(placed, device)
    for output in program.outputs:
        if output.mutates is not None:
            # Element by element: other arguments may lie between those of this one.
            adapter.copy(arguments[output.mutates], fetch(placed[output.mutates]))
    returned = [output for output in program.outputs if output.mutates is None]
    return [value if output.tensor is None else fetch(value) for value, output in zip(results, returned, strict=True)]


def _bytes(facts: TensorFacts) -> int:
    return span(facts.shape, facts.strides) * facts.dtype.nbytes

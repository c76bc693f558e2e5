"""Graphs of a model that a framework has compiled through hidet, with what they are called with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hidet.compiler.graphs import compiled_parts
from hidet.errors import OptionError
from hidet.runtime.adapter import CheckedAdapter
from hidet.runtime.compiled import CompiledGraph


@dataclass(frozen=True, slots=True, eq=False)
class GraphCall:
    """A call of a compiled graph: `call.compiled.profile(*call.inputs)`. inputs: of the graph in order, copies of what
    they were."""

    compiled: CompiledGraph
    inputs: tuple[Any, ...]


def record_calls(model: Any, step: Callable[[], object]) -> list[GraphCall]:
    """The first call of each graph of a model that `step` makes, in order: those that dynamo has made of its parts, and
    of its backward pass.

    model: what `torch.compile(module, backend="hidet")` has returned. step: calls it, as `lambda:
    model(x).sum().backward()` does; it is called twice, because the first time may compile. OptionError where `step`
    calls no graph of the model, and for a model that nobody has compiled.
    """
    step()
    parts = compiled_parts(model)
    if parts is None:
        raise OptionError(
            f"record_calls takes what torch.compile(module, backend='hidet') returns, got a {type(model).__name__}",
            hint="a CompiledGraph has profile and report itself",
        )
    calls: list[GraphCall] = []
    for part in parts:
        part.replace(_Noted(part.compiled, calls))
    try:
        step()
    finally:
        for part in parts:
            part.replace(part.compiled)
    if not calls:
        raise OptionError("step calls no graph of the model that hidet has compiled")
    return calls


class _Noted(CompiledGraph):
    """A compiled graph that notes its first call."""

    def __init__(self, compiled: CompiledGraph, calls: list[GraphCall]) -> None:
        self.__dict__.update(compiled.__dict__)
        self._noted: CompiledGraph | None = compiled
        self._calls = calls

    def run(self, arguments: Sequence[Any], adapter: CheckedAdapter) -> list[Any]:
        if self._noted is not None:
            slots = self.bundle.program.inputs
            inputs = (
                value if slot.tensor is None else adapter.laid_out(value, adapter.describe(value).strides)
                for slot, value in zip(slots, arguments, strict=True)
            )
            self._calls.append(GraphCall(self._noted, tuple(inputs)))
            self._noted = None
        return super().run(arguments, adapter)

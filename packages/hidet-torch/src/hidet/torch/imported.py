"""What an import gives: a graph, and how the callable around it is called and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from hidet.dims import Dim
    from hidet.graph import Graph
    from hidet.runtime.program import SymbolSource
    from hidet.torch.eager_nodes import EagerNode
    from hidet.torch.numbers import ComputedNumber


@dataclass(frozen=True, slots=True)
class Region:
    """A view of a tensor: sizes, strides, and offset in elements from the tensor's first one."""

    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One thing to return.

    number: of an argument of the call, or of a result of the core graph. region: the part of it, None for all.
    through: parts of the same that the region is a view of, the first one first: elements that are not in all of them
    have no gradient. fixed: the thing itself; a Dim stands for its value.
    """

    source: Literal["argument", "result", "element", "fixed"]
    number: int = -1
    region: Region | None = None
    through: tuple[Region, ...] = ()
    fixed: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class ImportedGraph:
    """A graph and how the callable around it is called.

    inputs: for each input of `graph`, the number of the argument it takes. Inputs nobody reads are dropped.
    arguments: how many arguments there are, the last of which are `computed` from those of the call. symbols: where the
    values of symbolic sizes come from among them. random_inputs: how many inputs after those are drawn from torch's
    generator, 0 or 2: seed and offset.
    outputs: what to return. eager: nodes that run in torch. device: where all tensors are. numbers: inputs that are CPU
    tensors of rank 0, whatever the device. data_symbols: those in `outputs` that depend on data, and for each the
    number of the result that is its value. complex_inputs, complex_results: inputs and results of `graph` that are
    complex tensors of the caller, read as real ones with a last axis of 2.
    """

    graph: Graph
    inputs: tuple[int, ...]
    arguments: int
    symbols: tuple[SymbolSource, ...]
    random_inputs: int
    outputs: tuple[OutputPlan, ...]
    eager: tuple[EagerNode, ...]
    device: torch.device
    numbers: tuple[int, ...] = ()
    data_symbols: tuple[tuple[str, int], ...] = ()
    computed: tuple[ComputedNumber, ...] = ()
    complex_inputs: tuple[int, ...] = ()
    complex_results: tuple[int, ...] = ()


class LateImported(ImportedGraph):
    """An import that was kept: its graph is read when it is first asked for. read: reads it."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], Graph], **others: Any) -> None:
        super().__init__(graph=None, **others)  # type: ignore[arg-type]  # there is none yet
        object.__delattr__(self, "graph")
        object.__setattr__(self, "_read", read)

    def __getattr__(self, name: str) -> Any:
        if name != "graph":
            raise AttributeError(name)
        graph = self._read()
        object.__setattr__(self, "graph", graph)
        return graph

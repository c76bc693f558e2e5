"""Sizes that depend on data: which of them the arguments of a call or the nodes so far tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, DimExpr, symbols
from hidet.errors import UnsupportedOp
from hidet.graph import DimType, TensorType, Value
from hidet.graph.control import defined_sizes
from hidet.runtime.program import SymbolSource
from hidet.torch.emitter import TorchEmitter
from hidet.torch.guards import SizeTable


@dataclass(frozen=True, slots=True, eq=False)
class DataSizes:
    """sizes: of the graph. symbols: those that arguments tell. emitter: knows those that nodes tell."""

    sizes: SizeTable
    symbols: Mapping[str, SymbolSource]
    emitter: TorchEmitter

    def fresh(self, sizes: Sequence[Dim]) -> list[str]:
        """Names of the symbols in sizes whose values neither arguments nor nodes so far tell."""
        names = [symbol.name for size in sizes if isinstance(size, DimExpr) for symbol in symbols(size)]
        return [n for n in dict.fromkeys(names) if n not in self.symbols and n not in self.emitter.data_sizes]

    def settled(self, fresh: list[str], types: Sequence[TensorType | None], made: Any) -> list[str]:
        """`fresh`, or nothing where extents of the results made tell all of these symbols.

        torch 2.11 makes a symbol for the length of a slice of an axis that depends on data; core knows the length.
        """
        told: dict[str, Dim] = {}
        pairs = zip(types, made if isinstance(made, tuple) else (made,), strict=False) if fresh else ()
        for wanted, value in pairs:
            if wanted is not None and isinstance(value, Value):
                extents = zip(wanted.shape, value.tensor.shape, strict=True)
                told.update((str(a), b) for a, b in extents if str(a) in fresh and not self.fresh([b]))
        if len(told) < len(fresh):
            return fresh
        for name, size in told.items():
            self.sizes.settle(name, size)
        return []

    def undefined(self, names: Sequence[str]) -> list[str]:
        """Those of the symbols that no node so far defines: an operator may be refused after it was counted."""
        told = {str(size) for node in self.emitter.builder.nodes for size in defined_sizes(node)} if names else set()
        return [name for name in names if name not in told]

    def require_defined(self, names: Sequence[str], operator: str) -> None:
        """UnsupportedOp unless a node so far defines these symbols."""
        missing = self.undefined(names)
        if missing:
            raise UnsupportedOp(f"{operator} makes size {missing[0]}, which depends on data")

    def known(self, dim: Dim, name: str) -> Dim:
        """`dim`, when arguments of a call or nodes so far tell its value."""
        fresh = self.fresh([dim])
        if fresh:
            raise UnsupportedOp(
                f"{name} makes the number {dim}, which neither arguments nor nodes before it tell",
                hint="leave torch._dynamo.config.capture_scalar_outputs off: dynamo then splits the graph there",
            )
        return dim

    def read(self, number: Value, size: Dim, is_checked: bool = False) -> None:
        """The number in a tensor of one element is the symbol `size` from now on.

        is_checked: the number is read, and its range checked, even if nothing has a use for it.
        """
        self.read_all(self.emitter.cast(self.emitter.reshape(number, ()), dtypes.i64), [size], is_checked)

    def read_all(self, numbers: Value, sizes: Sequence[Dim], is_checked: bool = False) -> None:
        """As `read`, of a tensor of i64 with as many elements as there are sizes."""
        builder = self.emitter.builder
        spec = replace(builder.operators["read_sizes"], has_effect=is_checked)
        builder.emit_all(spec, [numbers], {"defines": tuple(sizes)})
        self.note([str(size) for size in sizes])

    def note(self, names: Sequence[str]) -> None:
        """Nodes tell these symbols from now on; the values of numbers that were read are at hand."""
        self.emitter.data_sizes.update(names)
        for node in self.emitter.builder.nodes if names else ():
            read = {str(value.type.dim): value for value in node.outputs if isinstance(value.type, DimType)}
            self.emitter.size_values.update((name, read[name]) for name in names if name in read)

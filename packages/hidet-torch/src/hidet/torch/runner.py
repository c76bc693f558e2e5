"""The callable around a compiled graph: boxed arguments in, a list of results out, as AOTAutograd calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from hidet.dims import Dim, DimExpr, compile_evaluator
from hidet.errors import HidetError
from hidet.runtime.compiled import CompiledGraph, CompileReport
from hidet.runtime.parameter_sets import item_getter
from hidet.torch import compat
from hidet.torch.fx_nodes import as_real
from hidet.torch.imported import ImportedGraph, OutputPlan, Region
from hidet.torch.tensors import DeviceAdapter, TorchAdapter

Evaluate = Callable[[Sequence[int]], tuple[int, ...]]


class Runner:
    """Runs one compiled graph on the arguments of its aten graph.

    It takes a list and clears it, so that the caller's tensors can be freed as soon as they are used. `compiled` None:
    the graph returns nothing but its arguments and constants.
    """

    def __init__(self, imported: ImportedGraph, compiled: CompiledGraph | None) -> None:
        compat.mark_boxed(self)
        self.imported = imported
        self._compiled = compiled
        self._with_names: CompiledGraph | None = None
        device = imported.device
        self._adapter = TorchAdapter() if device.type == "cpu" else DeviceAdapter(device)
        is_changed = imported.random_inputs or imported.numbers or imported.complex_inputs
        self._pick = item_getter(imported.inputs)
        self._takes_all = imported.inputs == tuple(range(imported.arguments)) and not is_changed
        self._outputs = imported.outputs
        self._is_direct = [(plan.source, plan.number, plan.region) for plan in imported.outputs] == [
            ("result", number, None) for number in range(len(imported.outputs))
        ]
        self._sizes = _Sizes(imported)

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """The results, in the order of the aten graph's outputs."""
        if compat.is_profiling():
            with torch.profiler.record_function(f"hidet::{self.imported.graph.name}"):
                return self._run(args, self._named())
        return self._run(args, self._compiled)

    @property
    def compiled(self) -> CompiledGraph | None:
        """What runs the graph; None where there is nothing to compute."""
        return self._compiled

    def replace(self, compiled: CompiledGraph) -> None:
        """Run another form of the same graph from the next call on."""
        self._compiled, self._with_names = compiled, None

    def report(self) -> CompileReport | None:
        """What the compilation did; None where there was nothing to compile."""
        return None if self._compiled is None else self._compiled.report()

    def _named(self) -> CompiledGraph | None:
        """The compiled graph with a range of torch.profiler around each kernel, where hidet-report is there to make it.

        Of a device the profiler names kernels by itself.
        """
        if self._with_names is None:
            compiled, self._with_names = self._compiled, self._compiled
            if compiled is not None and self.imported.device.type == "cpu":
                with suppress(AttributeError, HidetError):
                    self._with_names = compiled.with_ranges(_recorded)
        return self._with_names

    def _run(self, args: list[Any], compiled: CompiledGraph | None) -> Sequence[Any]:
        results: list[Any] = []
        if self.imported.computed:
            args += [number(args) for number in self.imported.computed]
        if compiled is not None:
            inputs = args if self._takes_all else list(self._pick(args))
            for place in self.imported.numbers:
                inputs[place] = inputs[place].to(self.imported.device)
            for place in self.imported.complex_inputs:
                inputs[place] = as_real(inputs[place])
            if self.imported.random_inputs:
                inputs += _draw(self.imported.random_inputs, self.imported.device)
            results = compiled.run(inputs, self._adapter)
            for number in self.imported.complex_results:
                results[number] = torch.view_as_complex(results[number])
        if self._is_direct:
            args.clear()
            return results
        values = self._sizes.evaluate(args, results)
        returned = [_make(plan, args, results, values) for plan in self._outputs]
        args.clear()
        return returned


def _recorded(name: str, call: Callable[..., object]) -> Callable[..., object]:
    """A function as a range of torch.profiler."""

    def recorded(*arguments: Any) -> object:
        with torch.profiler.record_function(name):
            return call(*arguments)

    return recorded


def _draw(count: int, device: torch.device) -> list[torch.Tensor]:
    """Seed and offset from torch's generator, which moves on; `torch.manual_seed` makes them reproducible."""
    drawn = torch.empty(2, dtype=torch.int64, device=device).random_()
    return [drawn[0], drawn[1]][:count]


def _make(plan: OutputPlan, args: Sequence[Any], results: Sequence[Any], sizes: dict[DimExpr, int]) -> Any:
    if plan.source == "fixed":
        return _value(plan.fixed, sizes)
    if plan.source == "element":
        return results[plan.number].item()
    tensor = args[plan.number] if plan.source == "argument" else results[plan.number]
    if plan.region is None:
        return tensor
    first = tensor.storage_offset()
    if plan.source == "result" and not plan.through:
        # No view to autograd, which would give it a gradient wherever the other result has one, and refuse to change in
        # place what a function with a backward pass has returned as a view.
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        shape, strides, begin = _place(plan.region, first, sizes)
        return made.set_(tensor.untyped_storage(), begin, shape, strides)
    for region in (*plan.through, plan.region):
        tensor = tensor.as_strided(*_place(region, first, sizes))
    return tensor


def _place(region: Region, first: int, sizes: dict[DimExpr, int]) -> tuple[list[int], list[int], int]:
    """Sizes, strides and storage offset. first: the storage offset of the tensor that it is a region of."""
    shape = [_value(extent, sizes) for extent in region.shape]
    strides = [_value(stride, sizes) for stride in region.strides]
    return shape, strides, first + _value(region.offset, sizes)


def _value(item: Any, sizes: dict[DimExpr, int]) -> Any:
    if isinstance(item, DimExpr):
        return sizes[item]
    if isinstance(item, list | tuple):
        return type(item)(_value(inner, sizes) for inner in item)
    return item


class _Sizes:
    """The symbolic sizes in output plans, evaluated from the arguments and from results that tell sizes."""

    def __init__(self, imported: ImportedGraph) -> None:
        self._dims = list(dict.fromkeys(dim for plan in imported.outputs for dim in _dims_of(plan)))
        self._sources = imported.symbols
        self._results = [number for _, number in imported.data_symbols]
        names = [source.name for source in self._sources] + [name for name, _ in imported.data_symbols]
        self._evaluate: Evaluate | None = compile_evaluator(self._dims, names) if self._dims else None

    def evaluate(self, args: Sequence[Any], results: Sequence[Any]) -> dict[DimExpr, int]:
        """Values of all sizes."""
        if self._evaluate is None:
            return {}
        symbols = [
            args[source.input] if source.axis is None else args[source.input].shape[source.axis]
            for source in self._sources
        ]
        symbols += [int(results[number]) for number in self._results]
        return dict(zip(self._dims, self._evaluate(symbols), strict=True))


def _dims_of(plan: OutputPlan) -> list[DimExpr]:
    found: list[Dim] = []
    for region in (*plan.through, *([] if plan.region is None else [plan.region])):
        found += [*region.shape, *region.strides, region.offset]
    stack = [plan.fixed]
    while stack:
        item = stack.pop()
        if isinstance(item, list | tuple):
            stack.extend(item)
        elif isinstance(item, DimExpr):
            found.append(item)
    return [dim for dim in found if isinstance(dim, DimExpr)]

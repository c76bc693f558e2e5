"""What a compiled graph returns: strides and memory sharing as eager mode has them.

A core graph returns fresh tensors. Whatever else aten graphs return is made by the callable around it:

    argument    the caller's own tensor, or a view of it
    result      a result of the core graph, or a view of one
    element     the number in a result of the core graph
    fixed       None, a number, a size

Results get their eager strides by giving the value that type, where a computed value allows it, else by a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from hidet.dims import Algebra, Dim, DimExpr, Reparametrization, fold, maximum, product, prove_equal, symbols
from hidet.errors import ImportFailed
from hidet.graph import TensorType, Value
from hidet.graph.types import contiguous_strides, same_shape, strides_of_order
from hidet.torch import compat
from hidet.torch.data_sizes import DataSizes
from hidet.torch.emitter import Scalar
from hidet.torch.fx_nodes import COMPLEX, tensor_of_caller
from hidet.torch.guards import SizeTable
from hidet.torch.imported import OutputPlan, Region
from hidet.torch.layout import memory_order
from hidet.torch.tensors import dtype_of
from torch import fx


@dataclass(slots=True)
class PlannedOutputs:
    """The outputs of the core graph, the types they must have, and what to return.

    symbols: those of sizes that depend on data among what to return, with the number of the output that tells each.
    complex: numbers of outputs that are returned as complex tensors, whose last axis of 2 has real and imaginary parts.
    Regions of these count complex elements.
    """

    values: list[Value] = field(default_factory=list)
    types: dict[Value, TensorType] = field(default_factory=dict)
    outputs: tuple[OutputPlan, ...] = ()
    symbols: dict[str, int] = field(default_factory=dict)
    complex: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Returned:
    """An fx output with its fake tensor's facts."""

    node: fx.Node
    region: Region
    storage: int
    is_whole: bool
    dtype: torch.dtype


Written = Mapping[int, fx.Node]
"""What arguments are overwritten with, by their numbers."""


def plan_outputs(
    known: DataSizes,
    returned: Sequence[Any],
    resolve: Callable[[Any], Any],
    arguments: Sequence[fx.Node],
    written: Written,
    saved_from: int | None = None,
) -> PlannedOutputs:
    """Decide how each returned thing is made. `arguments` are the placeholders; copies are emitted where needed.

    saved_from: number of the first returned thing that a backward graph reads, which relies on its strides; None where
    callers get them all.
    """
    return _Planner(known, resolve, arguments, written).run(returned, saved_from)


PlanOutputs = Callable[[DataSizes, Sequence[Any], Callable[[Any], Any], Sequence[fx.Node], Written], PlannedOutputs]


def plan_own_outputs(
    known: DataSizes,
    returned: Sequence[Any],
    resolve: Callable[[Any], Any],
    arguments: Sequence[fx.Node],
    written: Written,
) -> PlannedOutputs:
    """Every returned tensor a result of its own; what is no tensor is left out.

    Axes lie in memory in the order that torch's fake tensors have, or row-major where these leave gaps.
    """
    plan, emitter = PlannedOutputs(), known.emitter
    for item in returned:
        value = resolve(item)
        if not isinstance(value, Value):
            continue
        is_own = emitter.owns_memory(value) and value not in plan.values
        result = value if is_own else emitter.emit("copy", value)
        plan.values.append(result)
        order = _order(item, known.sizes)
        if order is not None:
            plan.types[result] = result.tensor.with_strides(strides_of_order(result.tensor.shape, order))
    plan.outputs = tuple(OutputPlan("result", number) for number in range(len(plan.values)))
    return plan


def _order(item: Any, sizes: SizeTable) -> tuple[int, ...] | None:
    """The order of a returned tensor's axes in memory, outermost first; None where it is row-major or has gaps."""
    if not isinstance(item, fx.Node) or not _is_tensor(item):
        return None
    tensor = item.meta["val"]
    shape = sizes.shape(tensor.shape)
    order = memory_order(shape, sizes.shape(tensor.stride()))
    # Axes of one element lie anywhere.
    longer = [axis for axis in order or () if shape[axis] != 1]
    return None if longer == sorted(longer) else order


class _Planner:
    def __init__(
        self, known: DataSizes, resolve: Callable[[Any], Any], arguments: Sequence[fx.Node], written: Written
    ) -> None:
        self.known = known
        self.emitter = known.emitter
        self.sizes = known.sizes
        self.resolve = resolve
        self.plan = PlannedOutputs()
        self.owners: dict[Value, int] = {}
        self.holders: dict[int, fx.Node] = {}
        self.returned: frozenset[fx.Node] = frozenset()
        tensors = [(n, tensor_of_caller(node)) for n, node in enumerate(arguments) if _is_tensor(node)]
        self.argument_offsets = {number: tensor.storage_offset() for number, tensor in tensors}
        self.argument_dtypes = {number: tensor.dtype for number, tensor in tensors}
        # Of several in one storage the last one, of which AOTAutograd makes the view anew: gradients go by that.
        self.arguments = {_memory_key(tensor): number for number, tensor in tensors}
        self.argument_values = {number: resolve(arguments[number]) for number, _ in tensors}
        self.argument_nodes = {node: number for number, node in enumerate(arguments)}
        self.written = {
            _memory_key(node.meta["val"]): (number, node)
            for number, node in written.items()
            if self._is_whole(node, number)
        }

    def run(self, returned: Sequence[Any], saved_from: int | None) -> PlannedOutputs:
        self.returned = frozenset(item for item in returned if isinstance(item, fx.Node))
        facts = [self._facts(item) for item in returned]
        visible = len(returned) if saved_from is None else saved_from
        computed = [fact for fact in facts if fact is not None and fact.storage not in self.arguments]
        count = Counter(fact.storage for fact in computed)
        bases: dict[int, OutputPlan] = {}
        # Views that share memory are views of what owns it, which nobody may have asked for.
        owners = [self._owner(fact) for fact in computed if count[fact.storage] > 1 and not fact.is_whole]
        for fact in (*computed, *(owner for owner in owners if owner is not None)):
            if fact.is_whole and fact.storage not in bases:
                bases[fact.storage] = self._computed(fact)
        self.plan.outputs = tuple(
            self._fixed(item) if fact is None else self._tensor(fact, bases, is_saved=number >= visible)
            for number, (item, fact) in enumerate(zip(returned, facts, strict=True))
        )
        return self.plan

    def _facts(self, item: Any) -> _Returned | None:
        if not isinstance(item, fx.Node) or not _is_tensor(item):
            return None
        tensor = tensor_of_caller(item)
        shape = self.sizes.shape(tensor.shape)
        region = Region(shape, self.sizes.shape(tensor.stride()), self.sizes.dim(tensor.storage_offset()))
        # A tensor without elements is whole wherever it lies: what remains to be proved is of one that has some.
        strides = [_without_zeros(stride, shape) for stride in region.strides]
        nbytes = _without_zeros(self.sizes.dim(tensor.untyped_storage().nbytes()), shape)
        filled = prove_equal(nbytes, product(shape) * tensor.element_size())
        is_whole = filled is True and region.offset == 0 and memory_order(shape, strides) is not None
        return _Returned(item, region, _memory_key(tensor), is_whole, tensor.dtype)

    def _owner(self, fact: _Returned) -> _Returned | None:
        """The tensor that a returned one is a view of; None where no node makes the whole of it."""
        *_, node = _views(fact.node)
        found = self._facts(node)
        return found if found is not None and found.is_whole and COMPLEX not in node.meta else None

    def _fixed(self, item: Any) -> OutputPlan:
        value = self.resolve(item)
        if isinstance(value, Scalar):
            # A result has memory of its own.
            self.plan.values.append(self.emitter.emit("copy", value.value))
            return OutputPlan("element", len(self.plan.values) - 1)
        if isinstance(value, DimExpr):
            self._tell(value)
        return OutputPlan("fixed", fixed=value)

    def _tell(self, *sizes: Dim) -> None:
        """Let the core graph return what symbols of these sizes stand for, where data tell it."""
        untold = self.known.fresh(sizes)
        if untold:
            raise ImportFailed(f"the graph returns what depends on size {untold[0]}, which nothing in it tells")
        for symbol in (symbol for size in sizes for symbol in symbols(size)):
            if symbol.name in self.emitter.data_sizes and symbol.name not in self.plan.symbols:
                value = self.emitter.size_value(symbol)
                assert value is not None
                self.plan.symbols[symbol.name] = len(self.plan.values)
                self.plan.values.append(value)

    def _part(self, source: Literal["argument", "result"], number: int, region: Region) -> OutputPlan:
        self._tell(*region.shape, *region.strides, region.offset)
        return OutputPlan(source, number, region)

    def _view(
        self, source: Literal["argument", "result"], number: int, fact: _Returned, whole: Value, begin: Dim
    ) -> OutputPlan:
        """A view as the graph makes it. begin: the place in the storage of the first element of `whole`."""
        views = list(_views(fact.node))
        through: list[Region] = []
        # What is no result itself torch makes no views of: their gradients are those of the graph.
        if source == "argument" or views[-1] in self.returned:
            for node, viewed in pairwise(views):
                if node.target == torch.ops.aten.as_strided.default and viewed not in self.argument_nodes:
                    found = self._facts(viewed)
                    assert found is not None
                    through.insert(0, self._region_of(found, whole, begin))
        for region in through:
            self._tell(*region.shape, *region.strides, region.offset)
        plan = self._part(source, number, self._region_of(fact, whole, begin))
        return replace(plan, through=tuple(through))

    def _tensor(self, fact: _Returned, bases: dict[int, OutputPlan], is_saved: bool) -> OutputPlan:
        if fact.node in self.argument_nodes:
            return OutputPlan("argument", self.argument_nodes[fact.node])
        number = self._argument(fact)
        if number is not None and self.argument_dtypes[number] == fact.dtype:
            begin = self.sizes.dim(self.argument_offsets[number])
            return self._view("argument", number, fact, self.argument_values[number], begin)
        if fact.storage in self.written:
            plan = self._view_of_written(fact, *self.written[fact.storage], is_saved)
            if plan is not None:
                return plan
        base = bases.get(fact.storage)
        if base is not None and base.number in self.plan.complex and fact.dtype.is_complex:
            return self._part("result", base.number, fact.region)
        if base is None or self.plan.values[base.number].tensor.dtype != dtype_of(fact.dtype):
            return self._computed(fact)
        whole = self.plan.values[base.number]
        has_shape = same_shape(fact.region.shape, whole.tensor.shape)
        if fact.is_whole and has_shape and same_shape(fact.region.strides, self._strides(whole)):
            # Autograd asks of each tensor whether it has a gradient: `y` and `y.detach()` are two in one memory.
            if self.holders.setdefault(base.number, fact.node) is fact.node:
                return OutputPlan("result", base.number)
            return self._part("result", base.number, fact.region)
        # A copy of a part may be that part of what it is copied from, from an element on that is not the first.
        begin = 0 if base.region is None else 0 - base.region.offset
        return self._view("result", base.number, fact, whole, begin)

    def _argument(self, fact: _Returned) -> int | None:
        """The argument that a tensor is a view of, or the last one in its memory; None where no argument is there."""
        *_, origin = _views(fact.node)
        return self.argument_nodes.get(origin, self.arguments.get(fact.storage))

    def _view_of_written(self, fact: _Returned, number: int, source: fx.Node, is_saved: bool) -> OutputPlan | None:
        """A view of what an argument is overwritten with, as that view of the argument.

        torch makes views of arguments anew by the sizes, strides and offsets of what a backend returns. The strides of
        what is saved for a backward graph are those that it is compiled for.
        """
        if self.argument_dtypes[number] != fact.dtype:
            return None
        strides = self.argument_values[number].tensor.element_strides
        if same_shape(self.sizes.shape(source.meta["val"].stride()), strides):
            begin = self.sizes.dim(source.meta["val"].storage_offset())
            return self._view("argument", number, fact, self.resolve(source), begin)
        if is_saved:
            return None
        value, whole = self.resolve(fact.node), self.resolve(source)
        region = self._region_in(value, whole, strides) if self.emitter.base(value) is whole else None
        return None if region is None else self._part("argument", number, region)

    def _is_whole(self, node: fx.Node, number: int) -> bool:
        """Whether what an argument is overwritten with is no part of something else. torch's copies of a tensor may lie
        as far behind the beginning of their storage as it does."""
        begin = self.sizes.dim(node.meta["val"].storage_offset())
        value = self.resolve(node)
        is_there = begin == self.sizes.dim(self.argument_offsets[number]) and self.emitter.base(value) is value
        return begin == 0 or is_there

    def _region_of(self, fact: _Returned, whole: Value, begin: Dim = 0) -> Region:
        """Where a view lies in `whole`, whose first element is at `begin` of the storage.

        torch makes a symbol for the place where a slice begins at a number that may be negative; core knows the place.
        """
        if not self.known.fresh([fact.region.offset]):
            return replace(fact.region, offset=fact.region.offset - begin)
        value = self.resolve(fact.node)
        region = self._region_in(value, whole) if self.emitter.base(value) is whole else None
        if region is None:
            raise ImportFailed(
                f"the graph returns {fact.node}, a view at a place that depends on data: expected slices alone",
                hint="return a copy of it (.clone())",
            )
        return replace(fact.region, offset=region.offset)

    def _computed(self, fact: _Returned) -> OutputPlan:
        """A result of the core graph, by itself or as the view that the core graph makes of it too."""
        if COMPLEX in fact.node.meta:
            return self._computed_complex(fact)
        value = self.resolve(fact.node)
        root = self.emitter.base(value)
        if self.emitter.owns_memory(root) and self.owners.get(root, fact.storage) == fact.storage:
            if value is root and self._accepts(root, fact.region.strides):
                return OutputPlan("result", self._add(root, fact.region.strides, fact.storage))
            plan = self._view_of_computed(value, root, fact)
            if plan is not None:
                return plan
        copied = self.emitter.emit("copy", value)
        return OutputPlan("result", self._add(copied, fact.region.strides, fact.storage))

    def _computed_complex(self, fact: _Returned) -> OutputPlan:
        """A real result whose last axis becomes the parts of complex elements."""
        value = self.resolve(fact.node)
        if value in self.owners or not self.emitter.owns_memory(value):
            value = self.emitter.emit("copy", value)
        number = self._add(value, (*(2 * stride for stride in fact.region.strides), 1), fact.storage)
        self.plan.complex.append(number)
        return OutputPlan("result", number)

    def _view_of_computed(self, value: Value, root: Value, fact: _Returned) -> OutputPlan | None:
        if not self._accepts(root, contiguous_strides(root.tensor.shape)):
            return None
        region = self._region_in(value, root)
        if region is None or not _same_places(region.shape, region.strides, fact.region.strides):
            return None
        number = self._add(root, contiguous_strides(root.tensor.shape), fact.storage)
        return self._part("result", number, replace(region, strides=fact.region.strides))

    def _region_in(self, value: Value, root: Value, strides: Sequence[Dim] | None = None) -> Region | None:
        """Where `value` lies in `root`; None where a view needs a copy. strides: of `root`, None for those it gets."""
        if value is root:
            return Region(root.tensor.shape, self._strides(root) if strides is None else tuple(strides), 0)
        node = self.emitter.builder.producer(value)
        assert node is not None
        source = node.values[0]
        outer = self._region_in(source, root, strides)
        if outer is None or node.op.view is None:
            return None
        view = node.op.view(source.tensor.with_strides(outer.strides), node.attrs, value.tensor)
        return None if view is None else Region(value.tensor.shape, tuple(view.strides), outer.offset + view.offset)

    def _accepts(self, value: Value, strides: Sequence[Dim]) -> bool:
        """Whether a computed value can still be given these strides."""
        return value not in self.owners or same_shape(self._strides(value), strides)

    def _strides(self, value: Value) -> tuple[Dim, ...]:
        return self.plan.types.get(value, value.tensor).element_strides

    def _add(self, value: Value, strides: Sequence[Dim], storage: int) -> int:
        """The number of `value` among the results, with those strides."""
        if value not in self.owners:
            self.owners[value] = storage
            self.plan.values.append(value)
            if not same_shape(strides, contiguous_strides(value.tensor.shape)):
                self.plan.types[value] = value.tensor.with_strides(strides)
        return self.plan.values.index(value)


def _same_places(shape: Sequence[Dim], strides: Sequence[Dim], others: Sequence[Dim]) -> bool:
    """Whether elements lie at the same places: strides of axes of one element count for nothing."""
    counted = [number for number, extent in enumerate(shape) if extent != 1]
    return same_shape([strides[number] for number in counted], [others[number] for number in counted])


class _OfElements(Reparametrization):
    """Dims where some sizes, which may be zero by their ranges, are not."""

    def __init__(self, sizes: Sequence[Dim]) -> None:
        super().__init__({})
        self.sizes = sizes

    def maximum(self, a: Dim, b: Dim) -> Dim:
        for one, other in ((a, b), (b, a)):
            if one == 1 and other in self.sizes:
                return other
        return maximum(a, b)


def _without_zeros(dim: Dim, sizes: Sequence[Dim]) -> Dim:
    """What a number of torch's is where none of these sizes is zero: torch counts those as one in strides."""
    algebra: Algebra[Dim] = _OfElements(sizes)
    return dim if isinstance(dim, int) else fold(dim, algebra)


def _memory_key(tensor: torch.Tensor) -> int:
    """A number that tensors share exactly when they lie in one storage and show it alike: a conjugate shows others."""
    return 4 * compat.storage_key(tensor) + 2 * tensor.is_conj() + tensor.is_neg()


def _views(node: fx.Node) -> Iterator[fx.Node]:
    """The node, and what it is a view of, nearest first."""
    storage = _memory_key(tensor_of_caller(node))
    yield node
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        source = node.args[0]
        # One of several results (split, unbind) is a view of what these are made of.
        if isinstance(source.meta.get("val"), tuple | list) and source.args and isinstance(source.args[0], fx.Node):
            source = source.args[0]
        if not _is_tensor(source) or _memory_key(tensor_of_caller(source)) != storage:
            return
        node = source
        yield node


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)

"""Numbers among the nodes of a graph: sizes, and what is computed from sizes.

Most whole numbers are dims over symbols that tensors tell. Others come from fractions and floats, such as
`int(size * 0.7)`. Each of these is a symbol of its own (`SizeTable`), and who can do so exactly tells its value: the
functions that torch traced, which Python runs on the arguments of every call. Integer arithmetic would be right for
some, as for `int(size * 1.5)`; but 0.7 is no fraction of small numbers, floats are rounded after every product, and
powers and logarithms have no such form. Python rounds as eager mode does, whatever the function. A number that depends
on elements of computed tensors is computed by the graph, in f64, and read as `read_sizes` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hidet import dtypes
from hidet.dims import Dim, as_dim, symbols
from hidet.errors import UnsupportedOp
from hidet.graph import DimType, TensorType, Value
from hidet.runtime.program import SymbolSource
from hidet.torch.emitter import Scalar
from hidet.torch.fx_nodes import identifier
from torch import fx

if TYPE_CHECKING:
    from hidet.torch.importer import Importer


@dataclass(frozen=True, slots=True, eq=False)
class ComputedNumber:
    """An argument that is computed from those of the call: an int, or a float in a tensor of f64 without axes.

    arguments: numbers of those that `function` takes.
    """

    arguments: tuple[int, ...]
    function: Callable[..., Any]
    is_whole: bool

    def __call__(self, args: Sequence[Any]) -> Any:
        """The number for the arguments of a call."""
        number = self.function(*[args[place] for place in self.arguments])
        return int(number) if self.is_whole else torch.tensor(number, dtype=torch.float64)


def import_number(importer: Importer, node: fx.Node, name: str) -> Dim | Scalar:
    """The size that a node is, or the float. What nothing tells so far becomes an argument, or is read.

    name: of the node's operator. UnsupportedOp for a number that neither can tell.
    """
    is_whole = isinstance(node.meta["val"], int | torch.SymInt)
    size = importer.sizes.dim(node.meta["val"]) if is_whole else None
    if size is not None and not _is_open(importer, size):
        return importer.data_sizes.known(size, name)
    # An element of an argument may be read before the graph runs, but is read in it as others are.
    can_wait = name == "aten._local_scalar_dense.default" or importer.operands is not None
    computed = None if can_wait else python_function(node)
    if size is None:
        if computed is None:
            raise UnsupportedOp(f"{name} makes a float that depends on data, and core has no such operator")
        return Scalar(_add_argument(importer, node, computed, TensorType(dtypes.f64, ())))
    if computed is not None:
        importer.emitter.size_values[str(size)] = _add_argument(importer, node, computed, DimType(size))
        importer.symbols[str(size)] = SymbolSource(str(size), len(importer.arguments) - 1, None)
    elif name in importer.handlers:
        given = [importer.values[item] if isinstance(item, fx.Node) else item for item in node.args]
        importer.data_sizes.read(importer.handlers[name](importer.emitter, *given).value, size)
    return importer.data_sizes.known(size, name)


def _is_open(importer: Importer, size: Dim) -> bool:
    """Whether a size is a symbol that nothing tells so far."""
    return bool(importer.data_sizes.fresh([size])) and size == as_dim(symbols(size)[0])


def _add_argument(importer: Importer, node: fx.Node, computed: ComputedNumber, type_: DimType | TensorType) -> Value:
    value = importer.builder.input(type_, identifier(node.name))
    if not computed.is_whole and importer.device.type != "cpu":
        importer.scalars.add(len(importer.arguments))
    importer.arguments.append(value)
    importer.computed.append(computed)
    return value


def python_function(node: fx.Node) -> ComputedNumber | None:
    """What a node computes from arguments of its graph; None where a tensor that is no argument has a part in it."""
    needed: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in needed:
            continue
        needed.add(each)
        if each.op == "placeholder":
            continue
        if each.op != "call_function" or not isinstance(each.meta.get("val"), _NUMBERS):
            return None
        waiting += each.all_input_nodes
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    taken: list[int] = []
    placeholders = [each for each in node.graph.nodes if each.op == "placeholder"]
    for each in node.graph.nodes:
        if each in needed:
            copies[each] = graph.node_copy(each, copies.__getitem__)
            if each.op == "placeholder":
                taken.append(placeholders.index(each))
    graph.output(copies[node])
    function = fx.GraphModule({}, graph).forward
    return ComputedNumber(tuple(taken), function, isinstance(node.meta["val"], int | torch.SymInt))


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)

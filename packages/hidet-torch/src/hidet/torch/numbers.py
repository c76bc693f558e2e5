"""Numbers among the nodes of a graph: sizes, and what is computed from sizes.

Most whole numbers are dims over symbols that tensors tell. Others come from fractions and floats, such as
`int(size * 0.7)`. Each of these is a symbol of its own (`SizeTable`), and who can do so exactly tells its value: the
functions that torch traced, which Python runs on the arguments of every call. Integer arithmetic would be right for
some, as for `int(size * 1.5)`; but 0.7 is no fraction of small numbers, floats are rounded after every product, and
powers and logarithms have no such form. Python rounds as eager mode does, whatever the function. Where elements of
computed tensors have a part in a number, Python runs the functions in a step of the graph, when these are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hidet import dtypes
from hidet.dims import Dim, DimExpr, as_dim, symbols
from hidet.errors import UnsupportedOp
from hidet.graph import DimType, OperatorSpec, TensorType, Value
from hidet.runtime.program import SymbolSource
from hidet.torch.emitter import Scalar
from hidet.torch.fx_nodes import identifier, operator_name
from hidet.torch.tensors import dtype_of
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
    """The size that a node is, or the float. What nothing tells so far is read, or computed by Python.

    name: of the node's operator. UnsupportedOp for a number that cannot be told.
    """
    is_whole = isinstance(node.meta["val"], int | torch.SymInt)
    size = importer.sizes.dim(node.meta["val"]) if is_whole else None
    if size is not None and not (importer.data_sizes.fresh([size]) and size == as_dim(symbols(size)[0])):
        return importer.data_sizes.known(size, name)
    if name == _ELEMENT and size is not None:
        importer.data_sizes.read(importer.values[node.args[0]], size)  # type: ignore[index]  # a node
        return size
    found = python_function(node)
    if found is None:
        if size is not None and all(isinstance(user.meta.get("val"), bool | torch.SymBool) for user in node.users):
            # Only dynamo's own checks read it.
            return size
        raise UnsupportedOp(f"{name} makes a number of what is neither a number nor an element of a tensor")
    given, function = found
    if importer.operands is None and all(each.op == "placeholder" for each in given):
        value = _add_argument(importer, node, given, function, size)
    else:
        value = _add_step(importer, name, [importer.values[each] for each in given], function, is_whole)
    if size is None:
        return Scalar(value)
    if isinstance(value.type, DimType):
        importer.emitter.size_values[str(size)] = value
        importer.symbols[str(size)] = SymbolSource(str(size), len(importer.arguments) - 1, None)
    else:
        importer.data_sizes.read(value, size)
    return size


def _add_argument(
    importer: Importer, node: fx.Node, given: Sequence[fx.Node], function: Callable[..., Any], size: Dim | None
) -> Value:
    """A number that is known before the graph runs, as an input of it."""
    type_ = TensorType(dtypes.f64, ()) if size is None else DimType(size)
    value = importer.builder.input(type_, identifier(node.name))
    if size is None and importer.device.type != "cpu":
        importer.scalars.add(len(importer.arguments))
    importer.arguments.append(value)
    placeholders = [each for each in node.graph.nodes if each.op == "placeholder"]
    taken = tuple(placeholders.index(each) for each in given)
    importer.computed.append(ComputedNumber(taken, function, size is not None))
    return value


def _add_step(
    importer: Importer, name: str, given: Sequence[Any], function: Callable[..., Any], is_whole: bool
) -> Value:
    """A number that elements of computed tensors have a part in, as a tensor without axes."""
    if not all(isinstance(each, Scalar | int | DimExpr) for each in given):
        raise UnsupportedOp(f"{name} makes a number of a tensor")
    inputs = [each.value if isinstance(each, Scalar) else importer.emitter.size(each) for each in given]
    dtype = torch.int64 if is_whole else torch.float64

    def call(*operands: torch.Tensor) -> tuple[torch.Tensor]:
        number = function(*[operand.item() for operand in operands])
        return (torch.tensor(number, dtype=dtype, device=operands[0].device),)

    type_ = TensorType(dtype_of(dtype), ())
    spec = OperatorSpec(
        name=f"number:{name}",
        inputs=("numbers*",),
        kind="eager",
        infer=lambda types, attrs: (type_,),
        call=call,
        doc="A number that Python computes.",
    )
    (value,) = importer.emitter.emit_all(spec, inputs, {})
    return value


def python_function(node: fx.Node) -> tuple[list[fx.Node], Callable[..., Any]] | None:
    """What a number is computed from, and how: arguments of its graph and elements of tensors, in order, and a function
    of these. None where something else has a part in it."""
    needed, given = {node}, set[fx.Node]()
    waiting = list(node.all_input_nodes)
    while waiting:
        each = waiting.pop()
        if each in needed:
            continue
        needed.add(each)
        if each.op == "placeholder" or operator_name(each.target) == _ELEMENT:
            given.add(each)
        elif each.op != "call_function" or not isinstance(each.meta.get("val"), _NUMBERS):
            return None
        else:
            waiting += each.all_input_nodes
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for each in (each for each in node.graph.nodes if each in needed):
        made = graph.placeholder(identifier(each.name)) if each in given else graph.node_copy(each, copies.__getitem__)
        copies[each] = made
    graph.output(copies[node])
    return [each for each in copies if each in given], fx.GraphModule({}, graph).forward


_ELEMENT = "aten._local_scalar_dense.default"
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)

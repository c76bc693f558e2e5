"""Numbers among the nodes of a graph: sizes, comparisons of sizes, and what is computed from them.

Most whole numbers are dims over symbols that tensors tell, and so are most truths: a comparison of sizes is a size of 0
or 1. Others come from fractions and floats, such as `int(size * 0.7)` and `size / 2 > 3`. Each of these is a symbol of
its own (`SizeTable`), and who can do so exactly tells its value: the functions that torch traced, which Python runs on
the arguments of every call. Integer arithmetic would be right for some, as for `int(size * 1.5)`; but 0.7 is no
fraction of small numbers, floats are rounded after every product, and powers and logarithms have no such form. Python
rounds as eager mode does, whatever the function. Where elements of computed tensors have a part in a number, Python
runs the functions in a step of the graph, when these are known. So it checks what the model asserts of such numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from hidet import dtypes
from hidet.dims import Dim, DimExpr, as_dim, bounds, symbols
from hidet.errors import UnsupportedOp
from hidet.frontend import Number, identifier
from hidet.graph import DimType, OperatorSpec, TensorType, Value
from hidet.runtime.program import SymbolSource
from hidet.torch.emitter import Scalar
from hidet.torch.fx_nodes import ELEMENT, is_number, is_read_from_tensor, operator_name
from hidet.torch.mapping.sizes import EXACT, ROUNDED_TO_NEAREST
from hidet.torch.tensors import dtype_of
from torch import fx

if TYPE_CHECKING:
    from hidet.torch.importer import Importer


Computation = tuple[list[fx.Node], Callable[..., Any]]
"""What a number is computed from, and the function of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ComputedNumber:
    """An argument that is computed from those of the call: an int, or a float in a tensor of f64 without axes.

    arguments: numbers of those that `function` takes. is_whole: it is an int; 0 or 1 for a truth.
    """

    arguments: tuple[int, ...]
    function: Callable[..., Any]
    is_whole: bool

    def __call__(self, args: Sequence[Any]) -> Any:
        """The number for the arguments of a call."""
        number = self.function(*[args[place] for place in self.arguments])
        return int(number) if self.is_whole else torch.tensor(number, dtype=torch.float64, device="cpu")


def import_number(importer: Importer, node: fx.Node, name: str) -> Dim | Scalar | Number:
    """The number that a node is. What nothing tells so far is read, or computed by Python.

    name: of the node's operator. UnsupportedOp for a number that cannot be told.
    """
    value = node.meta["val"]
    if name == ELEMENT:
        return _element(importer, node, value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, torch.SymFloat):
        return _float(importer, node, name)
    size = importer.sizes.dim(value)
    if importer.data_sizes.fresh([size]):
        # Parts of it that are told by nobody need not be: it is computed whole.
        size = importer.sizes.own(value)
    if importer.data_sizes.fresh([size]):
        _tell(importer, size, _computed(importer, node, name, size))
    return size if isinstance(value, torch.SymInt) else _truth(importer, size)


def import_argument(importer: Importer, node: fx.Node) -> Scalar | bool:
    """A float or a truth that an argument of the graph is."""
    value = node.meta["val"]
    size = importer.sizes.own(value) if isinstance(value, torch.SymBool) else None
    made = _add_argument(importer, node, [node], lambda given: given, size)
    if size is None:
        return Scalar(made)
    _tell(importer, size, made)
    return _truth(importer, size)


def import_result(importer: Importer, made: Value, value: Any) -> Dim | Scalar:
    """A number among the results of a node that runs in torch. value: what torch inferred of it."""
    if not isinstance(value, torch.SymInt):
        return Scalar(made)
    size = importer.sizes.dim(value)
    if importer.data_sizes.fresh([size]):
        size = importer.sizes.own(value)
        importer.data_sizes.read(made, size)
    return size


def import_check(importer: Importer, node: fx.Node) -> None:
    """What the model asserts of numbers, checked at every call unless something else ensures it.

    Guards ensure it of what arguments tell; of numbers that are read, the ranges that torch derives from assertions.
    """
    condition, message = node.args[:2]
    if not isinstance(condition, fx.Node) or not isinstance(condition.meta["val"], torch.SymBool):
        return
    lower, _ = bounds(importer.sizes.dim(condition.meta["val"]))
    if lower is not None and lower >= 1:
        return
    found = python_function(condition)
    if found is None:
        raise UnsupportedOp(f"{message}: the condition is made of what is no number")
    given, function = found
    if importer.is_guarded and _is_known_before(importer, found):
        return
    values = [importer.resolve(each) for each in given]
    _add_step(importer, str(message), values, _Check(function, str(message)), torch.bool, has_effect=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """RuntimeError, as in eager mode, where a condition does not hold."""

    condition: Callable[..., Any]
    message: str

    def __call__(self, *numbers: Any) -> bool:
        if not self.condition(*numbers):
            raise RuntimeError(self.message)
        return True


def _element(importer: Importer, node: fx.Node, value: Any) -> Dim | Scalar | Number:
    """The element of a tensor without axes. What torch knows of it already is checked."""
    tensor = importer.values[node.args[0]]  # type: ignore[index]  # a node
    if isinstance(value, torch.SymFloat):
        return Scalar(tensor)
    is_asserted = node in importer.asserted
    size = None if isinstance(value, float) else importer.sizes.dim(value)
    if isinstance(size, DimExpr) and importer.data_sizes.fresh([size]):
        (symbol,) = symbols(size)
        importer.data_sizes.read(tensor, as_dim(symbol), is_checked=is_asserted)
    elif is_asserted:
        known = value if size is None else size
        check = _Check(operator.eq, f"Runtime assertion failed: {node.args[0]} is not {known}")
        _add_step(importer, node.name, [Scalar(tensor), known], check, torch.bool, has_effect=True)
    if size is None or isinstance(value, bool):
        return value  # type: ignore[no-any-return]  # a number
    return _truth(importer, size) if isinstance(value, torch.SymBool) else size


def _float(importer: Importer, node: fx.Node, name: str) -> Scalar:
    """A float, which the graph computes where Python cannot do so before it runs, or would round the same.

    Compiled code may round a product and a sum once, where Python rounds twice.
    """
    handler = importer.handlers.get(name)
    if handler is not None and (_rounds_once(node, name) or not _is_of_sizes(importer, python_function(node))):
        made: Scalar = handler(importer.emitter, *map(importer.resolve, node.args))
        return made
    return Scalar(_computed(importer, node, name, None))


def _rounds_once(node: fx.Node, name: str) -> bool:
    """Whether a float is computed from whole numbers by one operation that rounds to the nearest."""
    floats = [each for each in node.all_input_nodes if isinstance(each.meta["val"], torch.SymFloat)]
    return name in ROUNDED_TO_NEAREST and all(operator_name(each.target) in EXACT for each in floats)


def _is_of_sizes(importer: Importer, found: Computation | None) -> bool:
    """Whether sizes and numbers of the call alone have a part in a number of a graph that runs with torch at hand."""
    return (
        importer.is_guarded
        and found is not None
        and all(each.op == "placeholder" and isinstance(importer.resolve(each), int | DimExpr) for each in found[0])
    )


def _is_known_before(importer: Importer, found: Computation | None) -> bool:
    """Whether arguments of the call alone have a part in a number."""
    return importer.operands is None and found is not None and all(each.op == "placeholder" for each in found[0])


def _truth(importer: Importer, size: Dim) -> Scalar | bool:
    """The bool that a size of 0 or 1 stands for."""
    return bool(size) if isinstance(size, int) else Scalar(importer.emitter.size(size, dtypes.boolean))


def _tell(importer: Importer, size: Dim, value: Value) -> None:
    """From now on `value` is what the symbol `size` stands for."""
    if isinstance(value.type, DimType):
        importer.emitter.size_values[str(size)] = value
        importer.symbols[str(size)] = SymbolSource(str(size), len(importer.arguments) - 1, None)
    else:
        importer.data_sizes.read(value, size)


def _computed(importer: Importer, node: fx.Node, name: str, size: Dim | None) -> Value:
    """What Python makes of the numbers that a node is computed from. size: the symbol that it is; None for a float."""
    found = python_function(node)
    if found is None or found[0] == [node]:
        raise UnsupportedOp(f"{name} makes a number of what is neither a number nor an element of a tensor")
    given, function = found
    if _is_known_before(importer, found):
        return _add_argument(importer, node, given, function, size)
    values = [importer.resolve(each) for each in given]
    return _add_step(importer, name, values, function, torch.float64 if size is None else torch.int64)


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
    importer: Importer,
    name: str,
    given: Sequence[Any],
    function: Callable[..., Any],
    dtype: torch.dtype,
    has_effect: bool = False,
) -> Value:
    """What Python makes of numbers that elements of computed tensors have a part in, as a tensor without axes."""
    inputs = [_as_tensor(importer, name, each) for each in given]

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
        has_effect=has_effect,
        doc="A number that Python computes.",
    )
    (value,) = importer.emitter.emit_all(spec, inputs, {})
    return value


def _as_tensor(importer: Importer, name: str, number: Any) -> Value:
    if isinstance(number, Scalar):
        return number.value
    if isinstance(number, bool | float):
        return importer.emitter.constant(number, dtypes.boolean if isinstance(number, bool) else dtypes.f64)
    if isinstance(number, int | DimExpr):
        return importer.emitter.size(number)
    raise UnsupportedOp(f"{name} makes a number of a tensor")


def python_function(node: fx.Node) -> Computation | None:
    """What a number is computed from, and how: arguments of its graph and what nodes tell of tensors, in order, and a
    function of these. None where something else has a part in it."""
    needed, given = set[fx.Node](), set[fx.Node]()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in needed:
            continue
        needed.add(each)
        if each.op == "placeholder" or is_read_from_tensor(each):
            given.add(each)
        elif each.op != "call_function" or not is_number(each):
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

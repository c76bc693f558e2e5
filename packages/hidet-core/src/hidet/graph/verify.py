"""Checks that a graph obeys the rules of the graph IR; every pass may rely on them, and must keep them.

values      defined once, before use, by an input, a constant, `prepare` or a node
sizes       of data: defined once, by a node before which nothing has them
nodes       as many inputs as the operator takes, its attributes complete, types as it infers them
signature   parameters are inputs; a mutated input has the type of the output that replaces it
sub-graphs  closed and valid themselves; `prepare` reads constants alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hidet import dims
from hidet.dims import DimExpr, Symbol
from hidet.errors import HidetError, VerifyError
from hidet.graph.control import defined_sizes
from hidet.graph.graph import Graph, Node, Value, subgraphs_of
from hidet.graph.operator import define_node, infer_types
from hidet.graph.types import TensorType, ValueType, dims_of, fits, may_be_same_shape

if TYPE_CHECKING:
    from hidet.compute.definition import Definition, Operand
    from hidet.loc import Loc


def verify_graph(graph: Graph, *, redefine: bool = False) -> None:
    """Raise VerifyError, naming the node or value and its place, for the first rule that `graph` breaks.

    redefine: make each node's definition anew to infer its types, instead of trusting the one it carries after a check
        of its inputs; slower by the cost of building the graph.
    """
    symbols: dict[str, Symbol] = {}
    defined: set[Value] = set()
    right: set[tuple[int, ...]] = set()
    plain: set[int] = set()
    for value in _sources(graph):
        _define(value, defined, symbols, plain, graph)
    _check_signature(graph)
    for node in graph.nodes:
        _check_node(node, defined, redefine, right)
        _check_sizes(node, symbols)
        for value in node.outputs:
            _define(value, defined, symbols, plain, node)
        for subgraph in subgraphs_of(node):
            _check_closed(subgraph, _name(node), node.loc, redefine)
    for value in graph.outputs:
        if value not in defined:
            raise VerifyError(f"graph {graph.name} returns %{value.name}, which nothing defines")
    if graph.prepare is not None:
        _check_prepare(graph, redefine)
    _check_mutates(graph)


def _sources(graph: Graph) -> list[Value]:
    """Every value that no node defines."""
    results = graph.prepare.results if graph.prepare is not None else ()
    return [*graph.inputs, *graph.constants, *results]


def _name(thing: Graph | Node) -> str:
    if isinstance(thing, Graph):
        return f"graph {thing.name}"
    node = thing
    outputs = ", ".join(f"%{value.name}" for value in node.outputs)
    return f"operator {node.op.name} defining {outputs or 'nothing'}"


def _define(value: Value, defined: set[Value], symbols: dict[str, Symbol], plain: set[int], by: Graph | Node) -> None:
    """plain: types without symbols, by identity; few values have a type of their own."""
    if value in defined:
        raise VerifyError(f"{_name(by)}: %{value.name} is defined twice", loc=by.loc if isinstance(by, Node) else None)
    defined.add(value)
    if id(value.type) in plain:
        return
    if isinstance(value.type, TensorType) and not value.type.is_symbolic:
        plain.add(id(value.type))
        return
    for dim in dims_of(value.type):
        if isinstance(dim, DimExpr):
            for symbol in dims.symbols(dim):
                if symbols.setdefault(symbol.name, symbol) != symbol:
                    other = symbols[symbol.name]
                    raise VerifyError(
                        f"{_name(by)}: %{value.name} uses symbol {symbol.name} with {symbol.facts()}, "
                        f"elsewhere {other.facts()}",
                        loc=by.loc if isinstance(by, Node) else None,
                        hint="sizes are bound by name, so different symbols need different names",
                    )


def _check_node(node: Node, defined: set[Value], redefine: bool, right: set[tuple[int, ...]]) -> None:
    """right: (definition, types of inputs, types of results), by identity, of nodes whose types are right: the nodes of
    equal layers have these in common."""
    try:
        node.op.check_inputs(len(node.inputs))
        if list(node.attrs.keys()) != [a.name for a in node.op.attributes] and node.op.attrs(node.attrs) != node.attrs:
            raise VerifyError("attributes are incomplete: take them from OperatorSpec.attrs")
        if None in node.inputs:
            for name, value in zip(node.op.inputs, node.inputs, strict=False):
                if value is None and not name.endswith(("?", "*")):
                    raise VerifyError(f"input {name} is absent but not optional")
        for value in node.values:
            if value not in defined:
                raise VerifyError(f"input %{value.name} is used before anything defines it")
        key = _type_key(node) if node.op.infer is None and node.definition is not None and not redefine else None
        if key is None or key not in right:
            _check_types(node, redefine)
        if key is not None:
            right.add(key)
    except HidetError as error:
        raise VerifyError(f"{_name(node)}: {error.message}", loc=node.loc, hint=error.hint) from error


def _check_sizes(node: Node, known: Mapping[str, Symbol]) -> None:
    """known: symbols of the values so far. What runs the graph keeps one value for each, known from one place on."""
    for size in defined_sizes(node):
        for symbol in dims.symbols(size):
            if symbol.name in known:
                raise VerifyError(
                    f"{_name(node)}: it defines size {symbol.name}, which has a value already",
                    loc=node.loc,
                    hint="give the operator the size that is known, or a symbol of a name of its own",
                )


def _type_key(node: Node) -> tuple[int, ...]:
    types = [None if value is None else value.type for value in (*node.inputs, *node.outputs)]
    return id(node.definition), len(node.inputs), *map(id, types)


def _check_types(node: Node, redefine: bool) -> None:
    types = [None if value is None else value.type for value in node.inputs]
    definition = None if redefine else node.definition
    if definition is None:
        if node.op.infer is None and node.op.define is None:
            raise VerifyError("the operator has neither a definition nor a type rule")
        definition = define_node(node.op, types, node.attrs)
    if definition is not None:
        _check_operands(definition, types)
    inferred = infer_types(node.op, types, definition, node.attrs)
    if len(inferred) != len(node.outputs):
        raise VerifyError(f"{len(node.outputs)} outputs, but the operator infers {len(inferred)}")
    for value, expected in zip(node.outputs, inferred, strict=True):
        if not fits(value.type, expected):
            raise VerifyError(f"%{value.name} has type {value.type}, but the operator infers {expected}")


def _check_operands(definition: Definition, types: Sequence[ValueType | None]) -> None:
    """The definition was made for inputs of these types."""
    tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
    operands = definition.inputs
    if len(tensors) != len(operands) or not all(map(_reads, operands, tensors)):
        given = [TensorType(operand.dtype, operand.shape) for operand in operands]
        expected, actual = (", ".join(map(str, side)) or "nothing" for side in (given, tensors))
        raise VerifyError(
            f"the definition reads ({expected}), but the inputs are ({actual})",
            hint="a node whose inputs change type needs a new definition: emit it through GraphBuilder",
        )


def _reads(operand: Operand, type_: TensorType) -> bool:
    is_one_type = operand.dtype is type_.dtype or operand.dtype == type_.dtype
    return is_one_type and (operand.shape == type_.shape or may_be_same_shape(operand.shape, type_.shape))


def _check_signature(graph: Graph) -> None:
    for value in graph.parameters.difference(graph.inputs):
        raise VerifyError(f"graph {graph.name}: parameter %{value.name} is no input")
    for value, constant in graph.constants.items():
        shape = getattr(constant.data, "shape", None)
        if not isinstance(value.type, TensorType) or (shape is not None and tuple(shape) != value.type.shape):
            raise VerifyError(f"graph {graph.name}: constant %{value.name} of type {value.type} has shape {shape}")
        if not value.type.is_contiguous:
            raise VerifyError(
                f"graph {graph.name}: constant %{value.name} of type {value.type} has strides; constants are row-major"
            )


def _check_mutates(graph: Graph) -> None:
    seen: set[int] = set()
    for source, target in graph.mutates:
        if not (0 <= source < len(graph.inputs) and 0 <= target < len(graph.outputs)) or source in seen:
            raise VerifyError(
                f"graph {graph.name}: mutates ({source}, {target}) does not name an input, once, and an output"
            )
        seen.add(source)
        old, new = graph.inputs[source], graph.outputs[target]
        if not isinstance(old.type, TensorType) or not fits(new.type, old.type):
            raise VerifyError(
                f"graph {graph.name}: input %{old.name} of type {old.type} "
                f"is overwritten by %{new.name} of type {new.type}"
            )


def _check_closed(graph: Graph, where: str, loc: Loc | None, redefine: bool) -> None:
    """A sub-graph has no parameters, prepared values or effects on its caller's tensors."""
    try:
        if graph.parameters or graph.prepare is not None or graph.mutates:
            raise VerifyError(f"sub-graph {graph.name} has parameters, a prepare graph or mutated inputs")
        verify_graph(graph, redefine=redefine)
    except VerifyError as error:
        raise VerifyError(f"{where}: {error.message}", loc=error.loc or loc, hint=error.hint) from error


def _check_prepare(graph: Graph, redefine: bool) -> None:
    prepare = graph.prepare
    assert prepare is not None
    where = f"prepare graph of {graph.name}"
    _check_closed(prepare.graph, where, None, redefine)
    if prepare.graph.inputs:
        raise VerifyError(f"{where}: it has {len(prepare.graph.inputs)} inputs, expected none")
    given, needed = prepare.results, prepare.graph.outputs
    if len(given) != len(needed):
        raise VerifyError(f"{where}: {len(given)} results for {len(needed)} values of the graph")
    for outer, inner in zip(given, needed, strict=True):
        if not fits(outer.type, inner.type):
            raise VerifyError(f"{where}: %{outer.name} has type {outer.type}, %{inner.name} inside {inner.type}")

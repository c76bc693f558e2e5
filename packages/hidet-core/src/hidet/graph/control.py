"""Building control flow: types of results that branches or iterations may disagree about, and loops over slices."""

from __future__ import annotations

from collections.abc import Sequence

from hidet import dtypes
from hidet.dims import Dim, prove_equal, symbols
from hidet.errors import DTypeError, ShapeError
from hidet.graph.builder import GraphBuilder
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.inline import inline
from hidet.graph.operator import is_foreign
from hidet.graph.symbols import symbol_names
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType, ValueType, is_host_value


def defined_sizes(node: Node) -> tuple[Dim, ...]:
    """The symbols whose values the node's results tell."""
    defines: tuple[Dim, ...] = node.attrs.get("defines", ())
    return defines


def makes_results(node: Node) -> bool:
    """Whether the results of a node lie where the step that runs it puts them: their sizes, or what they are, is known
    afterwards only; or numpy makes them, which does not reach every memory."""
    if node.op.kind in ("control", "host"):
        return True
    return is_foreign(node) and (bool(defined_sizes(node)) or any(is_host_value(v.type) for v in node.outputs))


def local_symbols(graph: Graph) -> set[str]:
    """Names of the symbols that nodes of a graph define: nobody outside knows them."""
    return {symbol.name for node in graph.nodes for size in defined_sizes(node) for symbol in symbols(size)}


def emit_if(
    builder: GraphBuilder, condition: Value, captures: Sequence[Value], then: Graph, otherwise: Graph
) -> tuple[Value, ...]:
    """Results of `then` or `otherwise` on the captures. An extent that differs, or that a branch alone knows, becomes a
    symbol that the operator defines. ShapeError or DTypeError for branches whose results differ in more."""
    if len(then.outputs) != len(otherwise.outputs):
        raise ShapeError(
            f"branches of an if have {len(then.outputs)} and {len(otherwise.outputs)} results", loc=builder.loc
        )
    hidden = local_symbols(then) | local_symbols(otherwise)
    joiner = _Joiner(builder, hidden)
    pairs = zip(then.outputs, otherwise.outputs, strict=True)
    types = [joiner.join(a.type, b.type, f"result {n} of an if") for n, (a, b) in enumerate(pairs)]
    attrs = {"then": then, "otherwise": otherwise, "types": types, "defines": joiner.defined}
    return builder.emit_all("if", [condition, *captures], attrs)


def emit_while(
    builder: GraphBuilder,
    body: Graph,
    *,
    limit: Value | Dim | None = None,
    condition: Value | None = None,
    carried: Sequence[Value] = (),
    captures: Sequence[Value] = (),
    tests: bool = False,
) -> tuple[Value, ...]:
    """A loop over `body`, see operator `while`: the final carried values, then what iterations made, stacked.

    limit: most iterations, as i64[] value or size; None for no limit. An extent that changes between iterations must be
    a symbol of the body's own in the types of its inputs.
    """
    outputs = [value.type for value in body.outputs][1 if tests else 0 :]
    local = local_symbols(body)
    for before, initial in zip(body.inputs[1:], carried, strict=False):
        local |= symbol_names(before.type) - symbol_names(initial.type)
    joiner = _Joiner(builder, local)
    types = [joiner.join(v.type, body.inputs[1 + n].type, f"carried value {n}") for n, v in enumerate(carried)]
    count = limit if limit is not None and not isinstance(limit, Value) and not tests and condition is None else None
    length = builder.fresh_size() if count is None and len(outputs) > len(carried) else count
    if count is None and length is not None:
        joiner.defined.append(length)
    for number, type_ in enumerate(outputs[len(carried) :]):
        if not isinstance(type_, TensorType):
            raise DTypeError(f"stacked result {number} of a loop is a {type_}, expected a tensor", loc=builder.loc)
        assert length is not None
        element = joiner.join(type_, type_, f"stacked result {number}")
        assert isinstance(element, TensorType)
        types.append(TensorType(element.dtype, (length, *element.shape), device=element.device))
    attrs = {
        "body": body,
        "carried": len(carried),
        "tests": tests,
        "count": None if isinstance(limit, Value) else limit,
        "types": types,
        "defines": joiner.defined,
    }
    first = limit if isinstance(limit, Value) else None
    return builder.emit_all("while", [first, condition, *carried, *captures], attrs)


def scan_as_while(
    builder: GraphBuilder, body: Graph, values: Sequence[Value], carried: int, scanned: int
) -> tuple[Value, ...]:
    """A scan (operator `scan`) as a loop whose body reads the slices by the number of the iteration."""
    inner = builder.nested(body.name)
    iteration = inner.input(TensorType(dtypes.i64, ()), "iteration")
    state = [inner.input(v.type) for v in body.inputs[:carried]]
    arrays = [inner.input(v.type) for v in values[carried : carried + scanned]]
    captures = [inner.input(v.type) for v in body.inputs[carried + scanned :]]
    slices = [inner.emit("index_select", array, iteration, axis=0) for array in arrays]
    made = inline(inner, body, [*state, *slices, *captures])
    length = values[carried].tensor.shape[0]
    loop = inner.build(made)
    return emit_while(builder, loop, limit=length, carried=values[:carried], captures=values[carried:])


class _Joiner:
    """Common types of values; `defined` collects the symbols made for extents on which they may disagree."""

    def __init__(self, builder: GraphBuilder, hidden: set[str]) -> None:
        self.builder = builder
        self.hidden = hidden
        self.defined: list[Dim] = []

    def join(self, a: ValueType, b: ValueType, what: str) -> ValueType:
        """A type that describes values of both; ShapeError or DTypeError naming `what` where there is none."""
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            if a.dtype != b.dtype:
                raise DTypeError(f"{what} is {a} or {b}, expected one element type", loc=self.builder.loc)
            if a.rank != b.rank:
                raise ShapeError(f"{what} is {a} or {b}, expected one rank", loc=self.builder.loc)
            return TensorType(a.dtype, tuple(map(self._extent, a.shape, b.shape)), device=a.device)
        if isinstance(a, DimType) and isinstance(b, DimType):
            return DimType(self._extent(a.dim, b.dim))
        for kind in (SequenceType, OptionalType):
            if isinstance(a, kind) and isinstance(b, kind):
                # What is taken out of it tells its own extents.
                return kind(_Joiner(self.builder, self.hidden).join(a.element, b.element, what))
        raise DTypeError(f"{what} is {a} or {b}, expected one kind of value", loc=self.builder.loc)

    def _extent(self, a: Dim, b: Dim) -> Dim:
        if prove_equal(a, b) is True and self.hidden.isdisjoint(symbol.name for symbol in symbols(a)):
            return a
        self.defined.append(self.builder.fresh_size())
        return self.defined[-1]

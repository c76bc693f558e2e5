"""Control flow and sizes that depend on data: operators that the host program carries out, not kernels.

A sub-graph is closed: values it needs from around it are inputs of the operator and of the sub-graph. Sizes are scoped
as names are: a sub-graph may use the symbols of the graphs around it. Attribute `defines` lists the symbols whose
values an operator's results tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dims import Dim, DimExpr, prove_equal, symbols
from hidet.errors import DTypeError, ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.control import scan_as_while
from hidet.graph.graph import Graph
from hidet.graph.inline import inline
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.symbols import symbol_names
from hidet.graph.types import DimType, TensorType, ValueType, fits

if TYPE_CHECKING:
    from hidet.graph.builder import GraphBuilder
    from hidet.graph.graph import Value


def _read_sizes(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    (x,) = types
    if not isinstance(x, TensorType) or not x.dtype.is_int:
        raise DTypeError(f"operator read_sizes takes a tensor of integers, got {x}")
    defines = attrs["defines"]
    if x.rank > 1 or prove_equal(1 if x.rank == 0 else x.shape[0], len(defines)) is False:
        raise ShapeError(f"operator read_sizes reads {len(defines)} sizes, got {x}")
    for size in defines:
        if not isinstance(size, DimExpr) or len(symbols(size)) != 1:
            raise ShapeError(f"operator read_sizes defines symbols, got {size}")
    return [DimType(size) for size in defines]


def _if(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    condition, *captures = types
    _require_flag("if", condition)
    for name in ("then", "otherwise"):
        branch: Graph = attrs[name]
        _require_inputs(f"operator if, branch {name}", branch, captures)
        _require_outputs(f"operator if, branch {name}", branch, attrs["types"], attrs["defines"])
    return list(attrs["types"])


def _while(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    limit, condition, *values = types
    if limit is not None and (not isinstance(limit, TensorType) or limit.rank != 0 or not limit.dtype.is_int):
        raise DTypeError(f"operator while takes an integer of rank 0 as limit, got {limit}")
    if condition is not None:
        _require_flag("while", condition)
    body: Graph = attrs["body"]
    carried, results = attrs["carried"], attrs["types"]
    _require_inputs("operator while, body", body, [TensorType(dtypes.i64, ()), *values])
    made = [value.type for value in body.outputs]
    if attrs["tests"]:
        if not made:
            raise ShapeError("operator while: the body has no outputs, expected a condition")
        _require_flag("while, body", made.pop(0))
    if len(made) != len(results) or carried > min(len(made), len(values)):
        raise ShapeError(f"operator while: the body makes {len(made)} values with {carried} carried of {len(results)}")
    for number in range(carried):
        if not _can_be_carried(made[number], body.inputs[1 + number].type, values[number]):
            raise ShapeError(
                f"operator while: carried value {number} has type {body.inputs[1 + number].type} before an iteration "
                f"and {made[number]} after it",
                hint="give an extent that changes a symbol of the body's own",
            )
    for number in range(carried, len(made)):
        stacked, element = results[number], made[number]
        if isinstance(element, TensorType) and (
            not isinstance(stacked, TensorType) or stacked.dtype != element.dtype or stacked.rank != element.rank + 1
        ):
            raise ShapeError(f"operator while: {element} of each iteration cannot be stacked as {stacked}")
    return list(results)


def _can_be_carried(made: ValueType, before: ValueType, initial: ValueType) -> bool:
    """Whether the next iteration takes what one has made: extents may differ where they are the body's own symbols."""
    if not (isinstance(made, TensorType) and isinstance(before, TensorType)):
        return fits(made, before)
    outside = symbol_names(initial)
    kept = [axis for axis, extent in enumerate(before.shape) if symbol_names(extent) <= outside]
    return (
        made.dtype == before.dtype
        and made.rank == before.rank
        and all(prove_equal(made.shape[axis], before.shape[axis]) is not False for axis in kept)
    )


def _scan(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    body: Graph = attrs["body"]
    carried, scanned = attrs["carried"], attrs["scanned"]
    arrays = types[carried : carried + scanned]
    if not arrays or not all(isinstance(array, TensorType) and array.rank for array in arrays):
        raise ShapeError("operator scan needs at least one tensor to scan, of rank 1 or more")
    length: Dim = arrays[0].shape[0]
    if any(prove_equal(array.shape[0], length) is False for array in arrays):
        raise ShapeError(f"operator scan: arrays of different lengths {', '.join(str(a.shape[0]) for a in arrays)}")
    slices = [TensorType(array.dtype, array.shape[1:]) for array in arrays]
    _require_inputs("operator scan, body", body, [*types[:carried], *slices, *types[carried + scanned :]])
    made = [value.type for value in body.outputs]
    for number in range(carried):
        if number >= len(made) or not fits(made[number], types[number]):
            raise ShapeError(f"operator scan: carried value {number} changes its type from {types[number]}")
    stacked = [type_ for type_ in made[carried:] if isinstance(type_, TensorType)]
    if len(stacked) != len(made) - carried:
        raise DTypeError("operator scan stacks tensors alone")
    return [*types[:carried], *(TensorType(type_.dtype, (length, *type_.shape)) for type_ in stacked)]


def _call(types: Sequence[Any], attrs: Attrs) -> list[ValueType]:
    body: Graph = attrs["body"]
    _require_inputs("operator call", body, types)
    return [value.type for value in body.outputs]


def _decompose_call(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    return inline(builder, attrs["body"], [value for value in inputs if value is not None])


def _decompose_scan(builder: GraphBuilder, inputs: Sequence[Value | None], attrs: Attrs) -> Sequence[Value]:
    given = [value for value in inputs if value is not None]
    return scan_as_while(builder, attrs["body"], given, attrs["carried"], attrs["scanned"])


def _require_flag(name: str, type_: Any) -> None:
    if not isinstance(type_, TensorType) or type_.rank != 0 or not type_.dtype.is_bool:
        raise DTypeError(f"operator {name} takes a bool of rank 0 as condition, got {type_}")


def _require_inputs(where: str, graph: Graph, given: Sequence[Any]) -> None:
    if len(graph.inputs) != len(given):
        raise ShapeError(f"{where}: sub-graph {graph.name} has {len(graph.inputs)} inputs, got {len(given)} values")
    for value, type_ in zip(graph.inputs, given, strict=True):
        if type_ is None or not fits(type_, value.type):
            raise ShapeError(f"{where}: input %{value.name} of {graph.name} is {value.type}, got {type_}")


def _require_outputs(where: str, graph: Graph, results: Sequence[ValueType], defines: Sequence[Dim]) -> None:
    if len(graph.outputs) != len(results):
        raise ShapeError(f"{where}: {graph.name} has {len(graph.outputs)} outputs, expected {len(results)}")
    for value, type_ in zip(graph.outputs, results, strict=True):
        if not fits(value.type, type_):
            raise ShapeError(
                f"{where}: output %{value.name} of {graph.name} is {value.type}, expected {type_}",
                hint="give an extent in which branches differ a symbol of its own, and list that in `defines`",
            )


_DEFINES = Attribute("defines", (), "symbols whose values the results tell")
_TYPES = Attribute("types", doc="types of the results")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="read_sizes",
        inputs=("x",),
        attributes=(Attribute("defines", doc="one symbol an element of x"),),
        kind="control",
        infer=_read_sizes,
        doc="The integers of x, of rank 0 or 1, as sizes: symbols that later nodes may use in shapes. The host waits.",
    ),
    OperatorSpec(
        name="if",
        inputs=("condition", "captures*"),
        attributes=(
            Attribute("then", doc="graph on the captures, where the condition is true"),
            Attribute("otherwise", doc="graph on the captures, where it is false"),
            _TYPES,
            _DEFINES,
        ),
        kind="control",
        infer=_if,
        doc="The results of one of two sub-graphs; the other does not run. ONNX If, torch.cond.",
    ),
    OperatorSpec(
        name="while",
        inputs=("limit?", "condition?", "values*"),
        attributes=(
            Attribute("body", doc="graph (iteration i64[], carried, captures) -> (condition?, carried, stacked)"),
            Attribute("carried", 0, "how many of the values are carried from one iteration to the next"),
            Attribute("tests", False, "whether the body's first output tells if another iteration follows"),
            Attribute("count", None, "limit as a size, in place of the input"),
            _TYPES,
            _DEFINES,
        ),
        kind="control",
        infer=_while,
        doc="A loop. It ends after `limit` iterations, or when the condition is false, before the first one too; "
        "without both it is endless. Results are the carried values and, stacked along a new axis 0, what each "
        "iteration made. ONNX Loop, torch while_loop.",
    ),
    OperatorSpec(
        name="scan",
        inputs=("values*",),
        attributes=(
            Attribute("body", doc="graph (carried, slices, captures) -> (carried, stacked)"),
            Attribute("carried", 0, "how many values are carried"),
            Attribute("scanned", 1, "how many values after those are read slice by slice along axis 0"),
        ),
        kind="control",
        infer=_scan,
        decompose=_decompose_scan,
        doc="A loop over slices of tensors along axis 0, with carried values of fixed types. ONNX Scan, torch scan.",
    ),
    OperatorSpec(
        name="call",
        inputs=("captures*",),
        attributes=(Attribute("body", doc="graph on the captures"),),
        kind="control",
        infer=_call,
        decompose=_decompose_call,
        doc="The results of a sub-graph, which is put in place of the call.",
    ),
)

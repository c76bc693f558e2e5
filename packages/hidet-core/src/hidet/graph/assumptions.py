"""What a graph assumes of its symbolic sizes without being able to prove it; a call checks that once a shape.

Operators take extents to be equal unless they provably differ. What they took for granted is read off their
definitions: an index variable that runs to extent E along an axis of extent D needs E == D, or E <= D where an operator
reads a part of an axis (`OperatorSpec.reads_parts`). Reads behind a condition on the variable need nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet.compute.definition import Compute, Definition, Fit, Routine, Scan, Scatter
from hidet.dims import Dim, DimExpr, prove_equal, prove_le, prove_lt
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.symbols import symbols_of
from hidet.graph.types import TensorType
from hidet.ir.expr import Access, Const, Expr, Reduce, Select, Size, Var
from hidet.ir.node import IRNode

if TYPE_CHECKING:
    from hidet.loc import Loc

Ranges = Mapping[Var, Dim]


@dataclass(frozen=True, slots=True)
class Assumption:
    """`left` equals `right`, or is at most `right`, for what operator `what` at `loc` computes."""

    left: Dim
    right: Dim
    is_equality: bool
    what: str
    loc: Loc | None = None


def assumptions(graph: Graph) -> tuple[Assumption, ...]:
    """Everything that the nodes of `graph` take for granted, each once."""
    found: dict[tuple[Dim, Dim, bool], Assumption] = {}
    known: dict[tuple[int, bool], tuple[tuple[Dim, Dim, bool], ...]] = {}
    for node in graph.nodes:
        definition = node.definition
        if definition is None or not _has_symbols(node):
            continue
        key = id(definition), node.op.reads_parts
        if key not in known:
            known[key] = tuple(dict.fromkeys(_of_definition(definition, node)))
        for left, right, is_equality in (*known[key], *_of_results(node)):
            found.setdefault((left, right, is_equality), Assumption(left, right, is_equality, node.op.name, node.loc))
    return tuple(found.values())


def unproved_fits(graph: Graph) -> Iterator[tuple[Fit, Loc | None]]:
    """Numbers that may not fit the types in which nodes of `graph` pass them on, with the places of these nodes."""
    for node in graph.nodes:
        for fit in () if node.definition is None else node.definition.fits:
            lowest, highest = int(fit.dtype.min), int(fit.dtype.max)
            if not (prove_le(lowest, fit.value) and prove_le(fit.value, highest)):
                yield fit, node.loc


def _of_results(node: Node) -> Iterator[tuple[Dim, Dim, bool]]:
    """Windows that are larger than what they move over would give a result of negative extent."""
    for value in node.outputs:
        for extent in value.type.shape if isinstance(value.type, TensorType) else ():
            if isinstance(extent, DimExpr) and prove_le(0, extent) is not True:
                yield 0, extent, False


def _has_symbols(node: Node) -> bool:
    return any(_is_symbolic(value) for value in (*node.values, *node.outputs)) or bool(
        symbols_of(tuple(node.attrs.values()))
    )


def _is_symbolic(value: Value) -> bool:
    return isinstance(value.type, TensorType) and any(isinstance(extent, DimExpr) for extent in value.type.shape)


def _of_definition(definition: Definition, node: Node) -> Iterator[tuple[Dim, Dim, bool]]:
    for left, right in definition.equal:
        if prove_equal(left, right) is None:
            yield left, right, True
    for left, right in definition.at_most:
        if prove_le(left, right) is not True:
            yield left, right, False
    for stage in definition.stages:
        for value, ranges in _expressions(stage):
            for access, bound in _reads(value, ranges, frozenset()):
                yield from _of_access(access, bound, node)
        if isinstance(stage, Scatter):
            ranges = dict(zip(stage.axes, stage.extents, strict=True))
            written = Access(stage.result, stage.indices, stage.result.dtype)
            for left, right, _ in _of_access(written, ranges, node):
                if prove_le(left, right) is None:
                    yield left, right, False


def _expressions(stage: Compute | Scan | Scatter | Routine) -> Iterator[tuple[Expr, Ranges]]:
    """The expressions of a stage, with the extents that their variables run to."""
    if isinstance(stage, Compute):
        yield stage.value, dict(zip(stage.axes, stage.result.shape, strict=True))
    elif isinstance(stage, Scan):
        ranges = dict(zip(stage.axes, stage.results[0].shape, strict=True))
        yield from ((value, ranges) for value in stage.values)
    elif isinstance(stage, Scatter):
        yield stage.base, dict(zip(stage.base_axes, stage.result.shape, strict=True))
        ranges = dict(zip(stage.axes, stage.extents, strict=True))
        yield from ((value, ranges) for value in (*stage.indices, stage.update))


def _reads(node: IRNode, ranges: Ranges, guarded: frozenset[Var]) -> Iterator[tuple[Access, Ranges]]:
    """Every access with the extents of its variables, without those that a condition bounds."""
    if isinstance(node, Access):
        yield node, {var: extent for var, extent in ranges.items() if var not in guarded}
    if isinstance(node, Reduce):
        extents = {axis: _dim(extent) for axis, extent in zip(node.axes, node.extents, strict=True)}
        ranges = {**ranges, **{axis: extent for axis, extent in extents.items() if extent is not None}}
    if isinstance(node, Select):
        yield from _reads(node.condition, ranges, guarded)
        inner = guarded | frozenset(_variables(node.condition))
        yield from _reads(node.a, ranges, inner)
        yield from _reads(node.b, ranges, inner)
        return
    for child in node.children():
        yield from _reads(child, ranges, guarded)


def _variables(node: IRNode) -> Iterator[Var]:
    """The variables of a condition, apart from those that only say where it reads."""
    if isinstance(node, Var):
        yield node
    elif not isinstance(node, Access):
        for child in node.children():
            yield from _variables(child)


def _of_access(access: Access, ranges: Ranges, node: Node) -> Iterator[tuple[Dim, Dim, bool]]:
    for index, extent in zip(access.indices, access.operand.shape, strict=True):
        run = ranges.get(index) if isinstance(index, Var) else None
        if run is not None and run != extent and prove_le(run, extent) is not True:
            yield run, extent, not node.op.reads_parts
        position = _dim(index)
        if position is not None and node.op.kind == "view":
            if prove_lt(position, extent) is None:
                yield position + 1, extent, False
            if prove_le(0, position) is None:
                yield 0, position, False


def _dim(expr: Expr) -> Dim | None:
    """The size that an expression without variables is."""
    if isinstance(expr, Size):
        return expr.dim
    return expr.value if isinstance(expr, Const) and isinstance(expr.value, int) else None

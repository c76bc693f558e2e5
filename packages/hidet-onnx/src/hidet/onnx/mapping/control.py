"""Branches and loops: If, Loop, Scan.

A condition or trip count that is known while importing decides at once. Otherwise sub-graphs become graphs of their
own, which take what they read from around them as inputs; constants among that are constants inside, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from hidet import dtypes
from hidet.dims import Dim, DimExpr
from hidet.errors import DTypeError, HidetError, ImportFailed, ShapeError, UnsupportedOp, ValueNeeded
from hidet.frontend import Emitter, Handler, in_branch
from hidet.frontend.loops import COUNT, settled
from hidet.graph import TensorType, Value
from hidet.graph.control import emit_if, emit_while
from hidet.graph.types import ValueType
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.sequence import empty_sequence
from hidet.onnx.scope import Item
from hidet.onnx.value_types import EmptySequence

if TYPE_CHECKING:
    from hidet.onnx.importer import Body

NO_LIMIT = (1 << 63) - 1
"""What exporters give as trip count of a loop that a condition ends."""


def handlers() -> Mapping[Key, Handler]:
    """The rows of this family."""
    return {
        ("If", 1): _if,
        ("Loop", 1): _loop,
        ("Scan", 8): _batched_scan,
        ("Scan", 9): _scan,
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Closed:
    """A sub-graph under construction, whose inputs for captured values stand last. captures: the outer values."""

    emitter: Emitter
    inputs: tuple[Value, ...]
    outer: Mapping[str, Item]
    captures: tuple[Value, ...]


def _closed(e: Emitter, name: str, types: Sequence[ValueType], scopes: Mapping[str, Item]) -> _Closed:
    """An empty sub-graph with inputs of these types, and what outer names mean in it."""
    builder = e.builder.nested(name)
    inner = e.nested(builder)
    inputs = tuple(builder.input(type_) for type_ in types)
    outer: dict[str, Item] = {}
    inside: dict[Value, Value] = {}
    captures: list[Value] = []
    for captured, item in scopes.items():
        if not isinstance(item, Value):
            outer[captured] = item
            continue
        constant = e.builder.constants.get(item)
        if item not in inside:
            if constant is not None:
                inside[item] = builder.constant(constant.data, item.tensor.dtype)
            else:
                inside[item] = builder.input(item.type)
                inner.known.outer[inside[item]] = (e.known, item)
                captures.append(item)
        outer[captured] = inside[item]
    return _Closed(inner, inputs, outer, tuple(captures))


def _captured(*bodies: Body) -> dict[str, Item]:
    """What the names that sub-graphs read from around them stand for there."""
    return {name: body.scope.find(name, "a sub-graph's input") for body in bodies for name in body.captures()}


def _values(items: Sequence[Item], what: str) -> list[Value]:
    for item in items:
        if not isinstance(item, Value):
            raise UnsupportedOp(f"{what} returns a value that is no tensor")
    return list(items)


# --- If --------------------------------------------------------------------------------------------------------------


def _if(e: Emitter, condition: Value, *, then_branch: Body, else_branch: Body) -> tuple[Item, ...]:
    known = _known_number(e, condition)
    if known is not None:
        return (then_branch if known else else_branch).inline(())
    names = _captured(then_branch, else_branch)
    branches = [_closed(e, body.proto.name or "branch", (), names) for body in (then_branch, else_branch)]
    bodies = zip(branches, (then_branch, else_branch), strict=True)
    try:
        results = [list(body.write(closed.emitter, (), closed.outer)) for closed, body in bodies]
    except ValueNeeded as error:
        raise in_branch(error, e.sources(condition)[0]) from error
    except (DTypeError, ImportFailed, ShapeError) as error:
        # A branch that fits no such inputs may be one that is not taken for them.
        sources = e.sources(condition)
        if not any(sources):
            raise
        message = f"a branch of If cannot be imported ({error.message}), so its condition must be known"
        raise e.needs(message, *sources) from error
    for places in zip(*map(range, map(len, results)), strict=False):
        _give_types(branches, results, places[0])
    graphs = [
        closed.emitter.builder.build(_values(made, "a branch of If"))
        for closed, made in zip(branches, results, strict=True)
    ]
    flag = _flag(e, condition)
    try:
        return emit_if(e.builder, flag, branches[0].captures, *graphs)
    except (ShapeError, DTypeError) as error:
        raise _decided_by(e, condition, "the condition", error) from error


def _give_types(branches: Sequence[_Closed], results: Sequence[list[Item]], number: int) -> None:
    """A result that is an empty sequence in one branch gets the type that it has in the other."""
    found = [made[number] for made in results]
    for closed, made, other in zip(branches, results, reversed(found), strict=True):
        if isinstance(made[number], EmptySequence) and isinstance(other, Value):
            made[number] = empty_sequence(closed.emitter, other.type)


# --- Loop ------------------------------------------------------------------------------------------------------------


def _loop(
    e: Emitter, limit: Value | None = None, condition: Value | None = None, *initial: Item, body: Body
) -> tuple[Item, ...]:
    starts = True if condition is None else _known_number(e, condition)
    trips = None if limit is None else _known_number(e, limit)
    if starts is not None and not starts:
        trips, starts = 0, True
    state = list(initial)
    try:
        typed = _with_types(e, state, body)
        return _rolled(e, limit, trips, None if starts else condition, typed, body)
    except (ShapeError, DTypeError, ValueNeeded) as error:
        if isinstance(error, ValueNeeded) and error.inputs:
            raise
        # Copies of the body have types of their own, and know the number of their iteration.
        if starts is None and condition is not None:
            raise _decided_by(e, condition, "the condition", error) from error
        if not isinstance(trips, int):
            if limit is None:
                raise
            raise _decided_by(e, limit, "the trip count", error) from error
        return _written_out(e, trips, state, body)


def _with_types(e: Emitter, state: Sequence[Item], body: Body) -> list[Value]:
    """Carried values; an empty sequence gets the type that one iteration gives it."""
    if not any(isinstance(item, EmptySequence) for item in state):
        return _values(state, "Loop")
    types = [_plain(item.type) for item in state if isinstance(item, Value)]
    closed = _closed(e, "trial", [COUNT, *types], _captured(body))
    inner, (iteration, *values) = closed.emitter, closed.inputs
    given = [item if isinstance(item, EmptySequence) else values.pop(0) for item in state]
    number, true = inner.reshape(iteration, _declared_shape(body, 0)), inner.array(_true(_declared_shape(body, 1)))
    made = body.write(inner, (number, true, *given), closed.outer)[1:]
    return _values(
        [
            empty_sequence(e, after.type) if isinstance(item, EmptySequence) and isinstance(after, Value) else item
            for item, after in zip(state, made, strict=False)
        ],
        "Loop",
    )


def _rolled(
    e: Emitter, limit: Value | None, trips: Dim | None, condition: Value | None, state: list[Value], body: Body
) -> tuple[Value, ...]:
    """A loop over the body as a graph. Extents that an iteration changes become symbols of the body."""
    names = _captured(body)

    def written(types: Sequence[ValueType]) -> tuple[Emitter, Sequence[Value], tuple[_Closed, Value, list[Value]]]:
        closed = _closed(e, body.proto.name or "body", (COUNT, *types), names)
        iteration, *before = closed.inputs
        number = closed.emitter.reshape(iteration, _declared_shape(body, 0))
        true = closed.emitter.array(_true(_declared_shape(body, 1)))
        goes_on, *made = _values(body.write(closed.emitter, (number, true, *before), closed.outer), "the body of Loop")
        return closed.emitter, made[: len(types)], (closed, goes_on, made)

    closed, goes_on, made = settled([_plain(value.type) for value in state], written)
    inner = closed.emitter
    tests = _known_number(inner, goes_on) is not True
    outputs = [*([_flag(inner, goes_on)] if tests else []), *made]
    most: Value | Dim | None = None
    if limit is not None and trips != NO_LIMIT:
        most = trips if trips is not None else e.reshape(e.cast(limit, dtypes.i64), ())
    return emit_while(
        e.builder,
        inner.builder.build(outputs),
        limit=most,
        condition=None if condition is None else _flag(e, condition),
        carried=state,
        captures=closed.captures,
        tests=tests,
    )


def _written_out(e: Emitter, trips: int, state: list[Item], body: Body) -> tuple[Item, ...]:
    """The body once an iteration, one after the other."""
    rows: list[list[Value]] = [[] for _ in body.outputs[1 + len(state) :]]
    for trip in range(trips):
        number = e.array(numpy.full(_declared_shape(body, 0), trip, numpy.int64))
        goes_on, *made = body.inline((number, e.array(_true(_declared_shape(body, 1))), *state))
        state = made[: len(state)]
        for row, value in zip(rows, _values(made[len(state) :], "the body of Loop"), strict=True):
            row.append(value)
        more = _known_number(e, goes_on)
        if more is None:
            raise e.value_needed(goes_on, "the condition that ends a loop")
        if not more:
            break
    if any(not row for row in rows):
        raise UnsupportedOp("a loop without iterations stacks results of unknown shape")
    return (*state, *(e.emit("stack", *row, axis=0) for row in rows))


def _declared_shape(body: Body, number: int) -> tuple[int, ...]:
    """The shape of the number of an iteration, or of the condition: () or (1,), as the body has it."""
    declared = body.proto.input[number].type.tensor_type
    return (1,) if declared.HasField("shape") and len(declared.shape.dim) == 1 else ()


# --- Scan ------------------------------------------------------------------------------------------------------------


def _scan(
    e: Emitter,
    *inputs: Value,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> tuple[Value, ...]:
    carried = len(inputs) - num_scan_inputs
    arrays = [
        _to_front(e, value, _item(scan_input_axes, n), _item(scan_input_directions, n))
        for n, value in enumerate(inputs[carried:])
    ]
    results = _scanned(e, inputs[:carried], arrays, body)
    stacked = [
        _from_front(e, value, _item(scan_output_axes, n), _item(scan_output_directions, n))
        for n, value in enumerate(results[carried:])
    ]
    return (*results[:carried], *stacked)


def _scanned(e: Emitter, state: Sequence[Value], arrays: Sequence[Value], body: Body) -> tuple[Value, ...]:
    slices = [TensorType(array.tensor.dtype, array.tensor.shape[1:]) for array in arrays]
    closed = _closed(e, body.proto.name or "body", [*(_plain(v.type) for v in state), *slices], _captured(body))
    made = _values(body.write(closed.emitter, closed.inputs, closed.outer), "the body of Scan")
    attrs = {"body": closed.emitter.builder.build(made), "carried": len(state), "scanned": len(arrays)}
    return e.builder.emit_all("scan", [*state, *arrays, *closed.captures], attrs)


def _to_front(e: Emitter, value: Value, axis: int, direction: int) -> Value:
    rank = value.tensor.rank
    rows = e.transpose(value, (axis % rank, *(n for n in range(rank) if n != axis % rank)))
    return e.emit("flip", rows, axes=(0,)) if direction else rows


def _from_front(e: Emitter, value: Value, axis: int, direction: int) -> Value:
    rows = e.emit("flip", value, axes=(0,)) if direction else value
    order = list(range(1, value.tensor.rank))
    order.insert(axis % value.tensor.rank, 0)
    return e.transpose(rows, order)


def _item(numbers: Sequence[int], place: int) -> int:
    """Axes and directions that are not given are 0."""
    return numbers[place] if place < len(numbers) else 0


def _batched_scan(
    e: Emitter,
    lengths: Value | None,
    *inputs: Value,
    body: Body,
    num_scan_inputs: int,
    directions: Sequence[int] = (),
) -> tuple[Value, ...]:
    """Version 8: every value has a batch axis before its others, and each batch is scanned along axis 1."""
    if lengths is not None:
        raise UnsupportedOp("Scan of version 8 with sequence lengths is not imported", hint="use version 9")
    batch = inputs[0].tensor.shape[0]
    if not isinstance(batch, int):
        raise UnsupportedOp("Scan of version 8 needs a fixed batch size", hint="use version 9")
    rows = []
    for number in range(batch):
        part = [e.emit("select", value, axis=0, index=number) for value in inputs]
        rows.append(_scan(e, *part, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions))
    return tuple(e.emit("stack", *column, axis=0) for column in zip(*rows, strict=True))


# --- what they share -------------------------------------------------------------------------------------------------


def _plain(type_: ValueType) -> ValueType:
    return type_.with_strides(None) if isinstance(type_, TensorType) else type_


def _flag(e: Emitter, condition: Value) -> Value:
    return e.reshape(e.cast(condition, dtypes.boolean), ())


def _true(shape: tuple[int, ...]) -> Any:
    return numpy.ones(shape, numpy.bool_)


def _known_number(e: Emitter, value: Value) -> Any | None:
    """The one element of a tensor, a Python number or a size; None when it depends on data."""
    found = e.contents(value)
    if found is None:
        return None
    if found.size != 1:
        raise ImportFailed(f"{e.operator} takes one number, got {found.size}")
    item = found.reshape(-1)[0]
    if isinstance(item, DimExpr):
        return item if value.tensor.dtype.is_int else None
    return item.item() if hasattr(item, "item") else item


def _decided_by(e: Emitter, value: Value, what: str, error: HidetError) -> HidetError:
    """The error that asks for elements of inputs, or shapes, to decide what has no type that fits all cases; the one
    given where nothing could decide."""
    return error if isinstance(error, DTypeError) else e.value_needed(value, what)

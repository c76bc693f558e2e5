"""Branches and loops.

A condition that is known while importing decides at once. Otherwise regions become graphs of their own, which take what
they read from around them as inputs; constants among that are constants inside, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet import dims, dtypes
from hidet.dims import Dim, DimExpr
from hidet.errors import ImportFailed, ShapeError, UnsupportedOp
from hidet.frontend import Handler
from hidet.frontend.branches import Captures, decided
from hidet.frontend.loops import WIDENINGS, NotRows, widened
from hidet.graph import TensorType, Value
from hidet.graph.control import emit_if, emit_while
from hidet.graph.types import ValueType
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.items import Item, Rows, values_of, with_values

if TYPE_CHECKING:
    from hidet.stablehlo.importer import Body

COUNT = TensorType(dtypes.i64, ())

Write = Callable[[Emitter, Sequence[Item]], Sequence[Item]]
"""Writes a region into the graph of an emitter, for what it reads there."""


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"case": _case, "if": _if, "while": _while}


# --- graphs of their own ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Closed:
    """A sub-graph under construction. items: what outer items are in it. captures: outer values that are its last
    inputs, in order."""

    emitter: Emitter
    items: Sequence[Item]
    captures: Sequence[Value]


def _closed(e: Emitter, inner: Emitter, items: Sequence[Item]) -> _Closed:
    """Give a sub-graph inputs for all values of these items; constants among them become constants."""
    captures = Captures(e, inner)
    return _Closed(inner, [with_values(item, captures) for item in items], captures.values)


# --- branches --------------------------------------------------------------------------------------------------------


def _if(e: Emitter, condition: Value, *, regions: Sequence[Body], **_: Any) -> tuple[Item, ...]:
    if len(regions) != 2:
        raise ImportFailed(f"{e.operator} has {len(regions)} regions, expected 2")
    known = decided(e, condition)
    if known is not None:
        return regions[0 if known else 1].inline(())
    return _choose(e, condition, regions[0].captured(), regions[1].captured(), *map(_writing, regions))


def _writing(body: Body) -> Write:
    return lambda inner, captured: body.write(inner, (), captured)


def _case(e: Emitter, index: Value, *, regions: Sequence[Body], **_: Any) -> tuple[Item, ...]:
    """An index of no branch means the last one."""
    if not regions:
        raise ImportFailed(f"{e.operator} has no branches")
    known = decided(e, index)
    if known is not None:
        return regions[int(known) if 0 <= known < len(regions) else -1].inline(())
    if len(regions) == 1:
        return regions[0].inline(())
    groups = [body.captured() for body in regions]
    return tuple(_one_of(e, index, groups, list(map(_writing, regions)), 0))


def _one_of(
    e: Emitter, index: Value, groups: Sequence[Sequence[Item]], writes: Sequence[Write], first: int
) -> Sequence[Item]:
    if len(writes) == 1:
        return writes[0](e, groups[0])
    flag = e.emit("equal", index, e.constant(first, index.tensor.dtype))
    lengths = [len(group) for group in groups[1:]]

    def otherwise(inner: Emitter, given: Sequence[Item]) -> Sequence[Item]:
        rest = list(given[1:])
        parts = [[rest.pop(0) for _ in range(length)] for length in lengths]
        return _one_of(inner, given[0], parts, writes[1:], first + 1)

    others = [index, *(item for group in groups[1:] for item in group)]
    return _choose(e, flag, groups[0], others, writes[0], otherwise)


def _choose(
    e: Emitter, flag: Value, first: Sequence[Item], second: Sequence[Item], then: Write, otherwise: Write
) -> tuple[Item, ...]:
    """The results of one of two regions, of which the other does not run. first, second: what they read."""
    items = [*first, *second]
    made: list[tuple[_Closed, Sequence[Item]]] = []
    for write, start, stop in ((then, 0, len(first)), (otherwise, len(first), len(items))):
        closed = _closed(e, e.nested(e.builder.nested("branch")), items)
        made.append((closed, write(closed.emitter, closed.items[start:stop])))
    (closed, results), (_, others) = made
    graphs = [
        each.emitter.builder.build([value for item in found for value in values_of(item)]) for each, found in made
    ]
    if len(results) != len(others) or any(type(a) is not type(b) for a, b in zip(results, others, strict=True)):
        raise UnsupportedOp(f"branches of {e.operator} return different kinds of values")
    values = iter(emit_if(e.builder, flag, closed.captures, *graphs))
    return tuple(with_values(item, lambda _: next(values)) for item in results)


# --- loops -----------------------------------------------------------------------------------------------------------


def _while(e: Emitter, *items: Item, regions: Sequence[Body], **_: Any) -> tuple[Item, ...]:
    if len(regions) != 2 or any(len(body.block.arguments) != len(items) for body in regions):
        raise ImportFailed(f"{e.operator} has regions of other arguments than the {len(items)} that it carries")
    loop = _Loop(e, items, *regions)
    try:
        return loop.write(stacks=True)
    except NotRows:
        return loop.write(stacks=False)


class _Loop:
    """A loop: which of its items an iteration changes, and how often it runs.

    counters: items that grow by 1 from a known number, with that number. trips: how often it runs, where that is known
    of them; None where data decide.
    """

    def __init__(self, e: Emitter, items: Sequence[Item], cond: Body, body: Body) -> None:
        self.e = e
        self.items = items
        self.cond = cond
        self.body = body
        block = body.block
        pairs = enumerate(zip(block.arguments, block.returned, strict=True))
        self.changed = [number for number, (before, after) in pairs if before != after]
        self.counters = self._counters()
        self.trips = self._trip_count()

    def _counters(self) -> dict[int, Dim]:
        block = self.body.block
        makers = {operation.results[0]: operation for operation in block.operations if len(operation.results) == 1}
        counters: dict[int, Dim] = {}
        for number in self.changed:
            item = self.items[number]
            maker = makers.get(block.returned[number])
            if maker is None or maker.name != "add" or not isinstance(item, Value) or not item.tensor.dtype.is_int:
                continue
            steps = [operand for operand in maker.operands if operand != block.arguments[number]]
            start = self.e.contents(item)
            if len(steps) == 1 and self._is_one(makers, steps[0]) and start is not None and start.size == 1:
                begin = start.reshape(-1)[0]
                counters[number] = begin if isinstance(begin, DimExpr) else int(begin)
        return counters

    def _is_one(self, makers: Mapping[int, Any], number: int) -> bool:
        maker = makers.get(number)
        if maker is not None:
            value = maker.attributes.get("value")
            return maker.name == "constant" and getattr(value, "size", 0) == 1 and value.reshape(-1)[0] == 1
        outer = self.body.outer.get(number)
        found = self.e.contents(outer) if isinstance(outer, Value) else None
        return found is not None and found.size == 1 and bool(found.reshape(-1)[0] == 1)

    def _trip_count(self) -> Dim | None:
        """How often the loop runs, where its condition compares counters with sizes."""
        e = self.e
        given = self._as_inputs()
        closed = _closed(e, e.nested(e.builder.nested("condition")), [*given, *self.cond.captured()])
        arguments, captured = closed.items[: len(given)], closed.items[len(given) :]
        (result,) = self.cond.write(closed.emitter, arguments, captured)
        inside = {arguments[number]: number for number in self.counters}
        limits = _limits(closed.emitter, result, inside)
        if limits is None:
            return None
        trips = [limit - self.counters[number] for number, limit in limits]
        most = trips[0]
        for other in trips[1:]:
            most = dims.minimum(most, other)
        return dims.maximum(0, most)

    def _as_inputs(self) -> list[Item]:
        """The items, those that change as values of which nothing is known."""
        return [
            with_values(item, self._unknown) if number in self.changed else item
            for number, item in enumerate(self.items)
        ]

    def _unknown(self, value: Value) -> Value:
        """A value of the type, whose contents do not tell how often the loop runs: `positive` of an input of a graph
        that is thrown away."""
        inner = self.e.nested(self.e.builder.nested("unknown"))
        return inner.builder.input(TensorType(value.tensor.dtype, value.tensor.shape))

    def write(self, stacks: bool) -> tuple[Item, ...]:
        """Write the loop, and return its results. stacks: tensors that it fills row by row are stacked results of it;
        NotRows where one is used otherwise."""
        e = self.e
        # What a counter is follows from the number of the iteration, and behind the loop from how many there were.
        known = {} if self.trips is None else self.counters
        rows = self._rows() if stacks and self.trips is not None else {}
        carried = [number for number in self.changed if number not in rows and number not in known]
        types: list[ValueType] = [
            TensorType(v.tensor.dtype, v.tensor.shape) for number in carried for v in values_of(self.items[number])
        ]
        for _ in range(WIDENINGS):
            made = self._iteration(carried, types, rows)
            wider = [widened(made.emitter, old, new.type) for old, new in zip(types, made.after, strict=True)]
            if wider == types:
                break
            types = wider
        else:
            raise ShapeError("extents of a loop's carried values keep changing")
        tests = [] if made.goes_on is None else [made.goes_on]
        condition = None
        if self.trips is None:
            (condition,) = self.cond.inline(self.items)
        results = emit_while(
            e.builder,
            made.emitter.builder.build([*tests, *made.after, *made.rows]),
            limit=self.trips,
            condition=condition,
            carried=[value for number in carried for value in values_of(self.items[number])],
            captures=made.captures,
            tests=bool(tests),
        )
        return self._results(carried, rows, results)

    def _rows(self) -> dict[int, int]:
        """The tensors that may be filled row by row, with the axis of their rows: only `dynamic_update_slice` reads
        them, once, and its result is what they become."""
        block = self.body.block
        readers: dict[int, list[Any]] = {}
        for operation in block.operations:
            for operand in operation.operands:
                readers.setdefault(operand, []).append(operation)
            for region in operation.regions:
                for operand in _read_within(region):
                    readers.setdefault(operand, []).append(operation)
        found: dict[int, int] = {}
        for number in self.changed:
            item, argument = self.items[number], block.arguments[number]
            if not isinstance(item, Value) or item.tensor.rank == 0:
                continue
            if len(readers.get(argument, [])) != 1 or argument in block.returned:
                continue
            (reader,) = readers[argument]
            axis = self._row_axis(item, reader, argument)
            if axis is not None:
                found[number] = axis
        return found

    def _row_axis(self, item: Value, reader: Any, argument: int) -> int | None:
        assert self.trips is not None
        shape = item.tensor.shape
        if reader.name == "dynamic_update_slice" and reader.operands[0] == argument:
            # The update is 1 wide where rows are, and as wide as the tensor elsewhere: told by the first of its axes.
            candidates = [axis for axis, extent in enumerate(shape) if dims.prove_equal(extent, self.trips) is True]
            return candidates[0] if candidates else None
        if reader.name == "call" and dims.prove_equal(shape[0], self.trips) is True:
            return 0
        return None

    def _iteration(self, carried: Sequence[int], types: Sequence[ValueType], rows: Mapping[int, int]) -> _Iteration:
        """Write the body for carried values of these types."""
        e = self.e
        inner = e.nested(e.builder.nested("body"))
        iteration = inner.builder.input(COUNT)
        given = iter([inner.builder.input(type_) for type_ in types])
        inside: dict[int, Item] = {number: with_values(self.items[number], lambda _: next(given)) for number in carried}
        places: set[Value] = {iteration}
        if self.trips is not None:
            for number, start in self.counters.items():
                dtype = self.items[number].tensor.dtype
                value = inner.cast(iteration, dtype)
                if start == 0:
                    places.add(value)
                else:
                    value = inner.emit("add", value, inner.size(start, dtype))
                inside[number] = value
        for number, axis in rows.items():
            inside[number] = Rows(frozenset(places), self.items[number].tensor.shape, axis)
        kept = [number for number in range(len(self.items)) if number not in inside]
        outer = [self.items[number] for number in kept]
        body_reads, cond_reads = self.body.captured(), self.cond.captured() if self.trips is None else []
        closed = _closed(e, inner, [*outer, *body_reads, *cond_reads])
        inside.update(zip(kept, closed.items[: len(kept)], strict=True))
        body_items = closed.items[len(kept) : len(kept) + len(body_reads)]
        cond_items = closed.items[len(kept) + len(body_reads) :]
        results = self.body.write(inner, [inside[number] for number in range(len(self.items))], body_items)
        goes_on = None
        if self.trips is None:
            (goes_on,) = self.cond.write(inner, results, cond_items)
        filled = [results[number] for number in rows]
        if any(not isinstance(item, Rows) or item.row is None for item in filled):
            raise NotRows
        after = [value for number in carried for value in values_of(results[number])]
        if len(after) != len(types):
            raise UnsupportedOp(f"{e.operator} carries what becomes another kind of value")
        return _Iteration(inner, after, [item.row for item in filled], goes_on, closed.captures)

    def _results(self, carried: Sequence[int], rows: Mapping[int, int], values: Sequence[Value]) -> tuple[Item, ...]:
        left = iter(values)
        found: dict[int, Item] = {number: with_values(self.items[number], lambda _: next(left)) for number in carried}
        for number, axis in rows.items():
            value = next(left)
            order = [*range(1, axis + 1), 0, *range(axis + 1, value.tensor.rank)]
            found[number] = self.e.transpose(value, order)
        if self.trips is not None:
            for number, start in self.counters.items():
                found[number] = self.e.size(start + self.trips, self.items[number].tensor.dtype)
        return tuple(found.get(number, item) for number, item in enumerate(self.items))


@dataclass(frozen=True, slots=True, eq=False)
class _Iteration:
    """The body of a loop as it was written. after: carried values behind it. rows: what it adds to stacked results.
    goes_on: whether there is another iteration; None where the trip count is known."""

    emitter: Emitter
    after: Sequence[Value]
    rows: Sequence[Value]
    goes_on: Value | None
    captures: Sequence[Value]


def _read_within(block: Any) -> list[int]:
    """Values that a region and those inside it read."""
    found = [*block.returned]
    for operation in block.operations:
        found += operation.operands
        for region in operation.regions:
            found += _read_within(region)
    return found


def _limits(inner: Emitter, condition: Value, counters: Mapping[Value, int]) -> list[tuple[int, Dim]] | None:
    """For a condition that is "counter < size", or several of these, the counters' numbers and the sizes; else None."""
    node = inner.builder.producer(condition)
    if node is None:
        return None
    if node.op.name == "logical_and":
        parts = [_limits(inner, value, counters) for value in node.values]
        return None if any(part is None for part in parts) else [pair for part in parts if part for pair in part]
    if node.op.name not in ("less", "greater"):
        return None
    low, high = node.values if node.op.name == "less" else reversed(node.values)
    number = counters.get(low)
    if number is None or not inner.is_known(high):
        return None
    return [(number, inner.one_dim(high, "the limit"))]

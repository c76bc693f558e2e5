"""Branches and loops.

A condition that is known while importing decides at once. Otherwise regions become graphs of their own, which take what
they read from around them as inputs; constants among that are constants inside, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet import dims
from hidet.dims import Dim
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.frontend.branches import decided, enclosed
from hidet.frontend.loops import COUNT, NotRows, counted, settled, start_of, trip_count
from hidet.graph import Graph, TensorType, Value
from hidet.graph.control import emit_if, emit_while
from hidet.graph.types import ValueType
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.items import Item, Rows, values_of, with_values

if TYPE_CHECKING:
    from hidet.stablehlo.importer import Body

Write = Callable[[Emitter, Sequence[Item]], Sequence[Item]]
"""Writes a region into the graph of an emitter, for what it reads there."""


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"case": _case, "if": _if, "while": _while}


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
    made: list[Sequence[Item]] = []
    graphs: list[Graph] = []
    for write, start, stop in ((then, 0, len(first)), (otherwise, len(first), len(items))):
        inner = e.nested(e.builder.nested("branch"))
        given, captures = enclosed(e, inner, items, with_values)
        made.append(write(inner, given[start:stop]))
        graphs.append(inner.builder.build([value for item in made[-1] for value in values_of(item)]))
    results, others = made
    if len(results) != len(others) or any(type(a) is not type(b) for a, b in zip(results, others, strict=True)):
        raise UnsupportedOp(f"branches of {e.operator} return different kinds of values")
    values = iter(emit_if(e.builder, flag, captures, *graphs))
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
            maker = makers.get(block.returned[number])
            start = start_of(self.e, self.items[number])
            if maker is None or maker.name != "add" or start is None:
                continue
            steps = [operand for operand in maker.operands if operand != block.arguments[number]]
            if len(steps) == 1 and self._is_one(makers, steps[0]):
                counters[number] = start
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
        e, count = self.e, len(self.items)
        inner = e.nested(e.builder.nested("condition"))
        given, _ = enclosed(e, inner, [*self._as_inputs(), *self.cond.captured()], with_values)
        (result,) = self.cond.write(inner, given[:count], given[count:])
        return trip_count(inner, result, {given[number]: start for number, start in self.counters.items()})

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

        def iteration(types: Sequence[ValueType]) -> tuple[Emitter, Sequence[Value], _Iteration]:
            made = self._iteration(carried, types, rows)
            return made.emitter, made.after, made

        made = settled(types, iteration)
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
        known = {} if self.trips is None else self.counters
        counters = {number: (start, self.items[number].tensor.dtype) for number, start in known.items()}
        values, places = counted(inner, iteration, counters)
        inside.update(values)
        for number, axis in rows.items():
            inside[number] = Rows(places, self.items[number].tensor.shape, axis)
        kept = [number for number in range(len(self.items)) if number not in inside]
        outer = [self.items[number] for number in kept]
        body_reads, cond_reads = self.body.captured(), self.cond.captured() if self.trips is None else []
        read, captures = enclosed(e, inner, [*outer, *body_reads, *cond_reads], with_values)
        inside.update(zip(kept, read[: len(kept)], strict=True))
        body_items = read[len(kept) : len(kept) + len(body_reads)]
        cond_items = read[len(kept) + len(body_reads) :]
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
        return _Iteration(inner, after, [item.row for item in filled], goes_on, captures)

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

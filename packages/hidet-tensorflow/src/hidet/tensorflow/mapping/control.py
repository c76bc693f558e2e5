"""Calls, branches and loops: PartitionedCall, If, Case, While.

A condition that is known while importing decides at once. Otherwise functions become graphs of their own, which take
what they read from around them as inputs; constants among that are constants inside, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.frontend.branches import decided, enclosed
from hidet.frontend.loops import COUNT, NotRows, counted, settled, start_of, trip_count
from hidet.graph import Graph, TensorType, Value
from hidet.graph.control import emit_if, emit_while
from hidet.graph.types import ValueType
from hidet.tensorflow.emitter import TensorFlowEmitter
from hidet.tensorflow.items import Item, Rows, TensorList, values_of, with_values
from hidet.tensorflow.mapping.lists import zeros

if TYPE_CHECKING:
    from hidet.tensorflow.importer import Body

Write = Callable[[TensorFlowEmitter, Sequence[Item]], Sequence[Item]]
"""Writes a function into the graph of an emitter, for arguments there."""


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "Case": _case,
        "If": _if,
        "PartitionedCall": _call,
        "StatefulPartitionedCall": _call,
        "StatelessCase": _case,
        "StatelessIf": _if,
        "StatelessWhile": _while,
        "While": _while,
    }


def _call(e: TensorFlowEmitter, *items: Item, f: Body, **_: Any) -> tuple[Item, ...]:
    return f.inline(items)


def _flag(e: TensorFlowEmitter, condition: Value) -> Value:
    """A condition as bool[]: a number counts as whether it is not 0, any other tensor as whether it has elements."""
    if condition.tensor.rank:
        return e.emit("greater", e.size(dims.product(condition.tensor.shape)), e.constant(0, dtypes.i64))
    return e.cast(condition, dtypes.boolean)


# --- branches --------------------------------------------------------------------------------------------------------


def _if(
    e: TensorFlowEmitter, condition: Value, *items: Item, then_branch: Body, else_branch: Body, **_: Any
) -> tuple[Item, ...]:
    flag = _flag(e, condition)
    known = decided(e, flag)
    if known is not None:
        return (then_branch if known else else_branch).inline(items)
    return _choose(e, flag, items, then_branch.write, else_branch.write)


def _case(e: TensorFlowEmitter, index: Value, *items: Item, branches: Sequence[Body], **_: Any) -> tuple[Item, ...]:
    """An index of no branch means the last one."""
    known = decided(e, index)
    if known is not None:
        return branches[int(known) if 0 <= known < len(branches) else -1].inline(items)
    return tuple(_one_of(e, index, items, 0, branches))


def _one_of(
    e: TensorFlowEmitter, index: Value, items: Sequence[Item], first: int, branches: Sequence[Body]
) -> Sequence[Item]:
    if first == len(branches) - 1:
        return branches[first].write(e, items)
    flag = e.emit("equal", index, e.constant(first, index.tensor.dtype))

    def otherwise(inner: TensorFlowEmitter, given: Sequence[Item]) -> Sequence[Item]:
        return _one_of(inner, given[0], given[1:], first + 1, branches)

    def then(inner: TensorFlowEmitter, given: Sequence[Item]) -> Sequence[Item]:
        return branches[first].write(inner, given[1:])

    return _choose(e, flag, (index, *items), then, otherwise)


def _choose(
    e: TensorFlowEmitter, flag: Value, items: Sequence[Item], then: Write, otherwise: Write
) -> tuple[Item, ...]:
    """The results of one of two functions, of which the other does not run."""
    made: list[Sequence[Item]] = []
    graphs: list[Graph] = []
    for write in (then, otherwise):
        inner = e.nested(e.builder.nested("branch"))
        given, captures = enclosed(e, inner, items, with_values)
        made.append(write(inner, given))
        graphs.append(inner.builder.build([value for item in made[-1] for value in values_of(item)]))
    results, others = made
    for a, b in zip(results, others, strict=True):
        if type(a) is not type(b) or (not isinstance(a, Value | TensorList) and a is not b):
            raise UnsupportedOp(f"branches of {e.operator} return different kinds of values")
    values = iter(emit_if(e.builder, flag, captures, *graphs))
    return tuple(with_values(item, lambda _: next(values)) for item in results)


# --- loops -----------------------------------------------------------------------------------------------------------


def _while(e: TensorFlowEmitter, *items: Item, cond: Body, body: Body, **_: Any) -> tuple[Item, ...]:
    loop = _Loop(e, items, cond, body)
    try:
        return loop.write(stacks=True)
    except NotRows:
        return loop.write(stacks=False)


class _Loop:
    """A loop: which of its items an iteration changes, and how often it runs.

    counters: items that grow by 1 from a known number, with that number. trips: how often it runs, where that is known
    of them; None where data decide.
    """

    def __init__(self, e: TensorFlowEmitter, items: Sequence[Item], cond: Body, body: Body) -> None:
        self.e = e
        self.items = items
        self.cond = cond
        self.body = body
        kept = body.unchanged
        for number, item in enumerate(items):
            if number not in kept and not isinstance(item, Value | TensorList):
                raise UnsupportedOp(f"{e.operator} changes what is neither a tensor nor a list of tensors")
        self.changed = [number for number in range(len(items)) if number not in kept]
        self.counters = self._counters()
        self.trips = self._trip_count()

    def _counters(self) -> dict[int, Dim]:
        starts = {
            number: start_of(self.e, self.items[number]) for number in self.changed if number in self.body.growing
        }
        return {number: start for number, start in starts.items() if start is not None}

    def _trip_count(self) -> Dim | None:
        """How often the loop runs, where its condition compares counters with sizes."""
        inner = self.e.nested(self.e.builder.nested("condition"))
        given, _ = enclosed(self.e, inner, self._as_inputs(), with_values)
        (result,) = self.cond.write(inner, given)
        return trip_count(inner, result, {given[number]: start for number, start in self.counters.items()})

    def _as_inputs(self) -> list[Item]:
        """The items, those that change as values of which nothing is known."""
        return [
            with_values(item, self._unknown) if number in self.changed else item
            for number, item in enumerate(self.items)
        ]

    def _unknown(self, value: Value) -> Value:
        return self.e.emit("positive", value) if value in self.e.builder.constants else value

    def write(self, stacks: bool) -> tuple[Item, ...]:
        """Write the loop, and return its results. stacks: lists that it fills are stacked results of it; NotRows where
        one is used otherwise."""
        e = self.e
        rows = {number for number in self.changed if stacks and self._may_be_rows(self.items[number])}
        # What a counter is follows from the number of the iteration, and behind the loop from how many there were.
        known = {} if self.trips is None else self.counters
        carried = [number for number in self.changed if number not in rows and number not in known]
        items = self._with_elements(carried, rows)

        def iteration(types: Sequence[ValueType]) -> tuple[TensorFlowEmitter, Sequence[Value], _Iteration]:
            made = self._iteration(items, carried, types, rows)
            return made.emitter, made.after, made

        made = settled(_plain_types(items, carried), iteration)
        tests = [] if self.trips is not None else [made.goes_on]
        outputs = [*(value for value in tests if value is not None), *made.after, *made.rows]
        condition = None
        if self.trips is None:
            (first,) = self.cond.inline(items)
            condition = _flag(e, first)
        results = emit_while(
            e.builder,
            made.emitter.builder.build(outputs),
            limit=self.trips,
            condition=condition,
            carried=[value for number in carried for value in values_of(items[number])],
            captures=made.captures,
            tests=bool(tests),
        )
        return self._results(items, carried, sorted(rows), results)

    def _may_be_rows(self, item: Item) -> bool:
        """Whether a list may have as many elements behind the loop as there were iterations."""
        if not isinstance(item, TensorList):
            return False
        return item.length == 0 or (self.trips is not None and dims.prove_equal(item.length, self.trips) is True)

    def _with_elements(self, carried: Sequence[int], rows: set[int]) -> list[Item]:
        """The items; lists that are carried get elements, of the shape that an iteration gives them."""
        items = list(self.items)
        open_lists = [
            number for number in carried if isinstance(items[number], TensorList) and items[number].values is None
        ]
        if open_lists:
            made = self._iteration(items, carried, _plain_types(items, carried), rows)
            for number in open_lists:
                after = made.results[number]
                if not isinstance(after, TensorList) or after.values is None:
                    raise UnsupportedOp(f"{self.e.operator} has a list of elements whose shape nothing tells")
                item = items[number]
                items[number] = replace(item, values=zeros(self.e, item, after.values.tensor.shape[1:]))
        return items

    def _iteration(
        self, items: Sequence[Item], carried: Sequence[int], types: Sequence[ValueType], rows: set[int]
    ) -> _Iteration:
        """Write the body for carried values of these types."""
        inner = self.e.nested(self.e.builder.nested("body"))
        iteration = inner.builder.input(COUNT)
        given = iter([inner.builder.input(type_) for type_ in types])
        inside: dict[int, Item] = {
            number: _relengthened(with_values(items[number], lambda _: next(given))) for number in carried
        }
        counters = {number: (start, items[number].tensor.dtype) for number, start in self.counters.items()}
        values, places = counted(inner, iteration, counters)
        inside.update(values)
        for number in rows:
            item = items[number]
            inside[number] = Rows(item.dtype, item.shape, places, grows=item.length == 0)
        kept = [number for number in range(len(items)) if number not in inside]
        outer, captures = enclosed(self.e, inner, [items[number] for number in kept], with_values)
        inside.update(zip(kept, outer, strict=True))
        arguments = [inside[number] for number in range(len(items))]
        results = self.body.write(inner, arguments)
        goes_on = None
        if self.trips is None:
            goes_on = _flag(inner, self.cond.write(inner, results)[0])
        filled = [results[number] for number in sorted(rows)]
        if any(not isinstance(item, Rows) or item.row is None for item in filled):
            raise NotRows
        after = [value for number in carried for value in values_of(results[number])]
        return _Iteration(inner, results, after, [item.row for item in filled], goes_on, captures)

    def _results(
        self,
        items: Sequence[Item],
        carried: Sequence[int],
        rows: Sequence[int],
        values: Sequence[Value],
    ) -> tuple[Item, ...]:
        left = iter(values)
        found: dict[int, Item] = {}
        for number in carried:
            found[number] = _relengthened(with_values(items[number], lambda _: next(left)))
        for number in rows:
            value = next(left)
            found[number] = TensorList(items[number].dtype, value.tensor.shape[0], value, value.tensor.shape[1:])
        if self.trips is not None:
            for number, start in self.counters.items():
                found[number] = self.e.size(start + self.trips, items[number].tensor.dtype)
        return tuple(found.get(number, item) for number, item in enumerate(items))


@dataclass(frozen=True, slots=True, eq=False)
class _Iteration:
    """The body of a loop as it was written. after: carried values behind it. rows: elements that it adds to lists.
    goes_on: whether there is another iteration; None where the trip count is known."""

    emitter: TensorFlowEmitter
    results: Sequence[Item]
    after: Sequence[Value]
    rows: Sequence[Value]
    goes_on: Value | None
    captures: Sequence[Value]


def _plain_types(items: Sequence[Item], numbers: Sequence[int]) -> list[ValueType]:
    """Types of the values of these items, wherever they lie in memory."""
    return [TensorType(v.tensor.dtype, v.tensor.shape) for number in numbers for v in values_of(items[number])]


def _relengthened(item: Item) -> Item:
    if isinstance(item, TensorList) and item.values is not None:
        return replace(item, length=item.values.tensor.shape[0])
    return item

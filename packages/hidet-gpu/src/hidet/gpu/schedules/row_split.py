"""Few long rows, worked on by many blocks: parts of rows first, then what was made of the parts.

    for every statistic
      of each part of a row: what it reduces to  many blocks
      of each row: what these reduce to          few
    for each part of a row: results of its elements

A mean and the variance about it are made in the same steps: parts have means of their own. Rows in pieces between
those of other rows are cut along the pieces as well, so that blocks read neighbours of several rows at once.
All steps are row programs. Parts are reduced in the order in which they lie in the row, so results are reproducible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.row_layout import SIDE, RowLayout
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.combiner import Combiner
from hidet.ir.expr import Expr, Var
from hidet.ir.structural import structural_equal
from hidet.ir.visit import substitute
from hidet.schedule.cost import extent_estimate
from hidet.schedule.rows import RowOutput, RowProgram, Statistic

_BLOCKS = 32
"""Blocks of a multiprocessor, of 128 threads, that keep it busy."""
_LEAST = 2048
"""Elements of a part, or rows of neighbours side by side, from which on a block is worth its launch."""
_LEAST_SIDE = 64
_STEP = 64
_LEAST_IN_PIECES = 16384
"""Elements of a row in pieces from which on one block does not read it as fast as it comes."""


Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, eq=False)
class RowStep:
    """A program, and the condition on its axes under which an element is there; None for all of them."""

    program: RowProgram
    is_there: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """The steps, and the tensors between them."""

    steps: tuple[RowStep, ...]
    between: tuple[Operand, ...]


def split_rows(layout: RowLayout, count: int) -> SplitRows:
    """The row program in steps, over about `count` parts of a row."""
    longest = _longest(layout)
    axis, extent, chunk = layout.inner[longest], layout.inner_extents[longest], _chunk(layout, count)
    beside = layout.inner[-1:] if layout.is_in_pieces and longest < len(layout.inner) - 1 else ()
    return _Split(layout, axis, extent, chunk, dims.ceildiv(extent, chunk), beside).result()


def has_parts(layout: RowLayout, count: int) -> bool:
    """Whether about `count` parts of a row, of so many positions at least as are worth their steps, are several."""
    return extent_estimate(dims.ceildiv(layout.inner_extents[_longest(layout)], _chunk(layout, count))) >= 2


def is_simple(program: RowProgram) -> bool:
    """Whether rows are reduced once, to their only results."""
    return len(program.statistics) == 1 and all(output.per_row for output in program.outputs)


def parts_of(layout: RowLayout) -> int:
    """Into about how many parts rows are cut; 1 where one kernel keeps the device as busy."""
    if layout.is_in_pieces and extent_estimate(layout.program.row_elements) >= _LEAST_IN_PIECES:
        count = extent_estimate(layout.inner_extents[_longest(layout)]) // _LEAST_SIDE
    elif not is_simple(layout.program) and (layout.copies > 0 or _blocks(layout) >= layout.target.multiprocessors):
        # Rows that are reduced several times are read again from the cache, by a block each if there are enough.
        return 1
    else:
        count = _parts(layout)
    return count if count > 1 and has_parts(layout, count) else 1


def _longest(layout: RowLayout) -> int:
    """The axis of a row that is cut, by number."""
    return max(range(len(layout.inner)), key=lambda n: extent_estimate(layout.inner_extents[n]))


def _chunk(layout: RowLayout, count: int) -> Dim:
    """Positions of a part along the axis that is cut."""
    extent = layout.inner_extents[_longest(layout)]
    steps = dims.ceildiv(dims.ceildiv(extent, min(count, max(1, extent_estimate(extent)))), _STEP)
    # A row without elements has no parts, but parts have a length.
    return dims.maximum(steps, 1) * _STEP


def _parts(layout: RowLayout) -> int:
    """Into how many parts a row is worth cutting."""
    least = _LEAST_SIDE if layout.is_side_by_side else _LEAST
    return min(
        extent_estimate(layout.program.row_elements) // least, per_device(_BLOCKS, layout.target) // _blocks(layout)
    )


def _blocks(layout: RowLayout) -> int:
    """About how many blocks one kernel would have."""
    items = extent_estimate(layout.items)
    return max(1, -(-items // SIDE) if layout.is_side_by_side else items)


class _Split:
    """Cuts rows along `axis` into `parts` of `chunk` positions, and along the axes `beside` into single ones."""

    def __init__(
        self, layout: RowLayout, axis: Var, extent: Dim, chunk: Dim, parts: Dim, beside: tuple[Var, ...]
    ) -> None:
        self.layout, self.program = layout, layout.program
        self.axis, self.extent, self.chunk = axis, extent, chunk
        self.outer, self.extents, self.parts = layout.outer, layout.outer_extents, parts
        self.beside = beside
        whole = dict(zip(layout.inner, layout.inner_extents, strict=True))
        self.beside_extents = tuple(whole.pop(axis) for axis in beside)
        self.part, self.inside = build.size_var("part"), build.size_var("inside")
        self.place = self.part * build.index(chunk) + self.inside
        is_even = dims.prove_equal(parts * chunk, extent) is True
        self.is_there = None if is_even else self.place < build.index(extent)
        self.inner = tuple(self.inside if other is axis else other for other in whole)
        self.inner_extents = tuple((whole | {axis: chunk}).values())
        self.known: dict[Var, Expr] = {self.program.count: build.index(self.program.row_elements)}
        self.between: list[Operand] = []

    def result(self) -> SplitRows:
        program = self.program
        steps: list[RowStep] = []
        elements = [output for output in program.outputs if not output.per_row]
        rows = [output for output in program.outputs if output.per_row]
        together = _taken_together(program)
        for number, taken in enumerate(together):
            is_last = number == len(together) - 1
            shape = self._ordered(self.parts, self.extents, self.beside_extents)
            made = [total for statistic in taken for total in statistic.totals]
            # Of several, the first one's result is what the others' elements are distances from.
            made += [statistic.variable for statistic in taken[:-1]]
            parts = {var: self._tensor(f"parts{number}_{n}", var, shape) for n, var in enumerate(made)}
            steps.append(RowStep(self._of_parts(taken, parts)))
            results = [replace(o, value=substitute(o.value, self.known)) for o in rows] if is_last else []
            wholes: dict[Var, Expr] = {}
            found = [variable for statistic in taken for variable, _ in statistic.results]
            for place, variable in enumerate(found if elements or not is_last else ()):
                whole = self._tensor(f"statistic{number}_{place}", variable, self.extents)
                results.append(RowOutput(whole, contiguous_strides(self.extents), self.outer, variable, True))
                wholes[variable] = whole[self.outer]
            steps.append(RowStep(self._of_rows(taken, parts, results)))
            self.known.update(wholes)
        if elements:
            steps.append(RowStep(self._of_elements(elements), self.is_there))
        return SplitRows(tuple(steps), tuple(self.between))

    def _tensor(self, name: str, like: Var, shape: tuple[Dim, ...]) -> Operand:
        self.between.append(Operand(name, like.dtype, shape))
        return self.between[-1]

    def _ordered(self, part: Entry, rows: Sequence[Entry], beside: Sequence[Entry]) -> tuple[Entry, ...]:
        """The axes of what is reduced from parts, so that those lie together which one step writes, or the next one
        reads, together."""
        return (part, *rows, *beside) if self.layout.is_side_by_side or beside else (*rows, part)

    def _of_parts(self, taken: Sequence[Statistic], parts: Mapping[Var, Operand]) -> RowProgram:
        """What each part of a row reduces to, where a statistic's result is that of the part."""
        known = {**self.known, self.program.count: self._elements(self.part)}
        made: list[Statistic] = []
        for statistic in taken:
            totals = statistic.totals
            identities = statistic.combiner.identity([total.dtype for total in totals])
            values = [
                self._moved(substitute(value, self.known), identity)
                for value, identity in zip(statistic.values, identities, strict=True)
            ]
            made.append(
                replace(
                    statistic,
                    variable=statistic.variable if statistic.variable in parts else Var("part_total", totals[0].dtype),
                    value=values[0],
                    finish=substitute(statistic.finish, known) if statistic.variable in parts else totals[0],
                    stored=False,
                    beside=tuple(zip(values[1:], totals[1:], strict=True)),
                    further=(),
                )
            )
        where = self._ordered(self.part, self.outer, self.beside)
        outputs = [
            RowOutput(tensor, contiguous_strides(tensor.shape), where, value, True) for value, tensor in parts.items()
        ]
        return self._over_parts(tuple(made), tuple(outputs))

    def _of_rows(
        self, taken: Sequence[Statistic], parts: Mapping[Var, Operand], outputs: Sequence[RowOutput]
    ) -> RowProgram:
        """What the parts of each row reduce to."""
        number = build.size_var("number")
        where = self._ordered(number, self.outer, self.beside)
        read: dict[Var, Expr] = {var: tensor[where] for var, tensor in parts.items()}
        element = read[taken[0].total]
        held = Var("element", taken[0].total.dtype)
        values: list[Sequence[Expr]] = [[held, *(read[total] for total in taken[0].totals[1:])]]
        for statistic in taken[1:]:
            own, whole = read[taken[0].variable], taken[0].variable
            count = build.cast(self._elements(number), whole.dtype)
            values.append(_about(own - whole, count, *(read[total] for total in statistic.totals)))
        wholes = tuple(
            replace(
                statistic,
                value=found[0],
                finish=substitute(statistic.finish, self.known),
                stored=False,
                beside=tuple(zip(found[1:], statistic.totals[1:], strict=True)),
                further=tuple((variable, substitute(value, self.known)) for variable, value in statistic.further),
            )
            for statistic, found in zip(taken, values, strict=True)
        )
        return replace(
            self.program,
            outer=self.outer,
            outer_extents=self.extents,
            inner=(number, *self.beside),
            inner_extents=(self.parts, *self.beside_extents),
            element=element,
            held=held,
            statistics=wholes,
            outputs=tuple(outputs),
        )

    def _elements(self, part: Expr) -> Expr:
        """How many elements a part has."""
        place, chunk = self.inner.index(self.inside), build.index(self.chunk)
        others = dims.product([*self.inner_extents[:place], *self.inner_extents[place + 1 :]])
        rest = build.index(self.extent) - part * chunk
        return (chunk if self.is_there is None else build.minimum(chunk, rest)) * build.index(others)

    def _of_elements(self, elements: Sequence[RowOutput]) -> RowProgram:
        """The results of the elements of each part."""
        bindings = {**self.known, self.axis: self.place}
        moved = [
            replace(
                output,
                indices=tuple(substitute(index, bindings) for index in output.indices),
                value=substitute(output.value, bindings),
            )
            for output in elements
        ]
        return self._over_parts((), tuple(moved))

    def _over_parts(self, statistics: tuple[Statistic, ...], outputs: tuple[RowOutput, ...]) -> RowProgram:
        return replace(
            self.program,
            outer=(self.part, *self.outer, *self.beside),
            outer_extents=(self.parts, *self.extents, *self.beside_extents),
            inner=self.inner,
            inner_extents=self.inner_extents,
            element=self._moved(self.program.element, build.const(0, self.program.dtype)),
            statistics=statistics,
            outputs=outputs,
        )

    def _moved(self, value: Expr, otherwise: Expr) -> Expr:
        """A value of the row for a position in a part, where there is one."""
        moved = substitute(value, {self.axis: self.place})
        return moved if self.is_there is None else build.select(self.is_there, moved, otherwise)


def _taken_together(program: RowProgram) -> list[tuple[Statistic, ...]]:
    """The statistics, each in steps of its own, but for one whose elements are distances from a result of the row:
    what it is of a part's elements about the part's own result, tells what it is about that of the row (`_about`)."""
    if len(program.statistics) != 2:
        return [(statistic,) for statistic in program.statistics]
    first, second = program.statistics
    is_single = not first.further and not first.beside and not any(s.stored or s.function for s in (first, second))
    away = program.held - first.variable
    if is_single and _are_equal(program, second.values, (away, away * away)) and _sums(second.combiner):
        return [(first, second)]
    return [(first,), (second,)]


def _are_equal(program: RowProgram, found: Sequence[Expr], wanted: Sequence[Expr]) -> bool:
    """Whether expressions are the same of the same variables."""
    lead = (program.held, *(statistic.variable for statistic in program.statistics))
    return structural_equal((*lead, *found), (*lead, *wanted))


def _sums(combiner: Combiner) -> bool:
    """Whether a combiner of two adds both."""
    olds, news = ([Var(name, dtypes.f32) for name in names] for names in ("ab", "cd"))
    sums = [old + new for old, new in zip(olds, news, strict=True)]
    return structural_equal((*olds, *news, *combiner.combine(olds, news)), (*olds, *news, *sums))


def _about(away: Expr, count: Expr, total: Expr, squares: Expr) -> tuple[Expr, Expr]:
    """The sums of distances and of their squares about a place, of `count` elements that have these about another one
    `away` from it."""
    return total + count * away, squares + (total + total + count * away) * away

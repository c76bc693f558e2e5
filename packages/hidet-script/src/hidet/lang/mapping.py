"""Task mappings: which worker does which tasks, in which order.

    spatial(4, 8) * repeat(2, 2)       32 workers, each with a 2 x 2 square of an 8 x 16 grid of tasks
    repeat(2, 2) * spatial(4, 8)       32 workers, each with 4 tasks that lie 4 rows and 8 columns apart

A mapping f of task shape d gives worker w the tasks f(w). The product of f1 and f2, of n1 and n2 workers, gives worker
w the tasks [t1 * d2 + t2 for t1 in f1(w // n2) for t2 in f2(w % n2)]; it has n1 * n2 workers, task shape d1 * d2, and
is associative but not commutative. Source: Ding et al., "Hidet: Task-Mapping Programming Paradigm for Deep Learning
Tensor Programs", ASPLOS 2023, section 5.1.

Because the product is associative, a mapping is a row of factors; the functions here say what they mean for numbers and
for expressions of the thread IR alike.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import Literal

from hidet.errors import ShapeError
from hidet.ir.expr import Expr

FactorKind = Literal["spatial", "repeat"]
LoopStyle = Literal["auto", "serial", "unroll", "parallel"]
Index = int | Expr
Task = tuple[Index, ...]

_STYLES: dict[str, LoopStyle] = {".": "serial", "u": "unroll", "p": "parallel"}
_STYLE_TOKEN = re.compile(r"([up.])(\d*)(\+?)")


@dataclass(frozen=True, slots=True)
class Factor:
    """A grid of tasks: one a worker ("spatial"), or all for one worker ("repeat").

    order: the dims from the one that changes slowest with the worker, or in time, to the one that changes fastest.
    styles: how the loop of each dim is made; empty for spatial factors.
    """

    kind: FactorKind
    shape: tuple[int, ...]
    order: tuple[int, ...]
    styles: tuple[LoopStyle, ...] = ()

    @property
    def num_workers(self) -> int:
        """Workers among whom the tasks are shared."""
        return prod(self.shape) if self.kind == "spatial" else 1

    def __str__(self) -> str:
        rank = len(self.shape)
        parts = [str(extent) for extent in self.shape]
        name: str = self.kind
        if rank > 1 and self.order == tuple(reversed(range(rank))):
            name = f"column_{name}"
        elif self.order != tuple(range(rank)):
            parts.append(f"ranks={[self.order.index(dim) for dim in range(rank)]}")
        if any(style != "auto" for style in self.styles):
            letters = {style: letter for letter, style in _STYLES.items()}
            parts.append(f"attrs={''.join(letters.get(style, '.') for style in self.styles)!r}")
        return f"{name}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of a worker over its tasks; extents of 1 have none."""

    extent: int
    style: LoopStyle


@dataclass(frozen=True, slots=True)
class TaskMapping:
    """A row of factors, outermost first; see the top of this file. Made by `spatial`, `repeat` and their products."""

    factors: tuple[Factor, ...]

    @property
    def task_shape(self) -> tuple[int, ...]:
        """Extents of the grid of tasks."""
        return tuple(prod(extents) for extents in zip(*(factor.shape for factor in self.factors), strict=True))

    @property
    def num_workers(self) -> int:
        """Workers are numbered from 0 to this."""
        return prod(factor.num_workers for factor in self.factors)

    @property
    def tasks_per_worker(self) -> int:
        """Every worker has as many tasks."""
        return prod(self.task_shape) // self.num_workers

    @property
    def rank(self) -> int:
        """Dims of the grid of tasks."""
        return len(self.factors[0].shape)

    def __str__(self) -> str:
        return " * ".join(map(str, self.factors))

    __repr__ = __str__

    def __mul__(self, inner: TaskMapping) -> TaskMapping:
        """The product. ShapeError when the ranks differ."""
        if not isinstance(inner, TaskMapping):
            return NotImplemented
        if inner.rank != self.rank:
            raise ShapeError(
                f"{self} has {self.rank} dims and {inner} has {inner.rank}: their product needs equal ranks",
                hint="give the lower one extents of 1",
            )
        return TaskMapping(self.factors + inner.factors)

    def spatial(self, *shape: int, ranks: Sequence[int] | None = None) -> TaskMapping:
        """`self * spatial(...)`."""
        return self * spatial(*shape, ranks=ranks)

    def repeat(self, *shape: int, ranks: Sequence[int] | None = None, attrs: str | None = None) -> TaskMapping:
        """`self * repeat(...)`."""
        return self * repeat(*shape, ranks=ranks, attrs=attrs)

    def loops(self) -> tuple[Loop, ...]:
        """The loops of every worker, outermost first."""
        return tuple(
            Loop(factor.shape[dim], factor.styles[dim])
            for factor in self.factors
            if factor.kind == "repeat"
            for dim in factor.order
            if factor.shape[dim] != 1
        )

    def task(self, worker: Index, counters: Sequence[Index]) -> Task:
        """The task of `worker` when its loops stand at `counters`. A worker past the last gets a task past the last."""
        digits = self._digits(worker)
        rest = iter(counters)
        indices: list[Index] = [0] * self.rank
        for factor, digit in zip(self.factors, digits, strict=True):
            place = _unflatten(factor, digit) if factor.kind == "spatial" else _counted(factor, rest)
            indices = [index * extent + at for index, extent, at in zip(indices, factor.shape, place, strict=True)]
        return tuple(indices)

    def _digits(self, worker: Index) -> list[Index]:
        """The number of the worker within each factor; 0 for those that have one worker."""
        digits: list[Index] = []
        remaining = self.num_workers
        for factor in reversed(self.factors):
            count = factor.num_workers
            # The outermost digit needs no remainder.
            digits.append(0 if count == 1 else worker if count == remaining else worker % count)
            if count not in (1, remaining):
                worker = worker // count
            remaining //= count
        digits.reverse()
        return digits

    def map(self, worker: Index) -> list[tuple[int, ...]] | Task:
        """The tasks of one worker in order; of a worker known at run time only, the one task that it has.

        ShapeError for a number that is no worker's, and for several tasks of a worker known at run time only.
        """
        if isinstance(worker, Expr):
            return self.single_task_of(worker)
        return self._tasks(worker)

    def _tasks(self, worker: int) -> list[tuple[int, ...]]:
        if not 0 <= worker < self.num_workers:
            raise ShapeError(f"{self} has workers 0 to {self.num_workers - 1}, not {worker}")
        ranges = [range(loop.extent) for loop in self.loops()]
        tasks = [self.task(worker, counters) for counters in product(*ranges)]
        return [tuple(index for index in task if isinstance(index, int)) for task in tasks]

    def __call__(self, worker: int) -> list[tuple[int, ...]]:
        """`map(worker)`."""
        return self._tasks(worker)

    def single_task_of(self, worker: Index) -> Task:
        """The only task of a worker. ShapeError when workers have several."""
        if self.loops():
            raise ShapeError(f"a worker of {self} has {self.tasks_per_worker} tasks, expected one")
        return self.task(worker, ())

    def on(self, worker: Index, bind_tuple: bool = False) -> Assignment:
        """What a loop over the tasks of `worker` goes over.

        bind_tuple: the loop's target is one name for the whole task even where tasks have one dim.
        """
        return Assignment(self, worker, bind_tuple)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The tasks of one worker: `for i, j in mapping.on(worker)`. In a script the worker is an expression."""

    mapping: TaskMapping
    worker: Index
    bind_tuple: bool = False

    def __iter__(self) -> Iterator[int | tuple[int, ...]]:
        """The tasks, where the worker is a number. ShapeError where it is not."""
        if not isinstance(self.worker, int):
            raise ShapeError(f"the worker of {self.mapping} is known at run time only: loop over it in a script")
        for task in self.mapping(self.worker):
            yield task[0] if len(task) == 1 and not self.bind_tuple else task


def _unflatten(factor: Factor, digit: Index) -> list[Index]:
    """The place of number `digit` in the grid of a factor."""
    place: list[Index] = [0] * len(factor.shape)
    remaining = prod(factor.shape)
    for dim in reversed(factor.order):
        extent = factor.shape[dim]
        place[dim] = 0 if extent == 1 else digit if extent == remaining else digit % extent
        if extent not in (1, remaining):
            digit = digit // extent
        remaining //= extent
    return place


def _counted(factor: Factor, counters: Iterator[Index]) -> list[Index]:
    place: list[Index] = [0] * len(factor.shape)
    for dim in factor.order:
        if factor.shape[dim] != 1:
            place[dim] = next(counters)
    return place


def _checked_shape(name: str, shape: Sequence[object]) -> tuple[int, ...]:
    extents: list[int] = []
    for extent in shape:
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise ShapeError(f"{name} takes positive integers known at build time, got {extent!r}")
        extents.append(extent)
    if not extents:
        raise ShapeError(f"{name} needs at least one extent")
    return tuple(extents)


def _order(name: str, rank: int, ranks: Sequence[int] | None) -> tuple[int, ...]:
    """Dims from slowest to fastest, from the rank of each dim: the dim of the highest rank is the fastest."""
    if ranks is None:
        return tuple(range(rank))
    if sorted(ranks) != list(range(rank)):
        raise ShapeError(f"ranks of {name} must be a permutation of 0 to {rank - 1}, got {list(ranks)}")
    return tuple(sorted(range(rank), key=list(ranks).__getitem__))


def loop_styles(attrs: str | None, rank: int) -> tuple[LoopStyle, ...]:
    """Styles of `rank` loops from a letter for each: "u" unrolled, "p" parallel, "." serial; numbers after a letter and
    "+" are hints that change nothing. None or one letter holds for all; None leaves the choice to the compiler.

    Raises ShapeError for other texts.
    """
    if attrs is None:
        return tuple("auto" for _ in range(rank))
    tokens = _STYLE_TOKEN.findall(attrs)
    if "".join(map("".join, tokens)) != attrs or len(tokens) not in (1, rank):
        raise ShapeError(f"attrs {attrs!r} must have one letter for each of {rank} loops: u, p or .")
    styles: tuple[LoopStyle, ...] = tuple(_STYLES[token[0]] for token in tokens)
    return (styles[0],) * rank if len(styles) == 1 else styles


def spatial(*shape: int, ranks: Sequence[int] | None = None) -> TaskMapping:
    """One task a worker; neighbouring workers have tasks that are neighbours along the last dim.

    ranks: the rank of each dim, where the dim of the highest rank changes fastest; None for the last dim.
    """
    extents = _checked_shape("spatial", shape)
    return TaskMapping((Factor("spatial", extents, _order("spatial", len(extents), ranks)),))


def repeat(*shape: int, ranks: Sequence[int] | None = None, attrs: str | None = None) -> TaskMapping:
    """All tasks for one worker, one after the other, the last dim fastest.

    ranks: as of `spatial`. attrs: how loops are made, see `loop_styles`.
    """
    extents = _checked_shape("repeat", shape)
    styles = loop_styles(attrs, len(extents))
    return TaskMapping((Factor("repeat", extents, _order("repeat", len(extents), ranks), styles),))


def column_spatial(*shape: int) -> TaskMapping:
    """As `spatial`, with the first dim changing fastest."""
    return spatial(*shape, ranks=range(len(shape))[::-1])


def column_repeat(*shape: int, attrs: str | None = None) -> TaskMapping:
    """As `repeat`, with the first dim changing fastest."""
    return repeat(*shape, ranks=range(len(shape))[::-1], attrs=attrs)


def auto_map(*task_shape: int, workers: int, ranks: Sequence[int] | None = None) -> TaskMapping:
    """`repeat(...) * spatial(...)` that shares a grid of tasks among `workers`, neighbours along the fastest dim first.

    ShapeError when the tasks cannot be shared equally.
    """
    extents = _checked_shape("auto_map", task_shape)
    (remaining,) = _checked_shape("auto_map: workers", (workers,))
    order = _order("auto_map", len(extents), ranks)
    shared = [1] * len(extents)
    for dim in reversed(order):
        shared[dim] = gcd(extents[dim], remaining)
        remaining //= shared[dim]
    if remaining != 1:
        raise ShapeError(
            f"{' x '.join(map(str, extents))} tasks cannot be shared equally by {workers} workers",
            hint="change the shape, or map more tasks and skip those outside with an if",
        )
    repeated = [extent // count for extent, count in zip(extents, shared, strict=True)]
    places = {dim: position for position, dim in enumerate(order)}
    same_ranks = [places[dim] for dim in range(len(extents))]
    return repeat(*repeated, ranks=same_ranks) * spatial(*shared, ranks=same_ranks)


def predicated_auto_map(
    *task_shape: int, workers: int, ranks: Sequence[int] | None = None
) -> tuple[TaskMapping, Callable[[Index], Index | bool]]:
    """As `auto_map` for any number of workers, of which some may have nothing to do; and a function that tells for a
    worker whether it has tasks."""
    extents = _checked_shape("predicated_auto_map", task_shape)
    (remaining,) = _checked_shape("predicated_auto_map: workers", (workers,))
    order = _order("predicated_auto_map", len(extents), ranks)
    shared = [1] * len(extents)
    for dim in reversed(order):
        shared[dim] = extents[dim] if remaining >= extents[dim] else gcd(extents[dim], remaining)
        remaining //= shared[dim]
    mapping = auto_map(*extents, workers=prod(shared), ranks=ranks)
    return mapping, lambda worker: True if mapping.num_workers == workers else worker < mapping.num_workers


def chain(*mappings: TaskMapping) -> TaskMapping:
    """The product of mappings. ShapeError for none."""
    if not mappings:
        raise ShapeError("chain needs at least one mapping")
    return functools.reduce(lambda outer, inner: outer * inner, mappings)


row_spatial = spatial
row_repeat = repeat
col_spatial = column_spatial
col_repeat = column_repeat

"""How rows are dealt out to threads: a warp or a block a row, or neighbouring rows side by side.

Axes that every tensor walks as one are merged. Where the elements of a row are neighbours in memory, a thread reads
several of one row at once; where neighbours belong to different rows, it reads one of each of several rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hidet import dims
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.gpu.schedules.lanes import BYTES, LINE_BYTES, is_aligned, is_inside, is_uniform, paths, step_along
from hidet.ir import build
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.visit import accesses, substitute, walk
from hidet.schedule.affine import Affine, affine_offset, collapse_axes, other_variables
from hidet.schedule.cost import extent_estimate
from hidet.schedule.rows import RowOutput, RowProgram, Statistic
from hidet.target import GpuTarget

_KEPT = 32
"""Elements of a row that a thread keeps in registers at most."""
_RESIDENT = 1024
"""Threads of a multiprocessor from which on it is busy."""
_LEAST_TURNS = 3
"""Rows of a block from which on it stays: until the first one has come, nothing is gained."""
_EARLY_BYTES = 32
"""Of registers of a thread for what results of all rows read, at most: more takes those of other warps."""
_EXCHANGED_BYTES = 4096
"""Shared memory of a block in which threads exchange statistics, at most."""
SIDE = 32
"""Threads of a block that work on different rows, where rows lie side by side: a warp reads neighbours."""

Strides = Mapping[Operand, Sequence[Dim]]


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """A row program and how threads share it.

    outer, inner: axes that count rows and what is in a row, with extents, outermost in memory first. is_side_by_side:
    whether neighbours in memory belong to different rows. lanes: neighbours that a thread reads at once, along the
    last of the inner axes, or of the outer ones. threads: that share a row. copies: how often each of them reads; what
    it read stays in registers; 0 is any number of times, and rows are read again for every statistic.
    wide: operands, also of results, whose addresses have to be multiples of 16 bytes. target: what runs them. is_there:
    the condition under which an element is part of the row; None for all of them. is_in_pieces: whether a row is made
    of pieces shorter than a line of the caches, between those of other rows, as groups of channels are that lie last.
    """

    program: RowProgram
    outer: tuple[Var, ...]
    outer_extents: tuple[Dim, ...]
    inner: tuple[Var, ...]
    inner_extents: tuple[Dim, ...]
    is_side_by_side: bool
    lanes: int
    threads: int
    copies: int
    wide: tuple[Operand, ...]
    target: GpuTarget
    is_there: Expr | None = None
    is_in_pieces: bool = False

    @property
    def axis(self) -> Var:
        """The axis of the lanes."""
        return self.outer[-1] if self.is_side_by_side else self.inner[-1]

    @property
    def items(self) -> Dim:
        """Rows, or groups of as many neighbouring rows as there are lanes."""
        rows = dims.product(self.outer_extents)
        return dims.floordiv(rows, self.lanes) if self.is_side_by_side else rows

    @property
    def reads(self) -> Dim:
        """How often a row is read from, by all threads together."""
        count = dims.product(self.inner_extents)
        return count if self.is_side_by_side else dims.floordiv(count, self.lanes)

    @property
    def across(self) -> int:
        """Reads along the last of two inner axes, where threads keep their place and walk along the first one.

        0 where threads walk along all axes as one. A few threads may be left over.
        """
        if self.is_side_by_side or len(self.inner) != 2 or not isinstance(self.inner_extents[-1], int):
            return 0
        reads = self.inner_extents[-1] // self.lanes
        return reads if 4 * reads <= self.threads else 0

    @property
    def walkers(self) -> int:
        """Threads that walk along a row beside each other: how far one step takes each of them."""
        return self.threads // self.across if self.across else self.threads

    @property
    def places(self) -> Dim:
        """Places where something is read from a row, which the walkers share."""
        return self.inner_extents[0] if self.across else self.reads

    @property
    def most(self) -> int:
        """The largest number of places for which a row stays in registers."""
        return self.walkers * self.copies

    @property
    def staged(self) -> tuple[Access, ...]:
        """What is read of a row, and of no other, 16 bytes at a time: it may be copied before the row's turn."""
        return self._copied([self.program.element], {*self.outer, *self.inner})

    @property
    def repeated(self) -> tuple[Access, ...]:
        """What results of all rows read alike, 16 bytes at a time, as the scale of a norm: it may be copied once."""
        outputs = [output.value for output in self.program.outputs if not output.per_row]
        return self._copied(outputs, {*self.inner})

    @property
    def read_early(self) -> tuple[Access, ...]:
        """What is `repeated`, if threads have registers for it beside a row of their own: it is read before the row, so
        that it is there when the statistics are, and a weight before the kernel in front has ended."""
        nbytes = sum(self.copies * self.lanes * access.dtype.nbytes for access in self.repeated)
        return self.repeated if nbytes <= _EARLY_BYTES and self.copies and not self.blocks else ()

    def _copied(self, values: Sequence[Expr], axes: set[Var]) -> tuple[Access, ...]:
        """What expressions read 16 bytes at a time, under no condition, at places that depend on these axes alone."""
        if self.is_side_by_side or not len(self.outer) == len(self.inner) == 1:
            return ()
        own = {*self.outer, *self.inner}
        return tuple(
            access
            for access, reached in paths(values).items()
            if isinstance(access, Access)
            and () in reached
            and access.operand in self.wide
            and own & {node for index in access.indices for node in walk(index)} == axes
            and self.lanes * access.dtype.nbytes == BYTES
        )

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has at once, where each has a row and enough registers for it."""
        return max(1, _RESIDENT // self.threads)

    @property
    def blocks(self) -> int:
        """Blocks that stay and take one row after the other, while the next one is copied to shared memory; 0 where
        each row has a block of its own: of short rows, few rows, and such as are not known to be long or many."""
        target, items, length = self.target, self.items, self.inner_extents[0]
        if not isinstance(items, int) or not isinstance(length, int) or not target.has("async-copy"):
            return 0
        blocks = self.resident * target.multiprocessors
        is_kept = 0 < self.copies * self.lanes <= _KEPT and self.threads > target.warp_size
        is_written = any(not output.per_row for output in self.program.outputs)
        has_room = bool(self.staged) and self._have_room(self.staged, length)
        return blocks if has_room and is_kept and is_written and items >= _LEAST_TURNS * blocks else 0

    @property
    def copied_once(self) -> tuple[Access, ...]:
        """What blocks that stay copy to shared memory before the first row: all that is `repeated`, if it has room."""
        length = self.inner_extents[0]
        fits = isinstance(length, int) and self._have_room((*self.staged, *self.repeated), length)
        return self.repeated if fits else ()

    def _have_room(self, copied: Sequence[Access], length: int) -> bool:
        """Whether a multiprocessor has shared memory for what its blocks copy."""
        nbytes = sum(access.dtype.nbytes * length for access in copied) + _EXCHANGED_BYTES
        return self.resident * nbytes <= self.target.block_shared_memory

    def single(self) -> RowLayout:
        """For addresses that are not aligned: one element at once."""
        return _shared_out(replace(self, lanes=1, wide=()))

    @property
    def most_threads(self) -> int:
        """Threads that may share a row."""
        if not self.is_side_by_side:
            return self.target.block_threads
        # A block reads SIDE groups of neighbours at once; what its threads have meets in shared memory.
        wide = self.program.dtype.nbytes > 4  # such numbers take two registers, and their functions many
        return min(self.target.block_threads // SIDE // (2 if wide else 1), max(1, 64 // self.lanes))

    @property
    def most_copies(self) -> int:
        """Reads of a thread for which it has registers."""
        # Every read has an address of its own, which needs registers as well, and f64 takes two.
        kept = _KEPT * 4 // max(4, self.program.dtype.nbytes)
        return kept // self.lanes if self.lanes > 1 else kept // 2

    @property
    def is_held_narrow(self) -> bool:
        """Whether registers keep neighbours as they are read, in 2 bytes at most each."""
        program, lane_bytes = self.program, 2
        is_packed = self.lanes * lane_bytes >= 4 and not any(statistic.stored for statistic in program.statistics)
        return is_packed and program.is_plain and accesses(program.element)[0].dtype.nbytes <= lane_bytes

    def with_lanes(self, lanes: int) -> RowLayout:
        """For so many neighbours that a thread reads at once, at most; other threads are not asked for."""
        return self if lanes >= self.lanes else replace(self, lanes=lanes, wide=self.wide if lanes > 1 else ())

    def shares(self) -> list[RowLayout]:
        """What a call may want of rows of one length in registers, by rising number of threads: few for many rows, many
        where the device has threads to spare."""
        reads = max(1, extent_estimate(self.reads))
        threads = _least_threads(self, reads)
        found = [self.shared_by(threads)]
        while threads < self.most_threads and threads < reads:
            threads *= 2
            found.append(self.shared_by(threads))
        return found

    def shared_by(self, threads: int) -> RowLayout:
        """For so many threads a row, in whose registers it stays if it fits."""
        shared = replace(self, threads=threads)
        copies = -(-extent_estimate(shared.places) // shared.walkers)
        # What whole blocks cannot keep is read again, from far away: rows of narrow elements may take all registers.
        most = self.most_copies * (2 if threads >= self.most_threads and self.is_held_narrow else 1)
        return replace(shared, copies=copies if copies <= most else 0)

    def rereading(self) -> RowLayout:
        """For rows of any length."""
        return replace(self, copies=0, threads=self.threads if self.is_side_by_side else max(self.threads, 256))


def row_layout(
    program: RowProgram, strides: Strides, target: GpuTarget, is_there: Expr | None = None
) -> RowLayout | None:
    """The layout; None when a result's place is no affine function of the axes.

    is_there: the condition on the program's axes under which an element is part of the row; None for all of them.
    """
    maps: dict[Access, Affine] = {}
    values = expressions(program)
    for value in values:
        for access in accesses(value):
            offset = affine_offset(access.indices, strides[access.operand])
            if offset is not None:
                maps[access] = offset
    targets = [affine_offset(output.indices, output.strides) for output in program.outputs]
    everything = [*maps.values(), *[target for target in targets if target is not None]]
    if len(everything) < len(maps) + len(targets):
        return None
    pinned = frozenset(var for value in values for var in other_variables(value, maps))
    elements = accesses(program.element)
    leads = [maps[access] for access in elements if access in maps]
    if len(leads) < len(elements):
        # What positions choose lies as what is made of it, not as the positions.
        leads += (target for target in targets if target is not None)
    lead = max([*leads, Affine({}, 0)], key=lambda m: len(m.coefficients))
    outer, outer_extents = _merged(program.outer, program.outer_extents, lead, everything, pinned)
    inner, inner_extents = _merged(program.inner, program.inner_extents, lead, everything, pinned)
    fixed = {var: build.index(0) for var in (*program.outer, *program.inner) if var not in (*outer, *inner)}
    if not inner:
        return None
    side_by_side = bool(outer) and lead.coefficient(outer[-1]) == 1 and lead.coefficient(inner[-1]) != 1
    bound = _with(program, fixed)
    piece = inner_extents[-1] if outer and lead.coefficient(inner[-1]) == 1 and len(inner) > 1 else 0
    is_in_pieces = (
        isinstance(piece, int)
        and 0 < piece * accesses(program.element)[0].dtype.nbytes < LINE_BYTES
        and lead.coefficient(outer[-1]) == piece
    )
    layout = RowLayout(
        bound, outer, outer_extents, inner, inner_extents, side_by_side, 1, 1, 0, (), target, is_there, is_in_pieces
    )
    return _shared_out(_widened(layout, strides))


def expressions(program: RowProgram) -> tuple[Expr, ...]:
    """Every expression of the program that may access tensors."""
    statistics = program.statistics
    return (
        program.element,
        *(value for s in statistics for value in s.values),
        *(finish for s in statistics for _, finish in s.results),
        *(o.value for o in program.outputs),
    )


def program_axes(program: RowProgram) -> dict[Var, Dim]:
    """The axes of a program with their extents."""
    return dict(zip((*program.outer, *program.inner), (*program.outer_extents, *program.inner_extents), strict=True))


def _merged(
    variables: Sequence[Var], extents: Sequence[Dim], lead: Affine, maps: Sequence[Affine], pinned: frozenset[Var]
) -> tuple[tuple[Var, ...], tuple[Dim, ...]]:
    """The axes that are left, in the order in which `lead` lies in memory, and their extents."""
    order = sorted(range(len(variables)), key=lambda n: -(dims.hint_value(lead.coefficient(variables[n])) or 0))
    axes, sizes = [variables[n] for n in order], [extents[n] for n in order]
    groups = collapse_axes(axes, sizes, maps, pinned) or ([[len(axes) - 1]] if axes else [])
    merged = tuple(axes[group[-1]] for group in groups)
    return merged, tuple(dims.product([sizes[n] for n in group]) for group in groups)


def _with(program: RowProgram, fixed: Mapping[Var, Expr]) -> RowProgram:
    """The program where some axes have a value."""

    def bound(value: Expr) -> Expr:
        return substitute(value, fixed)

    def statistic(s: Statistic) -> Statistic:
        beside = tuple((bound(value), total) for value, total in s.beside)
        further = tuple((variable, bound(finish)) for variable, finish in s.further)
        return replace(s, value=bound(s.value), finish=bound(s.finish), beside=beside, further=further)

    def output(o: RowOutput) -> RowOutput:
        return replace(o, indices=tuple(map(bound, o.indices)), value=bound(o.value))

    return replace(
        program,
        element=bound(program.element),
        statistics=tuple(map(statistic, program.statistics)),
        outputs=tuple(map(output, program.outputs)),
    )


def _widened(layout: RowLayout, strides: Strides) -> RowLayout:
    """With as many lanes as everything that is read and written allows."""
    axis, program = layout.axis, layout.program
    reads = paths(expressions(program))
    shape = program_axes(program)
    placed = [
        (access.operand, access.indices, strides[access.operand]) for access in reads if isinstance(access, Access)
    ]
    placed += [
        (output.result, output.indices, output.strides)
        for output in program.outputs
        if layout.is_side_by_side or not output.per_row
    ]
    moved = [(o, i, s) for o, i, s in placed if step_along(i, s, axis, 1) != 0]
    conditions = [
        condition
        for access, reached in reads.items()
        if isinstance(access, Access) and not is_inside(access, shape)
        for path in reached
        for condition, _ in path
    ]
    if layout.is_there is not None:
        conditions.append(layout.is_there)
    lanes = BYTES // max([operand.dtype.nbytes for operand, _, _ in moved], default=BYTES)
    extent = (layout.outer_extents if layout.is_side_by_side else layout.inner_extents)[-1]

    def allows(lanes: int) -> bool:
        if dims.divisibility(extent) % lanes or not all(is_uniform(c, axis, lanes) for c in conditions):
            return False
        return all(step_along(i, s, axis, lanes) == 1 and is_aligned(i, s, axis, lanes) for _, i, s in moved)

    while lanes > 1 and not allows(lanes):
        lanes //= 2
    wide = tuple(dict.fromkeys(operand for operand, _, _ in moved)) if lanes > 1 else ()
    return replace(layout, lanes=max(lanes, 1), wide=wide)


def _shared_out(layout: RowLayout) -> RowLayout:
    """With as many threads a row as keep it in registers, or as the device has to spare."""
    items, reads = extent_estimate(layout.items), max(1, extent_estimate(layout.reads))
    target = layout.target
    most, limit = layout.most_copies, layout.most_threads
    resident = resident_threads(target)
    if layout.is_side_by_side:
        threads = _power(min(limit, -(-reads // most)))
        while threads < limit and threads * 2 <= reads and items * threads < resident:
            threads *= 2
    else:
        threads = _least_threads(layout, reads)
        while threads < limit and threads < reads and items * threads < resident:
            threads *= 2
    return layout.shared_by(threads)


def _least_threads(layout: RowLayout, reads: int) -> int:
    """The fewest threads that keep a row in registers, a warp at least where that has as much to read."""
    fewest = max(_power(-(-reads // layout.most_copies)), min(layout.target.warp_size, _power(reads)))
    return min(layout.most_threads, fewest)


def resident_threads(target: GpuTarget) -> int:
    """Threads from which on a device is busy."""
    return _RESIDENT * target.multiprocessors


def _power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()

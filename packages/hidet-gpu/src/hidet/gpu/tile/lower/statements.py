"""Statements on tiles as statements of the thread IR, and where the tiles of a kernel are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hidet.errors import ScheduleError
from hidet.gpu.intrinsics import intrinsic_call
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.layout import SharedLayout
from hidet.gpu.tile.lower.copy import BoxCopy, box_copy
from hidet.gpu.tile.lower.elementwise import (
    Element,
    any_element,
    fill_tile,
    held_element,
    map_tile,
    mapped_element,
)
from hidet.gpu.tile.lower.fetch import fetch_tile, fetched_element, part_of
from hidet.gpu.tile.lower.finish import StoredMap, finish_layout, staged_tile, store_finished
from hidet.gpu.tile.lower.fragment import Fragment, Threads, fragment
from hidet.gpu.tile.lower.machine import Machine, Operand
from hidet.gpu.tile.lower.parts import MEET, Parts
from hidet.gpu.tile.lower.reduce import reduce_tile
from hidet.gpu.tile.lower.shifted import ShiftedLoad, shifted_load
from hidet.gpu.tile.lower.store import StagedParts, rows_layout, store_elements, store_rows
from hidet.gpu.tile.lower.uses import comes_before_ring, parted_fetches, stored_maps
from hidet.gpu.tile.tensors import RTile, STile
from hidet.gpu.tile.walk import all_stmts, register_tiles
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Const, Expr, Var
from hidet.ir.types import BufferType, PointerType


class TileLowering:
    """The tiles of one kernel and where they are kept.

    `_stage`: which stage of a shared tile is read now. `_idle`: shared arrays that the last ring has left. `_stored`:
    maps whose results are computed where they are stored, and have no registers of their own; `_parted`: what they read
    that is fetched there, too, a part at a time. `_runs_on`: whether products in the background are not waited for
    where they stand. `_products`: such products, if the kernel has any. `_fresh`: tiles that the next product sets.
    `_shifted`: loads of pipelines whose rows are shifted, where the kernel does so.

    once: for how many tiles of a load outside of rings there is shared memory.
    """

    def __init__(
        self, kernel: TileKernel, threads: Threads, machine: Machine, *, shifts_rows: bool = False, once: int = 1
    ) -> None:
        self.threads = threads
        self.machine = machine
        self._stored = stored_maps(kernel.body)
        self._parted = parted_fetches(kernel.body, self._stored)
        self.fragments: dict[RTile, Fragment] = {}
        self.shared: dict[STile, Var] = {}
        self._stage: dict[STile, Expr] = {}
        self._idle: list[Var] = []
        self._runs_on = False
        self._fresh: set[RTile] = set()
        self._products = machine.products
        if not any(self._is_in_background(stmt) for stmt in all_stmts(kernel.body)):
            self._products = None
        self._shifted: dict[STile, ShiftedLoad] = {}
        stages: dict[STile, int] = {}
        for stmt in all_stmts(kernel.body):
            for tile in register_tiles(stmt):
                if not {tile} & {*self.fragments, *self._stored, *self._parted}:
                    self.fragments[tile] = fragment(tile, kernel.warps)
            ahead = stmt.loads if isinstance(stmt, t.Ring) else ()
            for load in (*ahead, *((stmt,) if isinstance(stmt, t.Load) else ())):
                count = stmt.stages if isinstance(stmt, t.Ring) else once
                shifted = shifted_load(load, count) if shifts_rows and load in ahead and machine.copies else None
                if shifted is not None:
                    self._shifted[load.target], count = shifted, 1
                stages[load.target] = max(count, stages.get(load.target, 1))
        for kept, count in stages.items():
            shape = (build.index(count * kept.layout.size),)
            self.shared[kept] = Var(kept.name, BufferType(kept.stored, shape, None, "shared"))

    def buffers(self) -> list[Var]:
        """The arrays of all tiles."""
        lines = (shifted.lines for shifted in self._shifted.values())
        return [*self.shared.values(), *lines, *(fragment.buffer for fragment in self.fragments.values())]

    def stmts(self, nodes: tuple[t.TileStmt, ...]) -> s.Stmt:
        """Statements one after the other.

        A load that a ring follows arrives with the ring's first ones; products in the background replace zeros.
        """
        done: list[s.Stmt] = []
        for number, node in enumerate(nodes):
            following = nodes[number + 1 :]
            if isinstance(node, t.Load) and comes_before_ring(following):
                done.append(self._start(node))
            elif isinstance(node, t.Fill) and following and self._replaces(node, following[0]):
                self._fresh.add(node.target)
            else:
                done.append(getattr(self, _METHODS[type(node)])(node))
        return build.seq(done)

    def _replaces(self, node: t.Fill, following: t.TileStmt) -> bool:
        """Whether a product that need not be added follows zeros."""
        is_zero = node.value.value == 0 and not self._runs_on
        return (
            is_zero
            and isinstance(following, t.Mma)
            and following.accumulator is node.target
            and self._is_in_background(following)
        )

    def load(self, node: t.Load) -> s.Stmt:
        """A load that is waited for at once."""
        return build.seq([self._start(node), *self._wait_all(), *self._visible(), _meet()])

    def _start(self, node: t.Load) -> s.Stmt:
        """Start a load; the meeting lets all finish reading what was there."""
        copy = box_copy(node, self.shared[node.target], self.threads, self.machine.copies)
        return build.seq([*copy.before, _meet(), copy.start({}, build.index(0))])

    def _visible(self) -> list[s.Stmt]:
        """Products in the background may read shared memory past the threads' own path to it."""
        return [] if self._products is None else [self._products.visible()]

    def _commit(self) -> list[s.Stmt]:
        return [] if self.machine.copies is None else [self.machine.copies.commit()]

    def _wait(self, groups: int) -> list[s.Stmt]:
        return [] if self.machine.copies is None else [self.machine.copies.wait(groups)]

    def _wait_all(self) -> list[s.Stmt]:
        return [] if self.machine.copies is None else [self.machine.copies.wait_all()]

    def ring(self, node: t.Ring) -> s.Stmt:
        """A group of copies an iteration: the one needed is finished when at most `ahead` - 1 later ones are not.

        Products in the background run on while the next ones are started, so that their stage is given back an
        iteration later; not where rows are shifted to a stage that is multiplied at once.
        """
        shifted = [self._shifted[load.target] for load in node.loads if load.target in self._shifted]
        self._runs_on = (
            node.stages > 2
            and not shifted
            and all(
                self._is_in_background(stmt) and isinstance(stmt, t.Mma) and isinstance(stmt.a, STile)
                for stmt in node.body
            )
        )
        runs_on = self._products if self._runs_on else None
        ahead = node.stages - (1 if runs_on is None else 2)
        start = build.size_var("early")
        copies = [self._copy_in_ring(load, node.index) for load in node.loads]
        before = [stmt for copy in copies for stmt in copy.before]
        early = build.seq([s.If(start < node.extent, _started(copies, node, start)), *self._commit()])
        prologue = s.For(start, build.index(0), build.index(ahead), early, kind="unroll")
        coming = build.size_var("coming")
        later = s.If(coming < node.extent, _started(copies, node, coming))
        staged = [load.target for load in node.loads if load.target not in self._shifted]
        for tile in staged:
            self._stage[tile] = node.index % node.stages
        body = self.stmts(node.body)
        for tile in staged:
            del self._stage[tile]
        arrived = [one.arrive(node.index % node.stages, self.shared[one.node.target], self.threads) for one in shifted]
        steps = [
            *self._wait(ahead - 1),
            *self._visible(),
            _meet(),
            *(() if runs_on is None else (body,)),
            s.Declare(coming, node.index + ahead),
            later,
            *self._commit(),
            *([*arrived, *self._visible(), _meet()] if arrived else ()),
            body if runs_on is None else runs_on.wait(1),
        ]
        self._runs_on = False
        # At the end all have finished reading before tiles are filled anew, and loads before a ring of no iterations.
        self._idle = [*(self.shared[load.target] for load in node.loads), *(one.lines for one in shifted)]
        loop: s.Stmt = s.For(node.index, build.index(0), node.extent, build.seq(steps))
        if runs_on is not None:
            sums = [self.fragments[stmt.accumulator] for stmt in node.body if isinstance(stmt, t.Mma)]
            loop = runs_on.finished_loop(node.extent, loop, sums)
        return build.seq([*before, prologue, loop, *self._wait_all(), _meet()])

    def _copy_in_ring(self, load: t.Load, index: Var) -> BoxCopy:
        """How stages of a tile are filled, or those of the lines that are shifted to it."""
        shifted, copies = self._shifted.get(load.target), self.machine.copies
        if shifted is None or copies is None:
            return box_copy(load, self.shared[load.target], self.threads, copies, index)
        return BoxCopy((), lambda values, stage: shifted.start(values, stage, self.threads, copies))

    def loop(self, node: t.Loop) -> s.Stmt:
        """A plain loop."""
        return s.For(node.index, build.index(0), node.extent, self.stmts(node.body))

    def when(self, node: t.When) -> s.Stmt:
        """A branch that the whole block takes or does not take."""
        return s.If(node.condition, self.stmts(node.body))

    def when_any(self, node: t.WhenAny) -> s.Stmt:
        """A branch that a warp takes or does not take."""
        return s.If(any_element(node, self.fragments[node.tile]), self.stmts(node.body))

    def mma(self, node: t.Mma) -> s.Stmt:
        """A product of what the tiles hold now."""
        a = self.fragments[node.a] if isinstance(node.a, RTile) else self._operand(node.a)
        b, accumulator = self._operand(node.b), self.fragments[node.accumulator]
        if self._products is None or not self._is_in_background(node):
            if node.accumulator.is_transposed:
                raise ScheduleError(f"{node.accumulator.name} is spread as its transpose, which only warp groups give")
            return self.machine.multiply(node, accumulator, a, b, self.threads)
        if self._runs_on and isinstance(a, Operand):
            return self._products.start(node, accumulator, (a, b), self.threads)
        is_added = node.accumulator not in self._fresh
        self._fresh.discard(node.accumulator)
        return self._products.multiply(node, accumulator, (a, b), self.threads, is_added=is_added)

    def _is_in_background(self, node: t.TileStmt) -> bool:
        """Whether a statement is a product in the background."""
        return self._products is not None and isinstance(node, t.Mma) and self._products.fits(node, self.threads.warps)

    def _operand(self, tile: STile) -> Operand:
        if tile not in self.shared:
            raise ScheduleError(f"shared tile {tile.name} is multiplied, but nothing loads it")
        return Operand(tile, self.shared[tile], self._stage.get(tile, build.index(0)))

    def fetch(self, node: t.Fetch) -> s.Stmt:
        """Read a register tile."""
        if node.target in self._parted:
            return s.Seq(())
        return fetch_tile(node, self.fragments[node.target], self.threads)

    def fill(self, node: t.Fill) -> s.Stmt:
        """Set a register tile."""
        return fill_tile(node, self.fragments[node.target])

    def map(self, node: t.Map) -> s.Stmt:
        """Compute a register tile."""
        if node.target in self._stored:
            return s.Seq(())
        return map_tile(node, self.fragments[node.target], self._inputs(node), self.threads)

    def reduce(self, node: t.Reduce) -> s.Stmt:
        """Reduce a register tile."""
        return reduce_tile(node, self.fragments[node.target], self.fragments[node.source], self.threads)

    def store(self, node: t.Store) -> s.Stmt:
        """Write a register tile, by rows where the matrix takes 16 bytes at once and a ring has left memory for it."""
        staging = self._staging_of(node)
        place = None if staging is None else self._staging_place(node, staging)
        if staging is None or place is None:
            return store_elements(node, self._element(node.source), self.threads)
        parts, stored = staging.parts, self._stored_map(node.source)
        if stored is not None and staging.is_mapped_after:
            return store_finished(node, stored, self.fragments[parts.tile], place, parts)
        part, way = partial(self._part, node.source), self._staged_parts(node)
        return store_rows(node, part, place, parts, self.machine.write_square, way)

    def _staged_parts(self, node: t.Store) -> StagedParts | None:
        """How what is staged of a store gets to memory; None where lanes read and write it."""
        return None

    def _stored_map(self, tile: RTile) -> StoredMap | None:
        """The map that makes a tile where it is stored; None for a tile that is held."""
        map_ = self._stored.get(tile)
        if map_ is None:
            return None
        return StoredMap(map_, tuple(self._parted[read] for read in map_.inputs if read in self._parted))

    def _staging_of(self, node: t.Store) -> Staging | None:
        """What is staged of a stored tile: products that epilogue operands are added to after that, else results."""
        stored, products = self._stored_map(node.source), self._products
        together, meet = 1, MEET
        if node.source.is_transposed and products is not None:
            together, meet = products.group_warps, products.meet(self.threads.upright(node.source))
        layout = None if stored is None else self._finish_layout(node, stored, together)
        if stored is not None and layout is not None:
            return Staging(Parts(staged_tile(stored), layout, self.threads, together, meet), True)
        layout = rows_layout(node, self.threads.warps, together)
        return None if layout is None else Staging(Parts(node.source, layout, self.threads, together, meet), False)

    def _finish_layout(self, node: t.Store, stored: StoredMap, together: int) -> SharedLayout | None:
        """How products are staged that are mapped after that; None where results are."""
        return finish_layout(node, stored, self.threads.warps, together)

    def _element(self, tile: RTile) -> Element:
        """The elements of a tile that is stored."""
        map_ = self._stored.get(tile)
        return held_element(self.fragments[tile]) if map_ is None else self._mapped(map_, {})

    def _part(self, tile: RTile, first: tuple[Expr, Expr], pieces: int) -> tuple[list[s.Stmt], Element]:
        """The elements of some pieces of a tile that is stored, and what is fetched for them before."""
        stored = self._stored_map(tile)
        if stored is None:
            return [], held_element(self.fragments[tile])
        fetched, parts = self._fetched_parts(stored.fetches, first, pieces)
        return fetched, self._mapped(stored.map, parts)

    def _fetched_parts(
        self, fetches: Sequence[t.Fetch], first: tuple[Expr, Expr], pieces: int
    ) -> tuple[list[s.Stmt], dict[RTile, Element]]:
        """What reads some pieces of tiles, and their elements."""
        parts = [part_of(fetch, pieces) for fetch in fetches]
        fetched = [
            stmt
            for fetch, part in zip(fetches, parts, strict=True)
            for stmt in (s.Declare(part.buffer), fetch_tile(fetch, part, self.threads, first))
        ]
        return fetched, {part.tile: held_element(part, first) for part in parts}

    def _mapped(self, node: t.Map, parts: Mapping[RTile, Element]) -> Element:
        return mapped_element(node, {**self._inputs(node), **parts}, self.threads)

    def _inputs(self, node: t.Map) -> dict[RTile, Element]:
        """The elements of what a map reads."""
        return {
            tile: fetched_element(self._parted[tile], self.threads)
            if tile in self._parted
            else held_element(self.fragments[tile])
            for tile in node.inputs
        }

    def staging_arrays(self, kernel: TileKernel) -> dict[t.Store, Var]:
        """Shared memory of its own for each store by rows of a kernel whose stages are filled meanwhile."""
        found: dict[t.Store, Var] = {}
        for stmt in kernel.body:
            staging = self._staging_of(stmt) if isinstance(stmt, t.Store) else None
            if isinstance(stmt, t.Store) and staging is not None:
                way = self._staged_parts(stmt)
                slots = 1 if way is None else way.slots
                shape = (build.index(slots * staging.parts.size),)
                found[stmt] = Var("staging", BufferType(staging.parts.tile.dtype, shape, None, "shared"))
        return found

    def _staging_place(self, node: t.Store, staging: Staging) -> Expr | None:
        """Shared memory for what is staged: of the last ring; None where that is too small."""
        dtype = staging.parts.tile.dtype
        for array in self._idle:
            if array_bytes(array) >= staging.parts.size * dtype.nbytes:
                return Bitcast(build.address(array, 0), PointerType(dtype, "shared"))
        return None


@dataclass(frozen=True, slots=True)
class Staging:
    """What is staged in shared memory before it is stored. is_mapped_after: whether they are products, of which results
    are made after that."""

    parts: Parts
    is_mapped_after: bool


def array_bytes(array: Var) -> int:
    """Bytes of a shared array."""
    assert isinstance(array.type, BufferType)
    (count,) = array.type.shape
    assert isinstance(count, Const) and isinstance(count.value, int)
    return count.value * array.dtype.nbytes


def _started(copies: Sequence[BoxCopy], node: t.Ring, index: Var) -> s.Stmt:
    """The loads of iteration `index` of a ring."""
    return build.seq(copy.start({node.index: index}, index % node.stages) for copy in copies)


def _meet() -> s.Stmt:
    return s.Evaluate(intrinsic_call("gpu.syncthreads"))


_METHODS: dict[type, str] = {
    t.Load: "load",
    t.Fetch: "fetch",
    t.Fill: "fill",
    t.Mma: "mma",
    t.Map: "map",
    t.Reduce: "reduce",
    t.Store: "store",
    t.Ring: "ring",
    t.Loop: "loop",
    t.When: "when",
    t.WhenAny: "when_any",
}

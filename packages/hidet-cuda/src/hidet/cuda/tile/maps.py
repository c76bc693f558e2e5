"""Tensor maps of what a ring loads and of what is stored, and the copies by TMA that read them: boxes of matrices, and
for the matrix of what a filter sees of images, columns of pixels (PTX ISA, "Tensor copy").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from hidet import dtypes
from hidet.cuda.intrinsics import intrinsic_call
from hidet.cuda.tensor_map import MapRequest, PixelColumns, map_type
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.layout import CHUNK_BYTES, LINE_CHUNKS
from hidet.gpu.tile.statements import Load
from hidet.gpu.tile.tensors import Gathered, GTensor, Patches, Stacked, STile, matrices_of
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Binary, Bitcast, Const, Expr, Var
from hidet.ir.expr import Load as MemoryLoad
from hidet.ir.types import PointerType
from hidet.ir.visit import substitute, walk

_NOTHING: Mapping[Var, Expr] = MappingProxyType({})
_MOST_OUTER = 3
"""Axes of a tensor map besides the two of a matrix."""
_MOST_BOX = 256
"""Elements of a box along an axis (PTX ISA, "Tensors")."""
SWIZZLED_BYTES = 8192
"""Arrays from this size on start at multiples of 1024 bytes, where swizzles of 128 bytes repeat."""


@dataclass(frozen=True, slots=True, eq=False)
class OuterAxis:
    """An axis that a kernel's matrices lie along: the place of the block's own, an expression of an index of the grid,
    a bound of it, and the elements between neighbours."""

    place: Expr
    extent: Expr
    stride: Expr


PlaceInTile = Callable[[Expr | int, Expr | int], Expr]
"""The address in shared memory of a row of a panel of a tile."""


@dataclass(frozen=True, slots=True, eq=False)
class MatrixMap:
    """A kernel's parameter `var`: the tensor map of `source`, from or to which boxes like a panel of `tile` are copied.

    base: where `source` lies when its outer axes are at 0. All but their places are expressions over the kernel's other
    parameters. leaves_rest: whether nothing is copied to rows of the tile that no row of a smaller matrix is for, to
    the next multiple of 8 rows, instead of zeros: TMA takes longer for a row outside of the matrix than for one inside
    (20 x 4096 times 4096 x 4096 by tiles of 64 x 32 on an H200: 23.8 us with zeros, 60 rows 13.2).
    """

    var: Var
    source: GTensor
    tile: STile
    base: Expr
    outer: tuple[OuterAxis, ...]
    leaves_rest: bool = False

    @property
    def rows(self) -> Expr:
        """Of a box."""
        rows = self.tile.layout.rows
        if not self.leaves_rest:
            return build.index(rows)
        # The pattern of swizzled rows repeats after so many.
        return build.minimum(_rounded_up(self.source.rows, LINE_CHUNKS), rows)

    def argument(self, arguments: Mapping[Var, Expr]) -> Expr:
        """The kernel's argument, from values of its other parameters in the launch."""
        return self.request(arguments).call()

    def request(self, arguments: Mapping[Var, Expr]) -> MapRequest:
        """The map as host code makes it. arguments: values of the kernel's parameters in the launch."""
        source, layout, nbytes = self.source, self.tile.layout, self.source.dtype.nbytes
        # The stride of a matrix of one row may be anything, even 0; its map is given that of a dense one.
        dense = _rounded_up(source.columns, layout.chunk)
        sizes, strides = [source.columns, source.rows], [build.maximum(source.row_stride, dense)]
        box: list[Expr | int] = [_panel_columns(self.tile), substitute(self.rows, arguments)]
        for axis in self.outer:
            sizes.append(axis.extent)
            strides.append(axis.stride)
            box.append(1)
        return MapRequest(
            _as_tile(self.tile, source, substitute(self.base, arguments)),
            tuple(substitute(size, arguments) for size in sizes),
            tuple(substitute(stride, arguments) * nbytes for stride in strides),
            tuple(box),
            layout.panel_chunks * 16,
        )

    def placed(self, load: Load) -> list[s.Stmt]:
        """What copies of a tile's loads share, before the ring."""
        return []

    def copies(self, load: Load, place: PlaceInTile, barrier: Expr) -> list[s.Stmt]:
        """A copy of each panel of a load's tile; their bytes are counted at `barrier`."""
        panels = range(load.target.layout.panels)
        return [self.load(place(panel, 0), barrier, load.row, _column(load, panel)) for panel in panels]

    def load(self, place: Expr, barrier: Expr, row: Expr, column: Expr) -> s.Stmt:
        """A copy of a box of the matrix to an address in shared memory, whose bytes are counted at `barrier`."""
        return _copy("tensor_load", place, self.var, barrier, [column, row, *(axis.place for axis in self.outer)])

    def store(self, place: Expr, row: Expr, column: Expr) -> s.Stmt:
        """A copy of a box to the matrix from an address in shared memory; what lies outside of the matrix is left."""
        coordinates = [column, row, *(axis.place for axis in self.outer)]
        numbers = [build.cast(coordinate, dtypes.i32) for coordinate in coordinates]
        return s.Evaluate(intrinsic_call(f"cuda.tensor_store.{len(numbers)}d", self.var, place, *numbers))


@dataclass(frozen=True, slots=True, eq=False)
class PixelMap:
    """A kernel's parameter `var`: the tensor map of the images whose `patches` `source` has as rows, from which columns
    of pixels like a panel of `tile` are copied. A tile's columns are channels of one tap."""

    var: Var
    source: Gathered
    patches: Patches
    tile: STile
    image: Var
    origins: tuple[Var, ...]

    def argument(self, arguments: Mapping[Var, Expr]) -> Expr:
        """As that of `MatrixMap`."""
        return self.request(arguments).call()

    def request(self, arguments: Mapping[Var, Expr]) -> MapRequest:
        """As that of `MatrixMap`."""
        patches, layout, nbytes = self.patches, self.tile.layout, self.source.dtype.nbytes
        space = patches.axes[::-1]

        def given(value: Expr) -> Expr:
            return substitute(value, arguments)

        lower = tuple(given(build.index(0) - axis.before) for axis in space)
        # From the image's last pixel to where the first tap of a line's last result is.
        last = [(axis.results - 1) * axis.step - axis.before for axis in space]
        upper = tuple(given(place - (axis.extent - 1)) for place, axis in zip(last, space, strict=True))
        return MapRequest(
            _as_tile(self.tile, self.source, given(patches.pointer)),
            tuple(map(given, (patches.stored, *(axis.extent for axis in space), patches.images))),
            tuple(given(stride) * nbytes for stride in (*(axis.stride for axis in space), patches.image_stride)),
            (_panel_columns(self.tile),),
            layout.panel_chunks * 16,
            PixelColumns(layout.rows, lower, upper, tuple(given(axis.step) for axis in space)),
        )

    def placed(self, load: Load) -> list[s.Stmt]:
        """Where the first row of a tile lies: its image, and the pixel of its first tap."""
        stmts: list[s.Stmt] = []
        number: Expr = build.cast(load.row, dtypes.u32)
        for axis, origin in zip(self.patches.axes[::-1], self.origins[::-1], strict=True):
            results, step, before = (build.cast(n, dtypes.u32) for n in (axis.results, axis.step, axis.before))
            rest = Var("rest", dtypes.u32)
            place = (number - rest * results) * step - before
            stmts += [s.Declare(rest, number // results), s.Declare(origin, build.cast(place, dtypes.i32))]
            number = rest
        return [
            *stmts,
            s.Declare(self.image, build.cast(self.patches.first, dtypes.i32) + build.cast(number, dtypes.i32)),
        ]

    def copies(self, load: Load, place: PlaceInTile, barrier: Expr) -> list[s.Stmt]:
        """As those of `MatrixMap`."""
        column, tap, channel = (Var(name, dtypes.u32) for name in ("column", "tap", "channel"))
        channels = build.cast(self.patches.channels, dtypes.u32)
        stmts: list[s.Stmt] = [
            s.Declare(column, build.cast(load.column, dtypes.u32)),
            s.Declare(tap, column // channels),
            s.Declare(channel, column - tap * channels),
        ]
        offsets: list[Expr] = []
        number: Expr = tap
        for axis in self.patches.axes[:0:-1]:
            taps, rest = build.cast(axis.taps, dtypes.u32), Var("rest", dtypes.u32)
            stmts.append(s.Declare(rest, number // taps))
            offsets.append((number - rest * taps) * build.cast(axis.spread, dtypes.u32))
            number = rest
        offsets.append(number * build.cast(self.patches.axes[0].spread, dtypes.u32))
        for panel in range(self.tile.layout.panels):
            at = [channel + panel * _panel_columns(self.tile), *self.origins[::-1], self.image]
            stmts.append(_copy("tensor_load_im2col", place(panel, 0), self.var, barrier, at, offsets))
        return stmts


@dataclass(frozen=True, slots=True, eq=False)
class SharedMap:
    """A map of a tile that is the same for all `blocks` blocks of a cluster: each of them, with number `rank` (i64),
    copies a part of it to all. described: the map of boxes, like a panel of the tile or, where it has one panel, like a
    part of its rows."""

    described: MatrixMap
    blocks: int
    rank: Expr

    @property
    def var(self) -> Var:
        """The kernel's parameter."""
        return self.described.var

    def argument(self, arguments: Mapping[Var, Expr]) -> Expr:
        """As that of `MatrixMap`."""
        return self.described.argument(arguments)

    def request(self, arguments: Mapping[Var, Expr]) -> MapRequest:
        """As that of `MatrixMap`."""
        return self.described.request(arguments)

    def placed(self, load: Load) -> list[s.Stmt]:
        """As that of `MatrixMap`."""
        return []

    def copies(self, load: Load, place: PlaceInTile, barrier: Expr) -> list[s.Stmt]:
        """Copies of the block's part to all blocks; their bytes are counted at `barrier` of each."""
        layout, outer = load.target.layout, [axis.place for axis in self.described.outer]
        rows, panels = self.described.tile.rows, layout.panels
        if rows < layout.rows:
            parts = [(build.index(0), self.rank * rows)]
        else:
            own = panels // self.blocks
            parts = [(self.rank * own + number, build.index(0)) for number in range(own)]
        mask = [Const(2**self.blocks - 1, dtypes.u16)]
        return [
            _copy(
                "tensor_load_multicast",
                place(panel, row),
                self.var,
                barrier,
                [_column(load, panel), load.row + row, *outer],
                mask,
            )
            for panel, row in parts
        ]


@dataclass(frozen=True, slots=True, eq=False)
class StackedMap:
    """The maps of matrices that stand below each other, which `source` has. A tile lies in one of them: from `row` on
    in that of the map `chosen`."""

    parts: tuple[MatrixMap, ...]
    source: Stacked
    chosen: Var
    row: Var

    def placed(self, load: Load) -> list[s.Stmt]:
        """The matrix of a tile. Branches at each copy would leave the compiler a loop for each matrix."""
        starts, ends = self.source.starts, self.source.ends
        chosen = build.select_part(load.row, ends, lambda number: build.address(self.parts[number].var, 0))
        start = build.select_part(load.row, ends, lambda number: starts[number])
        return [s.Declare(self.chosen, chosen), s.Declare(self.row, build.cast(load.row - start, dtypes.i32))]

    def copies(self, load: Load, place: PlaceInTile, barrier: Expr) -> list[s.Stmt]:
        """As those of `MatrixMap`, of the matrix in which the tile lies."""
        moved = replace(load, row=build.cast(self.row, dtypes.i64))
        return replace(self.parts[0], var=self.chosen).copies(moved, place, barrier)


SourceMap = MatrixMap | PixelMap | SharedMap | StackedMap
OwnMap = MatrixMap | PixelMap | SharedMap
"""A map that is a parameter of the kernel."""


def own_maps(maps: Iterable[SourceMap]) -> list[OwnMap]:
    """The parameters that maps are, or are made of."""
    return [own for found in maps for own in (found.parts if isinstance(found, StackedMap) else (found,))]


def _stacked_map(
    load: Load, source: Stacked, kernel: TileKernel, counts: Mapping[Var, Expr] = _NOTHING
) -> StackedMap | None:
    """The maps of the matrices of a load that stand below each other; None where one of them has none."""
    tiles = [replace(load.target, name=f"{load.target.name}{number}") for number in range(len(source.parts))]
    loads = [Load(*each, load.row, load.column) for each in zip(tiles, source.parts, strict=True)]
    parts = tuple([found for part in loads if isinstance(found := source_map(part, kernel, counts), MatrixMap)])
    if len(parts) < len(loads):
        return None
    chosen = Var(f"map_{load.target.name}", PointerType(map_type().dtype, map_type().space))
    return StackedMap(parts, source, chosen, Var("row", dtypes.i32))


def shared_map(load: Load, kernel: TileKernel, blocks: int, rank: Expr) -> SharedMap | None:
    """The map of a load whose tile is the same for tiles of the grid that lie one below the other, for a cluster of
    them; None for others, for tiles that have no parts, and for those of matrices below each other: the thread that
    copies has no registers to choose among these as well."""
    described = source_map(load, kernel)
    if not isinstance(described, MatrixMap):
        return None
    row = kernel.grid_vars[1]
    below = {row, *(var for var, value in kernel.index_values if row in set(walk(value)))}
    places = (load.row, load.column, *(axis.place for axis in described.outer))
    if any(node in below for place in places for node in walk(place) if isinstance(node, Var)):
        return None
    layout, tile = load.target.layout, load.target
    if layout.panels % blocks == 0:
        return SharedMap(described, blocks, rank)
    # Parts of rows begin where the pattern of swizzled rows does.
    if layout.panels > 1 or layout.rows % (blocks * LINE_CHUNKS):
        return None
    part = STile(tile.name, tile.dtype, layout.rows // blocks, layout.columns)
    return SharedMap(replace(described, tile=part), blocks, rank)


def box_map(load: Load, stages: int, kernel: TileKernel, counts: Mapping[Var, Expr] = _NOTHING) -> SourceMap | None:
    """The tensor map that brings tiles of a matrix, by boxes, to so many stages of a ring; None where TMA cannot copy
    them. That rows do not overlap is for the caller to know. counts: as of `source_map`."""
    layout, matrices = load.target.layout, matrices_of(load.source)
    if not matrices or not layout.is_swizzled or any(matrix.align < CHUNK_BYTES for matrix in matrices):
        return None
    if layout.rows > _MOST_BOX or stages * layout.size * layout.nbytes < SWIZZLED_BYTES:
        return None
    sizes = [size for matrix in matrices for size in (matrix.rows, matrix.columns, matrix.row_stride)]
    if any(depends_on_block(size, kernel) for size in sizes):
        return None
    return source_map(load, kernel, counts)


def source_map(load: Load, kernel: TileKernel, counts: Mapping[Var, Expr] = _NOTHING) -> SourceMap | None:
    """The tensor map that brings a load's tiles; None where there is none. counts: how many matrices indices of the
    block count, besides those of the kernel's grid."""
    source, var = load.source, Var(f"map_{load.target.name}", map_type())
    if isinstance(source, Stacked):
        return _stacked_map(load, source, kernel, counts)
    if isinstance(source, Gathered) and source.patches is not None:
        channels = source.patches.channels
        known = channels.value if isinstance(channels, Const) else None
        if isinstance(known, int) and known % load.target.columns:
            # A copy brings channels of one tap of the filter.
            return None
        origins = tuple(Var(f"origin{number}", dtypes.i32) for number in range(len(source.patches.axes)))
        return PixelMap(var, source, source.patches, load.target, Var("image", dtypes.i32), origins)
    found = _base(source, kernel, counts) if isinstance(source, GTensor) else None
    return None if found is None or not isinstance(source, GTensor) else MatrixMap(var, source, load.target, *found)


def matrix_map(matrix: GTensor, tile: STile, kernel: TileKernel) -> MatrixMap | None:
    """The tensor map of boxes like a tile of a matrix that is stored or read by epilogues; None where there is none."""
    layout, sizes = tile.layout, (matrix.rows, matrix.columns, matrix.row_stride)
    if matrix.align < CHUNK_BYTES or not layout.is_swizzled or layout.panels > 1 or layout.rows > _MOST_BOX:
        return None
    if any(depends_on_block(size, kernel) for size in sizes):
        return None
    if any(isinstance(node, MemoryLoad) for part in (matrix.pointer, *sizes) for node in walk(part)):
        # The host, which makes the map, does not know where the matrix lies.
        return None
    found = _base(matrix, kernel)
    return None if found is None else MatrixMap(Var(f"map_{tile.name}", map_type()), matrix, tile, *found)


def _base(
    source: GTensor, kernel: TileKernel, counts: Mapping[Var, Expr] = _NOTHING
) -> tuple[Expr, tuple[OuterAxis, ...]] | None:
    """`base` and `outer` of a map; None where the pointer depends on the block in another way."""
    grid = dict(zip(kernel.grid_vars, kernel.grid, strict=True)) if kernel.grid else {}
    extents = {**grid, **counts}
    outer = list[OuterAxis]()
    base, *offsets = _terms(source.pointer)
    for offset in offsets:
        if not depends_on_block(offset, kernel):
            base = build.binary("add", base, offset)
            continue
        axis = _outer_axis(offset, kernel, extents)
        if axis is None or len(outer) == _MOST_OUTER:
            return None
        outer.append(axis)
    return None if depends_on_block(base, kernel) else (base, tuple(outer))


def _terms(expr: Expr) -> list[Expr]:
    """What a sum adds up."""
    if isinstance(expr, Binary) and expr.op == "add":
        return [*_terms(expr.a), *_terms(expr.b)]
    return [expr]


def _outer_axis(offset: Expr, kernel: TileKernel, extents: Mapping[Var, Expr]) -> OuterAxis | None:
    """The axis along which an offset moves a pointer: an index of the block, of which there are `extents`, or a part of
    it, times a stride."""
    if not isinstance(offset, Binary) or offset.op != "mul" or depends_on_block(offset.b, kernel):
        return None
    place = offset.a
    number, extent = place, None
    if isinstance(place, Binary) and place.op == "mod" and not depends_on_block(place.b, kernel):
        number, extent = place.a, place.b
    # What is left of an index that counts other things as well.
    while isinstance(number, Binary) and number.op == "floordiv" and not depends_on_block(number.b, kernel):
        number = number.a
    if not isinstance(number, Var) or number not in extents:
        return None
    return OuterAxis(place, extents[number] if extent is None else extent, offset.b)


def depends_on_block(expr: Expr, kernel: TileKernel) -> bool:
    """Whether an expression is another one for each block."""
    own = {*kernel.grid_vars, *(var for var, _ in kernel.index_values)}
    return any(node in own for node in walk(expr) if isinstance(node, Var))


def _rounded_up(count: Expr, step: int) -> Expr:
    return (count + (step - 1)) // step * step


def _panel_columns(tile: STile) -> int:
    return tile.layout.panel_chunks * tile.layout.chunk


def _column(load: Load, panel: Expr | int) -> Expr:
    """The first column of a panel of a load's tile."""
    return load.column + panel * _panel_columns(load.target)


def _as_tile(tile: STile, source: GTensor | Gathered, base: Expr) -> Expr:
    """A pointer to elements of a tile's type, to which TMA rounds those of a source."""
    return base if tile.dtype is source.dtype else Bitcast(base, PointerType(tile.dtype))


def _copy(
    name: str, place: Expr, var: Var, barrier: Expr, coordinates: Sequence[Expr], more: Sequence[Expr] = ()
) -> s.Stmt:
    """more: offsets of a filter's tap, or which blocks a copy is for."""
    numbers = [build.cast(coordinate, dtypes.i32) for coordinate in coordinates]
    numbers += [build.cast(number, dtypes.u16) for number in more]
    return s.Evaluate(intrinsic_call(f"cuda.{name}.{len(coordinates)}d", place, var, barrier, *numbers))

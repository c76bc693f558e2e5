"""What may be chosen about a product or convolution: its register tile, work items and chunks, and its columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hidet.cpu.constants import fma_rate
from hidet.cpu.schedules.gemm import launch_gemm
from hidet.cpu.schedules.gemm_blocking import Extents, Item, blocking_of, choose_item
from hidet.cpu.schedules.gemm_program import ProgramBuilder
from hidet.cpu.schedules.gemm_spec import Gemm
from hidet.cpu.schedules.gemm_tile import RegisterTile, TileShape, tile_knob, tile_shape
from hidet.cpu.schedules.gemv import MOST_ROWS, can_be_gemv, gemv_groups, is_skinny, launch_gemv
from hidet.cpu.target import CpuTarget
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task

_ITEM_TILES = (1, 4, 16)
_ITEM_GROUPS = (1, 4, 16)
_STEPS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class GemmParams:
    """A tile of sums in registers, a work item, and where columns are read.

    is_packed_on_the_way: whether each work item packs its columns, instead of a kernel before for all; False where they
    are packed already. is_gemv: whether columns are read where they lie (`hidet.cpu.schedules.gemv`), by items of
    `item.groups` groups; where a call tells how many rows there are, by calls of few. copies_image: whether the image
    of a convolution is copied first, channels last, where taps of a row of the kernel are one run.
    """

    tile: RegisterTile
    item: Item
    is_packed_on_the_way: bool = False
    is_gemv: bool = False
    copies_image: bool = False


ExtentsOf = Callable[[GemmParams], Extents]
"""Extents of a product by its parameters."""


def default_params(
    target: CpuTarget,
    dtype: DType,
    source: DType,
    extents: Extents,
    tile: RegisterTile,
    is_packed_on_the_way: bool,
    *,
    is_gemv: bool,
) -> GemmParams:
    """Good parameters for a tile of sums of type `dtype`. source: type of the columns as they lie."""
    shape = tile_shape(target, dtype, tile)
    item = choose_item(shape, target.cpu.l1_bytes, extents, streams_panels=_streams_panels(target, shape))
    if is_gemv and is_skinny(extents.rows) is not None:
        item = replace(item, groups=gemv_groups(shape, extents.run, source))
    return GemmParams(tile, item, is_packed_on_the_way, is_gemv)


def _streams_panels(target: CpuTarget, shape: TileShape) -> bool:
    """Whether elements of columns come out of the second-level cache in half the time in which a tile multiplies them,
    so that it waits for none: longer chunks of them begin and end less often."""
    constants = target.published_constants()
    multiplying = shape.rows / fma_rate(constants, shape.dtype)
    fetching = shape.dtype.nbytes / constants.level("L2").core_bandwidth
    return 2 * fetching <= multiplying


def gemm_space(
    target: CpuTarget,
    dtype: DType,
    extents_of: ExtentsOf,
    default: GemmParams,
    *,
    packing: tuple[bool, ...],
    copying: tuple[bool, ...] = (False,),
    more: tuple[Constraint[GemmParams], ...] = (),
) -> Space[GemmParams]:
    """Everything that may be chosen.

    packing, copying: what `is_packed_on_the_way` and `copies_image` may be. more: constraints.
    """

    def shape(params: GemmParams) -> TileShape:
        return tile_shape(target, dtype, params.tile)

    def fits_tables(params: GemmParams) -> bool:
        return params.item.tiles * params.tile.rows <= extents_of(params).most_rows

    def fits_cache(params: GemmParams) -> bool:
        extents, steps = extents_of(params), params.item.most_steps
        if extents.order == "taps":
            return steps == default.item.most_steps
        return steps == default.item.most_steps or steps * extents.step_bytes(shape(params)) <= target.cpu.l1_bytes

    def is_gemv_alike(params: GemmParams) -> bool:
        item = replace(params.item, groups=default.item.groups)
        return not params.is_gemv or (params.tile, item) == (default.tile, default.item)

    def is_first(params: GemmParams) -> bool:
        extents, own, item = extents_of(params), shape(params), params.item
        needed = {"tiles": extents.tiles(own), "groups": extents.groups(own)}
        fixed = {"tiles": isinstance(extents.rows, int), "groups": isinstance(extents.columns, int)}
        for knob, chosen in (("tiles", item.tiles), ("groups", item.groups)):
            enough = [count for count in values[knob] if count >= needed[knob]]
            if fixed[knob] and chosen in enough and chosen != _first(enough, getattr(default.item, knob)):
                return False

        def chunk(most_steps: int) -> tuple[Dim, Dim]:
            blocking = blocking_of(own, extents, replace(item, most_steps=most_steps))
            return blocking.taps, blocking.steps

        alike = [count for count in values["steps"] if chunk(count) == chunk(item.most_steps)]
        return item.most_steps == _first(alike, default.item.most_steps)

    def make(
        tile: RegisterTile, tiles: int, groups: int, steps: int, on_the_way: bool, gemv: bool, copies: bool
    ) -> GemmParams:
        return GemmParams(tile, Item(tiles, groups, steps), on_the_way, gemv, copies)

    first, own = extents_of(default), shape(default)
    tiles = {default.item.tiles, *(count for count in _ITEM_TILES if count <= first.tiles(own))}
    groups = {default.item.groups, *(count for count in _ITEM_GROUPS if count <= first.groups(own))}
    steps = {default.item.most_steps, *_STEPS}
    values = {name: tuple(sorted(each)) for name, each in {"tiles": tiles, "groups": groups, "steps": steps}.items()}
    packed = [replace(default, is_packed_on_the_way=each) for each in packing]
    gemv = (False, True) if any(can_be_gemv(extents_of(params)) for params in packed) else (False,)
    return Space(
        (
            tile_knob(target),
            Knob("tiles", values["tiles"], "tiles of rows of a work item"),
            Knob("groups", values["groups"], "column groups of a work item"),
            Knob("steps", values["steps"], "steps that are summed in registers at once"),
            Knob("packed_on_the_way", packing, "whether each work item packs its columns"),
            Knob("gemv", gemv, "whether columns are read where they lie"),
            Knob("copies_image", copying, "whether the image is copied, channels last"),
        ),
        make,
        (
            Constraint("the tables of a work item have room for its rows", fits_tables),
            Constraint(f"a chunk of columns stays in the first-level cache: {target.cpu.l1_bytes} bytes", fits_cache),
            Constraint(
                "columns that are read in place are neighbours along the sum, and not packed before",
                lambda params: not params.is_gemv or can_be_gemv(extents_of(params)),
            ),
            Constraint("a GEMV has no other tiles and steps", is_gemv_alike),
            Constraint("no other point has the same work items and chunks", is_first),
            *more,
        ),
    )


def _first(alike: Sequence[int], default: int) -> int:
    """Which of values that do the same a space has: the default's, or the least."""
    return default if default in alike else min(alike)


def launch_product(
    builder: ProgramBuilder, task: Task, gemm: Gemm, shape: TileShape, extents: Extents, params: GemmParams
) -> None:
    """Add the kernel of `gemm` as chosen, and its launch; both where a call tells whether it has few rows."""
    in_place = functools.partial(launch_gemv, builder, task, gemm, shape)
    tiled = functools.partial(launch_gemm, builder, task, gemm, shape, blocking_of(shape, extents, params.item))
    if not params.is_gemv:
        tiled()
    elif is_skinny(gemm.rows) is not None:
        in_place(params.item.groups)
    else:
        groups = gemv_groups(shape, extents.run, gemm.right.pointer.dtype)
        builder.run_either(builder.size(gemm.rows) <= MOST_ROWS, lambda: in_place(groups), tiled)

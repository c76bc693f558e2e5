"""Kernels in tiles as a target launches them, and the one question by which a target chooses how they are lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hidet.gpu.tile.kernel import TileKernel
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.visit import substitute
from hidet.target import GpuTarget


def _nothing(arguments: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class LoweredTiles:
    """A kernel in tiles as thread IR, and its launch.

    lowering: the name of what made it. grid: blocks along x, y and z, over the parameters of the kernel in tiles, which
    are the first ones of `function`. threads: of a block. more: the arguments for further parameters, such as tensor
    maps, from those for the kernel's. needs_elements: whether no matrix may be empty.
    """

    lowering: str
    function: Function
    params: tuple[Var, ...]
    grid: tuple[Expr, ...]
    threads: int
    more: Callable[[Mapping[Var, Expr]], tuple[Expr, ...]] = _nothing
    needs_elements: bool = False

    def launch(self, arguments: Mapping[Var, Expr]) -> s.Launch:
        """The launch for values of the kernel's parameters."""
        grid = tuple(substitute(extent, arguments) for extent in self.grid)
        given = tuple(arguments[var] for var in self.params)
        return s.Launch(self.function.name, grid, (*given, *self.more(arguments)), block=(build.index(self.threads),))


class TileTarget(GpuTarget, Protocol):
    """A target that lowers kernels in tiles."""

    def lower_tiles(self, kernel: TileKernel, lowering: str | None = None) -> LoweredTiles:
        """The kernel by the lowering of this name, or by the fastest that it and the device are made for.

        ScheduleError for a name that the target does not have, and for a kernel that the lowering does not take.
        """

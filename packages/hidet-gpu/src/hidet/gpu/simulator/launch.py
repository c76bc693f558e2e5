"""A launch of blocks of threads: its blocks in waves, the threads of each as strands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hidet.errors import LaunchError
from hidet.gpu.simulator.activation import Activation
from hidet.gpu.simulator.lanes import everyone
from hidet.gpu.simulator.memory import View
from hidet.gpu.simulator.program import Program
from hidet.gpu.simulator.strand import Strand
from hidet.gpu.simulator.team import Geometry, Team
from hidet.gpu.simulator.traffic import Traffic
from hidet.gpu.simulator.wave import GlobalMemory, Wave
from hidet.ir.func import Function
from hidet.ir.interpret import LaunchExtents
from hidet.ir.memory import AddressSpace, Buffer, Pointer

_WAVE_THREADS = 2048
_MOST_THREADS = 1024
_MOST_TOGETHER = 64


def run_launch(
    functions: Mapping[str, Function],
    kernel: Function,
    arguments: Sequence[Any],
    launch: LaunchExtents,
    space: AddressSpace,
    traffic: Traffic | None,
) -> None:
    """Run `kernel` for every thread; a launch of no blocks does nothing.

    arguments: as the interpreter of host functions has them: numbers, vectors, `Pointer`, `Buffer`.
    space: where addresses in tables lead. traffic: counts uses of memory;
    None counts nothing.

    Blocks run in lockstep as far as they may; those that synchronise over global memory all at once.
    LaunchError, DataRace or Deadlock names the thread and statement.
    """
    geometry = Geometry(launch.grid, launch.block, launch.cluster, launch.shared_bytes)
    _check(kernel, geometry)
    if not geometry.blocks:
        return
    program = Program(functions)
    outside = GlobalMemory(space, traffic)
    values = [_value(argument, outside) for argument in arguments]
    together, alone = _wave_blocks(program, kernel, geometry)
    domain = together if program.synchronises_blocks(kernel) else geometry.cluster_blocks
    for first in range(0, geometry.blocks, together):
        count = min(together, geometry.blocks - first)
        wave = Wave(program, geometry, outside, first, count, max(domain, 1))
        step = 1 if alone else count
        for start in range(0, count, step):
            team = Team(geometry, first + start, step, start)
            lanes = everyone(team.size)
            activation = Activation(wave, team, kernel)
            _set_grid(activation, team)
            strand = wave.scheduler.add(Strand(activation.run(values, lanes), team, lanes))
            strand.function = kernel.name
        wave.scheduler.run()
        wave.finish()


def _check(kernel: Function, geometry: Geometry) -> None:
    if geometry.threads > _MOST_THREADS or geometry.threads < 1:
        raise LaunchError(f"{kernel.name} is launched with {geometry.threads} threads a block, expected 1 to 1024")
    if any(extent % size for extent, size in zip(geometry.grid, geometry.cluster, strict=True)):
        raise LaunchError(
            f"{kernel.name} is launched with grid {geometry.grid}, which is no multiple of cluster {geometry.cluster}"
        )


def _wave_blocks(program: Program, kernel: Function, geometry: Geometry) -> tuple[int, bool]:
    """How many blocks run at the same time, and whether each of them for itself."""
    if program.spins(kernel) or program.synchronises_blocks(kernel):
        if geometry.blocks > _MOST_TOGETHER and program.synchronises_blocks(kernel):
            raise LaunchError(
                f"{kernel.name} has blocks that wait for each other, and {geometry.blocks} of them; "
                f"the interpreter runs {_MOST_TOGETHER} at once"
            )
        return min(geometry.blocks, _MOST_TOGETHER), True
    clusters = max(1, _WAVE_THREADS // (geometry.threads * geometry.cluster_blocks))
    return min(geometry.blocks, clusters * geometry.cluster_blocks), False


def _set_grid(activation: Activation, team: Team) -> None:
    """Kernels may name their block indices, the first one being x."""
    indices = team.geometry.block_of(team.block)
    for var, index in zip(activation.function.grid_vars, indices, strict=False):
        activation.values[var] = np.asarray(index, np.int64)


def _value(argument: Any, outside: GlobalMemory) -> Any:
    if isinstance(argument, Pointer):
        return outside.pointers(argument)
    if isinstance(argument, Buffer):
        shape, strides = (tuple(np.array([i]) for i in numbers) for numbers in (argument.shape, argument.strides))
        return View(outside.pointers(argument.pointer), shape, strides, argument.lanes)
    return np.asarray(argument)[None]

"""The memory that a call keeps, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet import dims
from hidet.dims import Dim
from hidet.errors import HidetError
from hidet.runtime.plan import plan_memory
from hidet.runtime.program import HostProgram
from hidet.runtime.stages import split_stages


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A temporary tensor: where it lies in the arena, its bytes, and the first and last task that need it."""

    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of a call.

    arena: bytes of temporary memory that are kept between calls, and needed: the most that is in use at once.
    constants: bytes of weights that belong to the compiled model. blocks: what lies in the arena. steps: how many tasks
    and other steps there are.
    """

    arena: int
    needed: int
    constants: int
    blocks: tuple[MemoryBlock, ...]
    steps: int

    @property
    def over_time(self) -> tuple[int, ...]:
        """Bytes in use at each step."""
        return tuple(
            sum(block.nbytes for block in self.blocks if block.first <= step <= block.last)
            for step in range(self.steps)
        )


def memory_use(program: HostProgram, constants: Sequence[object], sizes: Mapping[str, int]) -> MemoryUse | None:
    """The plan for these values of symbols; None where it depends on what a call finds out.

    Programs of branches and loops have arenas of their own, which are not in it.
    """
    stages = split_stages(program)
    if len(stages) > 1:
        return None

    def value(dim: Dim) -> int:
        return max(dims.evaluate(dim, sizes), 0)

    buffers = stages[0].buffers
    try:
        nbytes = [value(buffer.nbytes) for buffer in buffers]
    except HidetError:
        return None
    plan = plan_memory([(buffer.first, buffer.last) for buffer in buffers], nbytes)
    blocks = tuple(
        MemoryBlock(offset, size, buffer.first, buffer.last)
        for buffer, size, offset in zip(buffers, nbytes, plan.offsets, strict=True)
    )
    steps = max((block.last for block in blocks), default=-1) + 1
    kept = sum(int(getattr(array, "nbytes", 0)) for array in constants)
    use = MemoryUse(plan.nbytes, 0, kept, blocks, steps)
    return MemoryUse(plan.nbytes, max(use.over_time, default=0), kept, blocks, steps)

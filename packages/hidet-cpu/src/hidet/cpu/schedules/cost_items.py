"""How long kernels take on a CPU that go through their elements once, in work items: a model in seconds.

Elements take as long as computing them or moving them does, whichever is slower. Work items are shared out to threads
whole, so that too few of them leave threads without work, and each costs its start.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet.schedule.cost import element_count
from hidet.schedule.task import Task
from hidet.target.constants import DeviceConstants

# Seconds of work below which a launch is not shared out to threads.
_SHARED = 5e-6
# Cycles of a work item besides its elements.
_ITEM = 60.0
# Multiply-adds of f32 a second of the core that schedules' estimates of elements' times are for.
_MULTIPLY_ADDS = 96e9


def task_bytes(task: Task) -> int:
    """Of a task's inputs and outputs, each moved once; symbolic extents as their hints say."""
    return sum(element_count(tensor.type.shape) * tensor.type.dtype.nbytes for tensor in (*task.inputs, *task.outputs))


@dataclass(frozen=True, slots=True)
class Work:
    """Elements, those of a work item, what each takes, and bytes that are moved.

    picoseconds: of an element whose data lie near, on a core of 3 GHz with vectors of 512 bits.
    """

    elements: int
    item_elements: int
    picoseconds: float
    nbytes: int


def items_seconds(work: Work, constants: DeviceConstants, threads: int) -> float:
    """Seconds of some work by so many threads."""
    items = max(1, -(-work.elements // work.item_elements))
    busy = work.elements * work.picoseconds * 1e-12 * _MULTIPLY_ADDS / constants.fma["float32"]
    return shared_seconds(busy, work.nbytes, items, constants, threads)


def shared_seconds(busy: float, nbytes: int, items: int, constants: DeviceConstants, threads: int) -> float:
    """Seconds of what takes one core `busy` seconds to compute and moves `nbytes`, in so many work items by so many
    threads."""
    level = constants.level_of(nbytes)
    used = min(threads, constants.cores)
    if max(busy, nbytes / level.core_bandwidth) < _SHARED:
        used = 1
    streamed = nbytes * used / min(used * level.core_bandwidth, level.device_bandwidth)
    started = items * (_ITEM * constants.cycle + constants.item)
    share = max(1 / used, -(-items // used) / items)
    return (max(busy, streamed) + started) * share + (constants.launch if used > 1 else 0.0)

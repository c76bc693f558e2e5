"""Copies by the asynchronous engine (PTX ISA: cp.async.bulk, cp.async.bulk.tensor, "Tensors")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.cuda.simulator.convert import round_tf32
from hidet.cuda.simulator.sync import ASYNC_FENCE
from hidet.cuda.simulator.tensor_map import TensorMap, tensor_map
from hidet.cuda.simulator.wgmma import swizzled
from hidet.dtypes import DType
from hidet.gpu.simulator.copies import Background, Queue, Reading
from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site, immediate
from hidet.gpu.simulator.memory import Memory, Pointers, RowError, element_starts
from hidet.gpu.simulator.phases import Phases, places

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Box:
    """Elements that one instruction copies, in the order in which they lie in shared memory.

    memory: of the tensor. starts: where they lie in it, of those `inside` the tensor. offsets: bytes of each element
    behind the target, before the swizzle.
    """

    map: TensorMap
    memory: Memory
    starts: Array
    inside: Array
    offsets: Array

    @property
    def nbytes(self) -> int:
        """Bytes in shared memory, those outside of the tensor included."""
        return len(self.inside) * self.map.dtype.nbytes


def _map_of(site: Site, place: Pointers, row: int) -> TensorMap:
    memory, segment, offset = places(place, site.count)[row]
    if offset % 64 or memory.address % 16 or offset + 128 > memory.size:
        raise RowError(row, f"{memory.name} at byte {offset} holds no tensor map: 128 bytes at a multiple of 64")
    start = segment * memory.stride + offset
    return tensor_map(memory.data[start : start + 128].tobytes())


def _box(site: Site, described: TensorMap, indices: list[Array]) -> Box:
    """The box of elements with `indices`: one array an axis, the fastest first, with an entry for each element."""
    dtype = described.dtype
    inside = np.ones(len(indices[0]), np.bool_)
    starts: Array = np.zeros(len(indices[0]), np.int64)
    for index, size, stride in zip(indices, described.sizes, (dtype.nbytes, *described.strides), strict=True):
        inside &= (index >= 0) & (index < size)
        starts += index * stride
    pointers = site.wave.outside.at(described.address, dtype)
    memory = pointers.memories[0]
    starts = starts[inside] + int(pointers.offset[0])
    if len(starts) and (starts.min() < 0 or starts.max() + dtype.nbytes > memory.size):
        raise RowError(0, f"the tensor of a map reaches beyond {memory.name}, which has {memory.size} bytes")
    offsets = np.arange(len(inside)) * dtype.nbytes
    return Box(described, memory, starts, inside, offsets)


def _tile(site: Site, described: TensorMap, coordinates: list[int]) -> Box:
    if described.pixels or len(coordinates) != len(described.sizes):
        raise RowError(
            0, f"a box of {len(coordinates)} axes is copied by a map of {len(described.sizes)}, or of pixels"
        )
    axes = [
        start + np.arange(extent) * step
        for start, extent, step in zip(coordinates, described.box, described.element_strides, strict=True)
    ]
    mesh = np.meshgrid(*reversed(axes), indexing="ij")
    return _box(site, described, [index.ravel() for index in reversed(mesh)])


def _columns(site: Site, described: TensorMap, coordinates: list[int], offsets: list[int]) -> Box:
    """Pixels in the order of the fastest spatial axis first, from corner to corner, then the next image."""
    if not described.pixels:
        raise RowError(0, "columns of pixels are copied by a map of boxes")
    spatial = range(1, len(coordinates) - 1)
    first = [described.lower[axis - 1] for axis in spatial]
    last = [described.sizes[axis] - 1 + described.upper[axis - 1] for axis in spatial]
    position, found = list(coordinates[1:]), []
    for _ in range(described.pixels):
        found.append([p + (offsets[i] if i < len(offsets) else 0) for i, p in enumerate(position)])
        for axis in range(len(position)):
            if axis == len(spatial):
                position[axis] += 1
                break
            position[axis] += described.element_strides[axis + 1]
            if position[axis] <= last[axis]:
                break
            position[axis] = first[axis]
    pixels, channels = np.array(found), coordinates[0] + np.arange(described.box[0])
    indices = [np.tile(channels, len(pixels))]
    indices += [np.repeat(pixels[:, axis], len(channels)) for axis in range(pixels.shape[1])]
    return _box(site, described, indices)


def _read_global(site: Site, row: int, box: Box) -> Array:
    """The bytes of a box, [elements, bytes], zero outside of the tensor."""
    nbytes = box.map.dtype.nbytes
    data = np.zeros((len(box.inside), nbytes), np.uint8)
    if len(box.starts):
        units = box.memory.shadow.units(box.starts, nbytes)
        agents = np.full(len(units), site.agents[row])
        conflict = box.memory.shadow.read(units, agents, site.wave.clocks, site.tick())
        if conflict is not None:
            raise site.wave.conflict_error(box.memory, conflict, np.full(len(units), row), "read")
        data[box.inside] = box.memory.data[box.starts[:, None] + np.arange(nbytes)]
    if box.map.dtype is dtypes.tf32:
        data = round_tf32(data.view(np.float32)).view(np.uint8)
    return data


def _swizzled_bytes(box: Box, target: int) -> Array:
    """Bytes behind `target`, an offset in its memory, at which each element of the box lies."""
    if box.map.swizzle > 16 and target % 128:
        raise RowError(0, f"a swizzled box lies at byte {target}, expected a multiple of 128")
    return swizzled(target + box.offsets, box.map.swizzle)


# --- to shared memory ------------------------------------------------------------------------------------------------


def _send(site: Site, row: int, target: tuple[Memory, int, Array], data: Array, barrier: Phases, nbytes: int) -> None:
    """Start bringing `data`, [elements, bytes], to segment and byte offsets of a memory; `nbytes` are counted."""
    memory, segment, offsets = target
    size = data.shape[1]
    element_starts(memory, np.full(len(offsets), row), np.full(len(offsets), segment), offsets, size, 1, 1)
    starts = segment * memory.stride + offsets
    units = memory.shadow.units(starts, size)
    wave, agent = site.wave, site.agents[row : row + 1]
    conflict = memory.shadow.write(units, np.repeat(agent, len(units)), wave.clocks, site.tick())
    if conflict is not None:
        raise wave.conflict_error(memory, conflict, np.full(len(units), row), "written")
    memory.shadow.expect(units)
    sent = wave.clocks.release(agent, wave.timeline.now)
    engine = (wave.first + segment) * wave.clocks.agents_per_block + wave.geometry.threads

    stmt = site.activation.stmt

    def land() -> None:
        stamp = wave.timeline.tick(stmt)
        memory.data[starts[:, None] + np.arange(size)] = data
        memory.shadow.land(units)
        memory.shadow.note_write(units, np.full(len(units), engine), stamp)
        wave.clocks.note(sent, engine, stamp)
        wave.phases.count_bytes(barrier, nbytes, sent)

    barrier.landing.append(land)
    wave.scheduler.progress += 1


def _load_box(site: Site, row: int, target: Pointers, barrier: Pointers, box: Box, blocks: int | None) -> None:
    """Bring a box to shared memory: of the caller's block, or of every block of the cluster whose bit is set."""
    memory, segment, offset = places(target, site.count)[row]
    at_memory, at_segment, at_offset = places(barrier, site.count)[row]
    data = _read_global(site, row, box)
    size = site.team.geometry.cluster_blocks
    base = segment // size * size
    segments = [segment] if blocks is None else [base + rank for rank in range(size) if blocks >> rank & 1]
    if blocks is not None and blocks >> size:
        raise RowError(row, f"blocks {blocks:#x} of the cluster are named, which has {size} blocks")
    for part in segments:
        where = at_segment if blocks is None else part
        phases = site.wave.phases.at(at_memory, where, at_offset, row)
        _send(site, row, (memory, part, _swizzled_bytes(box, offset)), data, phases, box.nbytes)


def _tensor_load(rank: int, columns: bool, multicast: bool) -> Meaning:
    def run(site: Site, target: Pointers, place: Pointers, barrier: Pointers, *numbers: Array) -> None:
        values = [spread(number, site.count) for number in numbers]
        site.wave.phases.find(site, barrier)
        extra = rank - 2 if columns else 0
        for row in range(site.count):
            described = _map_of(site, place, row)
            coordinates = [int(value[row]) for value in values[:rank]]
            offsets = [int(value[row]) for value in values[rank : rank + extra]]
            box = _columns(site, described, coordinates, offsets) if columns else _tile(site, described, coordinates)
            blocks = int(values[rank + extra][row]) if multicast else None
            _load_box(site, row, target, barrier, box, blocks)

    return Meaning(run)


def _bulk_load(
    site: Site, target: Pointers, source: Pointers, nbytes: Array, barrier: Pointers, *policy: Array
) -> None:
    amounts = spread(nbytes, site.count)
    for row, phases in enumerate(site.wave.phases.find(site, barrier)):
        size = _checked_amount(row, int(amounts[row]))
        lanes = site.lanes.only(np.arange(site.count) == row)
        one = _row(source, row, site.count).cast(dtypes.u8)
        data = site.wave.load(site.activation, lanes, one, dtypes.u8, size, vector=True)
        memory, segment, offset = places(target, site.count)[row]
        _send(site, row, (memory, segment, offset + np.arange(size)), data.reshape(size, 1), phases, size)


def _checked_amount(row: int, nbytes: int) -> int:
    if nbytes <= 0 or nbytes % 16:
        raise RowError(row, f"{nbytes} bytes are copied, expected a multiple of 16")
    return nbytes


def _row(pointers: Pointers, row: int, count: int) -> Pointers:
    """The pointer of one thread."""
    memory, segment, offset = places(pointers, count)[row]
    return Pointers((memory,), None, np.array([segment]), np.array([offset]), pointers.dtype)


# --- from shared memory ----------------------------------------------------------------------------------------------


def _watch(site: Site, row: int, memory: Memory, starts: Array, nbytes: int) -> Reading:
    """Shared memory that is read in the background from now on."""
    element_starts(memory, np.full(len(starts), row), np.zeros(1, np.int64), starts % memory.stride, nbytes, 1, 1)
    units = memory.shadow.units(starts, nbytes)
    stamp = site.tick()
    agents = np.full(len(units), site.agents[row])
    conflict = memory.shadow.read(units, agents, site.wave.clocks, stamp)
    if conflict is not None:
        raise site.wave.conflict_error(memory, conflict, np.full(len(units), row), "read")
    site.wave.copies.require_fence(memory, units, ASYNC_FENCE)
    return Reading(memory, units, stamp)


def _bring_back(
    site: Site, row: int, source: tuple[Memory, Array], target: tuple[Memory, Array], dtype: DType, adds: bool
) -> None:
    """Start writing, or adding, elements at byte positions of shared memory to those of global memory."""
    (memory, starts), (outside, goals) = source, target
    reading = _watch(site, row, memory, starts, dtype.nbytes)
    wave, agent = site.wave, int(site.agents[row])

    def finish() -> None:
        stamp = wave.timeline.tick(site.activation.stmt)
        units = outside.shadow.units(goals, dtype.nbytes)
        agents = np.full(len(units), agent)
        conflict = outside.shadow.write(units, agents, wave.clocks, stamp, atomic=adds)
        if conflict is not None:
            raise wave.conflict_error(outside, conflict, np.full(len(units), row), "written")
        found, view = memory.view(dtype.numpy())[starts // dtype.nbytes], outside.view(dtype.numpy())
        index = goals // dtype.nbytes
        view[index] = view[index] + found if adds else found

    queue = wave.copies.bulk.setdefault(agent, Queue())
    queue.open.append(Background([reading], finish, site.activation.stmt))


def _tensor_store(adds: bool) -> Meaning:
    def run(site: Site, place: Pointers, source: Pointers, *numbers: Array) -> None:
        values = [spread(number, site.count) for number in numbers]
        for row in range(site.count):
            box = _tile(site, _map_of(site, place, row), [int(value[row]) for value in values])
            memory, segment, offset = places(source, site.count)[row]
            starts = segment * memory.stride + _swizzled_bytes(box, offset)[box.inside]
            if len(starts):
                _bring_back(site, row, (memory, starts), (box.memory, box.starts), box.map.dtype, adds)

    return Meaning(run)


def _bulk_store(dtype: DType, adds: bool) -> Meaning:
    def run(site: Site, target: Pointers, source: Pointers, nbytes: Array) -> None:
        amounts = spread(nbytes, site.count)
        for row in range(site.count):
            steps = np.arange(0, _checked_amount(row, int(amounts[row])), dtype.nbytes)
            memory, segment, offset = places(source, site.count)[row]
            outside, _, goal = places(target, site.count)[row]
            if goal < 0 or goal + int(amounts[row]) > outside.size:
                raise RowError(row, f"{outside.name} has {outside.size} bytes, but bytes from {goal} on are written")
            starts = segment * memory.stride + offset + steps
            _bring_back(site, row, (memory, starts), (outside, goal + steps), dtype, adds)

    return Meaning(run)


def _commit(site: Site) -> None:
    for agent in site.agents:
        site.wave.copies.bulk.setdefault(int(agent), Queue()).commit()


def _wait(site: Site, groups: Array) -> None:
    """Reading the source and writing the target are one step here, so both kinds of waiting are the same."""
    for agent in site.agents:
        queue = site.wave.copies.bulk.get(int(agent))
        if queue is not None:
            site.wave.copies.finish_queue(queue, immediate(groups))


_NOTHING = Meaning(lambda site, *arguments: None)

TMA: dict[str, Meaning] = {
    **{
        f"cuda.tensor_load{kind}{suffix}.{rank}d": _tensor_load(rank, bool(kind), "multicast" in suffix)
        for kind, least in (("", 1), ("_im2col", 3))
        for suffix in ("", "_hint", "_multicast", "_multicast_hint")
        for rank in range(least, 6)
    },
    **{f"cuda.tensor_store.{rank}d": _tensor_store(adds=False) for rank in range(1, 6)},
    **{f"cuda.tensor_reduce_add.{rank}d": _tensor_store(adds=True) for rank in range(1, 6)},
    **{f"cuda.tensor_prefetch.{rank}d": _NOTHING for rank in range(1, 6)},
    "cuda.prefetch_tensor_map": _NOTHING,
    "cuda.bulk_prefetch": _NOTHING,
    "cuda.bulk_load": Meaning(_bulk_load),
    "cuda.bulk_load_hint": Meaning(_bulk_load),
    "cuda.bulk_store": _bulk_store(dtypes.u8, adds=False),
    **{
        f"cuda.bulk_reduce_add.{dtype.short}": _bulk_store(dtype, adds=True)
        for dtype in (dtypes.f32, dtypes.f16, dtypes.bf16, dtypes.i32, dtypes.u32)
    },
    "cuda.bulk_commit": Meaning(_commit),
    "cuda.bulk_wait": Meaning(_wait),
    "cuda.bulk_wait_read": Meaning(_wait),
}

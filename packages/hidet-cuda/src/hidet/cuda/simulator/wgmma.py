"""Products of a warp group in the background (PTX ISA: wgmma.mma_async, "Matrix Descriptor", "Shared Memory Layout").

A product is computed at once, but its registers count as on their way until it is waited for, and what it reads of
shared memory must stay until then.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hidet.cuda.intrinsics.wgmma import WGMMA as ROWS
from hidet.cuda.simulator.fragments import accumulator, gathered, operand_a, require_groups, scattered
from hidet.cuda.simulator.mma import registers
from hidet.cuda.simulator.product import multiply_add, operand_values
from hidet.cuda.simulator.sync import ASYNC_FENCE
from hidet.gpu.simulator.bits import from_bytes, to_bytes
from hidet.gpu.simulator.clocks import NEVER
from hidet.gpu.simulator.copies import Background, Queue, Reading
from hidet.gpu.simulator.lanes import spread
from hidet.gpu.simulator.meaning import Meaning, Site, immediate
from hidet.gpu.simulator.memory import Memory, Pointers, RowError
from hidet.ir.intrinsic import MatrixShape

Array = np.ndarray[Any, Any]

GROUP = 128
_WIDTHS = {0: 16, 1: 128, 2: 64, 3: 32}


def swizzled(addresses: Array, width: int) -> Array:
    """Addresses in shared memory after the swizzle of `width` bytes: bits 7 to 9 are added to bits 4 to 6, modulo 2."""
    return np.asarray(addresses ^ ((addresses >> 3) & {16: 0, 32: 0x10, 64: 0x30, 128: 0x70}[width]))


def operand_addresses(descriptor: int, rows: int, k: int, nbytes: int, k_is_slow: bool) -> Array:
    """Where the elements of an operand lie in shared memory, [rows, k]; rows are those of A, or columns of B."""
    start = (descriptor & 0x3FFF) << 4
    leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (16, 32))
    width = _WIDTHS[descriptor >> 62 & 3]
    row, column = np.arange(rows)[:, None], np.arange(k)[None, :]
    if k_is_slow:
        byte = row * nbytes
        inside = column % 8 * width + byte % width
        across, along = (stride, leading) if width == 16 else (leading, stride)
        addresses = start + byte // width * across + column // 8 * along + inside
    else:
        byte = column * nbytes
        inside = row % 8 * width + (byte % 16 if width == 16 else byte)
        addresses = start + row // 8 * stride + inside + (byte // 16 * leading if width == 16 else 0)
    return swizzled(np.asarray(addresses, np.int64), width)


def _shared_operand(
    site: Site, group: int, descriptor: Array, shape: tuple[int, int], row: MatrixShape, which: str, k_is_slow: bool
) -> tuple[Array, Reading]:
    """An operand of a warp group from shared memory, and what it reads."""
    words = spread(descriptor, site.count)[group * GROUP : (group + 1) * GROUP]
    if (words != words[0]).any():
        raise RowError(group * GROUP, "threads of a warp group give different descriptors")
    dtype = row.a if which == "a" else row.b
    addresses = operand_addresses(int(words[0]), shape[0], shape[1], dtype.nbytes, k_is_slow)
    memory, _ = site.wave.shared_at(int(addresses.min()))
    last = int(addresses.max()) + dtype.nbytes - memory.address
    if last > memory.size:
        raise RowError(
            group * GROUP, f"operand {which} reaches byte {last - 1} of {memory.name}, which has {memory.size} bytes"
        )
    slot = int(site.activation.blocks(site.lanes)[group * GROUP])
    starts = (slot * memory.stride + addresses - memory.address).ravel()
    units = memory.shadow.units(starts, dtype.nbytes)
    data = memory.data[starts[:, None] + np.arange(dtype.nbytes)]
    # Rows that nobody wrote are for results that nobody uses: they are NaN, of bytes that are all ones. A part of a row
    # is a mistake, and so is memory in which nothing was written yet.
    rows: Array = np.any(memory.shadow.written(units).reshape(shape[0], -1), axis=1)
    if not rows.any():
        whole = memory.shadow.units(np.array([slot * memory.stride]), memory.size)
        rows[:] = not memory.shadow.written(whole).any()
    used = np.repeat(rows, shape[1])
    data[~used] = 0xFF
    reading = _note_read(site, group, memory, units[used])
    return operand_values(data, dtype).reshape(shape), reading


def _note_read(site: Site, group: int, memory: Memory, units: Array) -> Reading:
    stamp = site.tick()
    agents = np.full(len(units), site.agents[group * GROUP])
    conflict = memory.shadow.read(units, agents, site.wave.clocks, stamp)
    if conflict is not None:
        raise site.wave.conflict_error(memory, conflict, np.full(len(units), group * GROUP), "read")
    site.wave.copies.require_fence(memory, units, ASYNC_FENCE)
    return Reading(memory, units, stamp)


def _require_fence(site: Site, memory: Memory, segment: Array) -> None:
    """Registers that ordinary code wrote are ordered before products by a fence; so is a group's first product."""
    for first in range(0, site.count, GROUP):
        fenced = site.wave.copies.registers_fenced.get(int(site.agents[first]), NEVER)
        stored = int(memory.stored[segment[first : first + GROUP]].max())
        if fenced == NEVER or stored > fenced:
            what = "is used by a product before any" if fenced == NEVER else "was written after the last"
            raise RowError(
                first,
                f"{memory.name} {what} cuda.wgmma_fence of the warp group",
                hint="call cuda.wgmma_fence before the products",
            )


def _fence(site: Site) -> None:
    require_groups(site, GROUP)
    stamp = site.tick()
    for agent in site.agents[::GROUP]:
        site.wave.copies.registers_fenced[int(agent)] = stamp


def _accumulators(site: Site, d: Pointers, nbytes: int) -> tuple[Memory, Array, Array]:
    """The memory of the result's registers, the bytes of each caller, and their units."""
    ((memory, _, segment, offset),) = d.parts(site.count)
    _require_fence(site, memory, segment)
    if (offset + nbytes > memory.size).any() or (offset < 0).any():
        raise RowError(0, f"{memory.name} has {memory.size} bytes, but the result takes {nbytes} from byte {offset[0]}")
    starts = segment * memory.stride + offset
    return memory, starts[:, None] + np.arange(nbytes), memory.shadow.units(starts, nbytes)


def _product(shape: MatrixShape, from_registers: bool) -> Meaning:
    n, k, out = shape.n, shape.k, shape.accumulator
    per_thread = 64 * n // GROUP

    def run(site: Site, d: Pointers, a: Any, descriptor_b: Array, accumulate: Array, *slow: Array) -> None:
        require_groups(site, GROUP)
        slow_a, slow_b = (False, False) if not slow else _orders(slow)
        memory, index, units = _accumulators(site, d, per_thread * out.nbytes)
        adds = spread(accumulate, site.count)
        if adds.any() and not memory.shadow.is_written(units[adds]):
            raise RowError(0, f"{memory.name} is added to, but nothing wrote it", hint="give accumulate=False first")
        places = accumulator(16, n)
        before = gathered(from_bytes(memory.data[index], out), places, (16, n)).reshape(-1, 64, n)
        before = np.where(adds[::GROUP, None, None], before, np.zeros(1, before.dtype))
        held = None
        if from_registers:
            ((source, _, segment, _),) = a.parts(site.count)
            _require_fence(site, source, segment)
            held = gathered(registers(site, a, shape.a, 64 * k // GROUP), operand_a(16, k, shape.a.nbytes), (16, k))
            held = held.reshape(-1, 64, k)
        results = []
        for group, queue in enumerate(_queues(site)):
            reading = []
            if held is not None:
                left = held[group]
            else:
                left, read = _shared_operand(site, group, a, (64, k), shape, "a", slow_a)
                reading.append(read)
            right, read = _shared_operand(site, group, descriptor_b, (n, k), shape, "b", slow_b)
            reading.append(read)
            results.append(multiply_add(left, right.T, before[group], out))
            own = units[group * GROUP : (group + 1) * GROUP]
            land = functools.partial(memory.shadow.land, own)
            queue.open.append(Background(reading, land, site.activation.stmt, (memory, own)))
        memory.data[index] = to_bytes(scattered(np.stack(results).reshape(-1, 16, n), places), out)
        memory.shadow.expect(units)

    return Meaning(run)


def _orders(slow: tuple[Array, ...]) -> tuple[bool, bool]:
    """Whether k is the slower axis of A and of B; only B is asked about when A lies in registers."""
    flags = [bool(immediate(flag)) for flag in slow]
    return (False, flags[0]) if len(flags) == 1 else (flags[0], flags[1])


def _queues(site: Site) -> list[Queue]:
    """The products of each of the callers' warp groups; those that run together here may part, as where a block has a
    shorter sum than another one."""
    return [site.wave.copies.products.setdefault(int(agent), Queue()) for agent in site.agents[::GROUP]]


def _wait(site: Site, groups: Array) -> None:
    require_groups(site, GROUP)
    for queue in _queues(site):
        site.wave.copies.finish_queue(queue, immediate(groups))


def _commit(site: Site) -> None:
    require_groups(site, GROUP)
    for queue in _queues(site):
        queue.commit()


def _from_registers(name: str) -> bool:
    return name.startswith("cuda.wgmma_registers")


WGMMA: dict[str, Meaning] = {
    **{name: Meaning(lambda site, d: None) for name in ROWS if name.startswith("cuda.wgmma_results")},
    **{name: _product(row.matrix, _from_registers(name)) for name, row in ROWS.items() if row.matrix is not None},
    "cuda.wgmma_fence": Meaning(_fence),
    "cuda.wgmma_commit": Meaning(_commit),
    "cuda.wgmma_wait": Meaning(_wait),
}

"""Blocks that run at the same time: their memory, every access to it, and what orders accesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet.dtypes import DType
from hidet.errors import DataRace, LaunchError
from hidet.gpu.simulator.barriers import Barriers
from hidet.gpu.simulator.clocks import Clocks, Timeline
from hidet.gpu.simulator.copies import Copies
from hidet.gpu.simulator.flags import Flags
from hidet.gpu.simulator.lanes import Lanes, spread
from hidet.gpu.simulator.memory import (
    NOWHERE,
    SHARED_ALIGNMENT,
    Memory,
    Pointers,
    RowError,
    element_starts,
)
from hidet.gpu.simulator.phases import PhaseBarriers
from hidet.gpu.simulator.report import statement_text
from hidet.gpu.simulator.strand import Scheduler
from hidet.gpu.simulator.team import WARP, Geometry
from hidet.ir.expr import Var
from hidet.ir.memory import AddressSpace, Block, Pointer
from hidet.ir.types import MemorySpace

if TYPE_CHECKING:
    from hidet.gpu.simulator.activation import Activation
    from hidet.gpu.simulator.program import Program
    from hidet.gpu.simulator.shadow import Conflict
    from hidet.gpu.simulator.traffic import Traffic

Array = np.ndarray[Any, Any]

ZERO = np.zeros(1, np.int64)


class GlobalMemory:
    """Arrays from outside that a launch reaches, and its time. What is remembered of accesses ends with the launch."""

    def __init__(self, space: AddressSpace, traffic: Traffic | None) -> None:
        self.timeline = Timeline()
        self.traffic = traffic
        self._space = space
        self._memories: dict[int, Memory] = {}

    def memory(self, block: Block, unit: int) -> Memory:
        """The memory of an array."""
        known = self._memories.get(block.address)
        if known is None:
            known = Memory(block.name, "global", block.data.size, 1, unit, block.address, block.data)
            self._memories[block.address] = known
        return known

    def pointers(self, pointer: Pointer) -> Pointers:
        """A pointer of the host, for all threads."""
        if pointer.block is None:
            return Pointers((NOWHERE,), None, ZERO, np.array([pointer.offset]), pointer.dtype)
        memory = self.memory(pointer.block, pointer.dtype.nbytes)
        return Pointers((memory,), None, ZERO, np.array([pointer.offset]), pointer.dtype)

    def at(self, address: int, dtype: DType) -> Pointers:
        """The pointer to an address that a program computed."""
        return self.pointers(self._space.pointer(address, dtype))


class Wave:
    """Blocks `first` to `first + blocks` of a launch, at the same time."""

    def __init__(
        self, program: Program, geometry: Geometry, outside: GlobalMemory, first: int, blocks: int, domain: int
    ) -> None:
        self.program = program
        self.geometry = geometry
        self.outside = outside
        self.timeline = outside.timeline
        self.first = first
        self.blocks = blocks
        self.clocks = Clocks(geometry.threads, first, blocks, domain)
        self.scheduler = Scheduler()
        self.barriers = Barriers(self)
        self.copies = Copies(self)
        self.flags = Flags(self)
        self.phases = PhaseBarriers(self)
        self._shared: dict[Var | None, Memory] = {}
        self._shared_bytes = 0

    def finish(self) -> None:
        """All threads have ended. LaunchError if something is still on its way."""
        self.copies.check_finished()
        name = self.phases.unfinished()
        if name is not None:
            raise LaunchError(
                f"the kernel ends with copies on their way that report to the barrier at {name}",
                hint="wait for the barrier's phase before the kernel ends",
            )

    # --- memory ------------------------------------------------------------------------------------------------------

    def shared(self, var: Var | None, nbytes: int, unit: int) -> Memory:
        """The shared array `var` of every block; the same one each time it is declared. None: what the launch adds."""
        known = self._shared.get(var)
        if known is None:
            name = "dynamic shared memory" if var is None else var.name
            known = Memory(name, "shared", nbytes, self.blocks, unit, self._shared_bytes)
            self._shared[var] = known
            self._shared_bytes += -(-nbytes // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
        return known

    def shared_at(self, address: int) -> tuple[Memory, int]:
        """The shared array that an address of the window lies in, and the offset. LaunchError where none lies."""
        for memory in self._shared.values():
            if memory.address <= address < memory.address + max(memory.size, 1):
                return memory, address - memory.address
        raise LaunchError(f"no shared array lies at address {address:#x} of shared memory")

    def pointers(self, addresses: Array, dtype: DType, space: MemorySpace, slots: Array) -> Pointers:
        """Numbers as addresses. LaunchError where no memory lies."""
        if space == "shared":
            found = [self.shared_at(int(address)) for address in addresses]
            memories = tuple(dict.fromkeys(memory for memory, _ in found))
            which = np.array([memories.index(memory) for memory, _ in found])
            return Pointers(memories, which, slots, np.array([offset for _, offset in found]), dtype)
        made = [self.outside.at(int(address), dtype) for address in addresses]
        memories = tuple(dict.fromkeys(pointers.memories[0] for pointers in made))
        which = np.array([memories.index(pointers.memories[0]) for pointers in made])
        offset = np.array([int(pointers.offset[0]) for pointers in made])
        return Pointers(memories, None if len(memories) == 1 else which, ZERO, offset, dtype)

    # --- accesses ----------------------------------------------------------------------------------------------------

    def load(
        self,
        activation: Activation,
        lanes: Lanes,
        pointers: Pointers,
        dtype: DType,
        count: int,
        *,
        vector: bool = False,
        atomic: bool = False,
    ) -> Array:
        """`count` elements for each thread: [rows] or, if `vector`, [rows, count]; one row when all read one place."""
        rows = _rows(pointers, lanes.count)
        agents = activation.team.agent[lanes.index]
        stamp = self.timeline.tick(activation.stmt)
        result: Array = np.empty((rows, count), dtype.numpy())
        for memory, chosen, segment, offset in pointers.parts(rows):
            index, units = _elements(memory, chosen, segment, offset, dtype, count)
            if rows == 1 and lanes.count > 1 and memory.space != "local":
                units = np.broadcast_to(units, (lanes.count, units.shape[1]))
                chosen = np.arange(lanes.count)
            conflict = memory.shadow.read(units, agents[chosen], self.clocks, stamp, atomic)
            if conflict is not None:
                raise self.conflict_error(memory, conflict, chosen, "read")
            self.note_traffic(activation, lanes, memory, chosen, index[:, 0] * dtype.nbytes, dtype.nbytes * count)
            found = memory.view(dtype.numpy())[index]
            if dtype.is_bool:
                found = found.view(np.uint8) != 0
            if rows == len(found):
                result = found
            else:
                result[chosen] = found
        return result if vector else result[:, 0]

    def store(
        self,
        activation: Activation,
        lanes: Lanes,
        pointers: Pointers,
        dtype: DType,
        values: Array,
        *,
        atomic: bool = False,
    ) -> None:
        """Write rows of values, [rows] or [rows, count]. Several threads may write one place only with one value."""
        rows = max(_rows(pointers, lanes.count), len(values))
        whole = spread(values if values.ndim == 2 else values[:, None], rows)
        agents = activation.team.agent[lanes.index]
        stamp = self.timeline.tick(activation.stmt)
        self.scheduler.progress += 1
        for memory, chosen, segment, offset in pointers.parts(rows):
            index, units = _elements(memory, chosen, segment, offset, dtype, whole.shape[1])
            conflict = memory.shadow.write(units, agents[chosen], self.clocks, stamp, atomic)
            if conflict is not None:
                raise self.conflict_error(memory, conflict, chosen, "written")
            view, written = memory.view(dtype.numpy()), whole if rows == len(chosen) else whole[chosen]
            view[index] = written
            if memory.space == "local":
                memory.stored[segment] = stamp
            size = dtype.nbytes * whole.shape[1]
            self.note_traffic(activation, lanes, memory, chosen, index[:, 0] * dtype.nbytes, size)
            if memory.space != "local" and len(chosen) > 1 and not atomic:
                self._check_one_value(memory, view, index, written, agents[chosen], chosen)

    def change(
        self,
        activation: Activation,
        lanes: Lanes,
        pointers: Pointers,
        dtype: DType,
        combine: Callable[[Array, Array], Array],
    ) -> Array:
        """Replace old by combine(old, rows) as one step of each thread, lower threads first; gives what was old.

        combine takes values, and the numbers of the rows they belong to.
        """
        agents = activation.team.agent[lanes.index]
        stamp = self.timeline.tick(activation.stmt)
        self.scheduler.progress += 1
        result: Array = np.empty(lanes.count, dtype.numpy())
        for memory, chosen, segment, offset in pointers.parts(lanes.count):
            index, units = _elements(memory, chosen, segment, offset, dtype, 1)
            for verb, note in (("read", memory.shadow.read), ("written", memory.shadow.write)):
                conflict = note(units, agents[chosen], self.clocks, stamp, atomic=True)
                if conflict is not None:
                    raise self.conflict_error(memory, conflict, chosen, verb)
            view, place = memory.view(dtype.numpy()), index[:, 0]
            if len(np.unique(place)) == len(place):
                result[chosen] = view[place]
                view[place] = combine(result[chosen], chosen)
                continue
            for row, at in zip(chosen, place, strict=True):
                result[row] = view[at]
                view[at : at + 1] = combine(view[at : at + 1], np.array([row]))
        self.flags.touch(agents, pointers, writes=True)
        return result

    def note_traffic(
        self, activation: Activation, lanes: Lanes, memory: Memory, chosen: Array, starts: Array, nbytes: int
    ) -> None:
        """Count an access of `nbytes` at `starts` by the threads in rows `chosen`, if somebody wants to know."""
        traffic = self.outside.traffic
        if traffic is not None and memory.space in ("shared", "global"):
            threads = lanes.index[chosen]
            team = activation.team
            where = np.broadcast_to(starts, (len(threads),))
            text = statement_text(activation.stmt)
            traffic.note(text, memory.space, team.warp[threads], team.thread[threads] % WARP, where, nbytes)

    def _check_one_value(
        self, memory: Memory, view: Array, index: Array, written: Array, agents: Array, chosen: Array
    ) -> None:
        kept = view[index]
        same = np.ascontiguousarray(kept).view(np.uint8) == np.ascontiguousarray(written).view(np.uint8)
        if same.all():
            return
        row, column = (int(i) for i in np.argwhere(~same.reshape(*index.shape, -1).all(axis=2))[0])
        other = int(np.argwhere(index == index[row, column])[-1][0])
        byte = int(index[row, column]) * view.itemsize % max(memory.stride, 1)
        raise RowError(
            int(chosen[row]),
            f"data race: {memory.name}, byte {byte}, is written at the same time by "
            f"{self.geometry.describe(int(agents[other]))}, with another value",
            DataRace,
        )

    def conflict_error(self, memory: Memory, conflict: Conflict, chosen: Array, verb: str) -> RowError:
        """What a conflict means, for the thread that met it."""
        where = f"{memory.name}, byte {conflict.byte % max(memory.stride, 1)},"
        row = int(chosen[conflict.row])
        if conflict.kind == "unwritten":
            return RowError(row, f"{where} is read, but nothing wrote it")
        if conflict.kind == "pending":
            return RowError(
                row,
                f"{where} is {verb}, but an asynchronous copy to it has not been waited for",
                hint="wait for the copy's group or barrier, then let the other threads know by a barrier",
            )
        verb_of_other = "writes" if conflict.other_wrote else "reads"
        return RowError(
            row,
            f"data race: {where} is {verb}, and {self.geometry.describe(conflict.other)} {verb_of_other} it in "
            f"{statement_text(self.timeline.statement(conflict.stamp))}; nothing orders the two",
            DataRace,
            hint="put a barrier between them that both threads come to",
        )


def _rows(pointers: Pointers, count: int) -> int:
    """1 when all threads point to one place."""
    arrays = [pointers.segment, pointers.offset, *(() if pointers.which is None else (pointers.which,))]
    return 1 if all(len(array) == 1 for array in arrays) else count


def _elements(
    memory: Memory, chosen: Array, segment: Array, offset: Array, dtype: DType, count: int
) -> tuple[Array, Array]:
    """Indices of the elements in `memory.view`, and their units in its shadow, a row an access."""
    item = dtype.nbytes
    size = item * count
    # Vectors of a power of two of at most 16 bytes are one instruction, which wants the address aligned to all of it.
    is_one = size <= 16 and count & (count - 1) == 0 and memory.space != "local"
    align = size if is_one else item
    starts = element_starts(memory, chosen, segment, offset, item, count, align)
    first = starts // item
    index = first[:, None] if count == 1 else first[:, None] + np.arange(count)
    return index, memory.shadow.units(starts, size)

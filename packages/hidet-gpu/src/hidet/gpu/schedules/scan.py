"""Scans (cumulative sums, products, extremes) along any axis.

Rows whose elements are neighbours are taken by a warp or a block each, rows that lie side by side by a thread each. Few
long rows are cut into parts, so that they keep the device busy:

    of each part of a row: what it reduces to             many blocks
    of each row: what lies before each of its parts       few
    for each part of a row: results of its elements       many blocks

Scans of f32 run in f32: rounding errors add up along a chunk and from chunk to chunk only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hidet import dims
from hidet.compute.definition import Operand
from hidet.context import CompileContext
from hidet.dims import Dim
from hidet.gpu.schedules.cost_streams import scan_seconds
from hidet.gpu.schedules.exchange import WARP, block_number, has_warps, thread_in_block
from hidet.gpu.schedules.items import decode_item, word_for
from hidet.gpu.schedules.occupancy import per_device
from hidet.gpu.schedules.program import ProgramBuilder
from hidet.gpu.schedules.scan_kernel import Chunks, ChunkWalk
from hidet.graph.types import contiguous_strides
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Launch
from hidet.ir.visit import accesses
from hidet.schedule.affine import affine_offset
from hidet.schedule.cost import element_count, extent_estimate
from hidet.schedule.device_constants import known_constants
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.rule import Match, Program, ScheduleRule
from hidet.schedule.scans import ScanOutput, ScanProgram, scan_program
from hidet.schedule.space import Constraint, Knob, Space
from hidet.schedule.task import Task
from hidet.target import GpuTarget, gpu_target

_BLOCK = 256
"""Threads that share a long row."""
_SHORT = 256
"""Elements of a row up to which a warp takes it, whatever the number of rows."""
_MANY = 16
"""Rows for each multiprocessor from which on a warp each keeps it busy."""
_BLOCKS = 4
"""Blocks of a multiprocessor that keep it busy, and threads where each has rows of its own."""
_THREADS = 512
_LEAST_CHUNKS = 2
"""Chunks of a part that are worth a launch, and steps of one thread."""
_LEAST_STEPS = 32
_SHARED_BLOCK = 128
"""Threads of a block that works on several rows."""
_TEAMS = (1, WARP, 128, 256, 512, 1024)
_PARTS = (1, 4, 16, 64, 256)


@dataclass(frozen=True, slots=True)
class ScanShare:
    """How rows are shared: each by the threads of `chunks`, in about so many `parts`; 1 for whole rows."""

    chunks: Chunks
    parts: int = 1

    def part_of(self, program: ScanProgram) -> int:
        """Elements of a part: whole chunks."""
        return _rounded(-(-extent_estimate(program.length) // self.parts), self.chunks.elements)


class ScanRule(ScheduleRule[ScanProgram, ScanShare]):
    """Schedules scans, with what is element-wise before and after them."""

    def match(self, task: Task, ctx: CompileContext) -> Match[ScanProgram] | None:
        """Any element type, any strides, any direction."""
        program = scan_program(task)
        if program is None or task.in_place or not has_warps(gpu_target(ctx.target)):
            return None
        return Match(task, program)

    def space(self, match: Match[ScanProgram], ctx: CompileContext) -> Space[ScanShare]:
        """Threads that share a row, elements of each, and parts of long rows."""
        default, most = self.default(match, ctx), gpu_target(ctx.target).block_threads
        length = extent_estimate(match.data.length)
        return Space(
            (
                Knob("threads", tuple(count for count in _TEAMS if count <= most), "threads that share a row"),
                Knob("each", (1, 2, 4, 8), "neighbours that a thread takes at once"),
                Knob("parts", tuple(sorted({*_PARTS, default.parts})), "parts of a row, for blocks of their own"),
            ),
            lambda threads, each, parts: ScanShare(Chunks(threads, each), parts),
            (
                Constraint(
                    "each part has a chunk at least",
                    lambda share: share.parts == 1 or share.parts * share.chunks.elements <= length,
                ),
            ),
        )

    def default(self, match: Match[ScanProgram], ctx: CompileContext) -> ScanShare:
        """By sizes, symbolic ones as their hints say."""
        strides = {tensor.operand: tensor.type.element_strides for tensor in match.task.inputs}
        return _share(match.data, strides, gpu_target(ctx.target))

    def predict(self, match: Match[ScanProgram], params: ScanShare, ctx: CompileContext) -> float | None:
        """By the model of `cost_streams`."""
        constants, target = known_constants(ctx), gpu_target(ctx.target)
        if constants is None:
            return None
        return scan_seconds(match.task, match.data, params.chunks, params.parts, target, constants)

    def build(self, match: Match[ScanProgram], params: ScanShare, ctx: CompileContext) -> Program:
        """One kernel, or three where rows are cut into parts."""
        program = match.data
        builder = ProgramBuilder(match.task)
        memory = _Memory(dict(builder.pointers), {t.operand: t.type.element_strides for t in match.task.inputs})
        if params.parts == 1:
            builder.run(_rows(builder, memory, program, params.chunks))
            return builder.program()
        part = params.part_of(program)
        parts = dims.ceildiv(program.length, part)
        shape = (parts, *program.outer_extents)
        between = [Operand(f"parts{n}", value.dtype, shape) for n, value in enumerate(program.values)]
        for tensor in between:
            memory.pointers[tensor] = builder.scratch(tensor.name, tensor.dtype, dims.product(shape))
            memory.strides[tensor] = contiguous_strides(shape)
        builder.run(_totals(builder, memory, program, params.chunks, part, between))
        builder.run(_rows(builder, memory, _before(program, between), _few(params.chunks), program.reverse))
        builder.run(_parts(builder, memory, program, params.chunks, part, between))
        return builder.program()


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """Where operands lie, in the entry function, and with which strides."""

    pointers: dict[Operand, Expr]
    strides: dict[Operand, Sequence[Dim]]


def _share(program: ScanProgram, strides: Mapping[Operand, Sequence[Dim]], target: GpuTarget) -> ScanShare:
    rows, length = element_count(program.outer_extents), extent_estimate(program.length)
    read = [access for value in program.values for access in accesses(value)]
    widest = max([access.operand.dtype.nbytes for access in read], default=4)
    if _is_beside(program, read, strides) and rows >= WARP:
        parts = min(per_device(_THREADS, target) // rows, length // _LEAST_STEPS)
        return ScanShare(Chunks(1, 8), parts if parts >= 2 else 1)
    each = 8 if widest <= 2 else 4
    if length <= _SHORT or (rows >= per_device(_MANY, target) and length <= _SHARED_BLOCK * 32):
        return ScanShare(Chunks(WARP, each))
    chunks = Chunks(_BLOCK, each)
    parts = min(length // (_LEAST_CHUNKS * chunks.elements), _BLOCKS * target.multiprocessors // max(1, rows))
    return ScanShare(chunks, parts if parts >= 4 else 1)


def _few(chunks: Chunks) -> Chunks:
    """For the parts of rows, which are some hundreds at most."""
    return chunks if chunks.threads == 1 else Chunks(WARP, 4)


def _is_beside(program: ScanProgram, read: Sequence[Access], strides: Mapping[Operand, Sequence[Dim]]) -> bool:
    """Whether neighbours in memory belong to different rows."""
    offsets = [affine_offset(access.indices, strides[access.operand]) for access in read]
    known = [offset for offset in offsets if offset is not None]
    if any(offset.coefficient(program.along) == 1 for offset in known):
        return False
    return any(offset.coefficient(axis) == 1 for offset in known for axis in program.outer)


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step


def _before(program: ScanProgram, between: Sequence[Operand]) -> ScanProgram:
    """From what each part reduces to what lies before it, which takes its place: parts are in the order of steps."""
    axes = (build.size_var("part"), *program.outer)
    running = tuple(Var(tensor.name, tensor.dtype) for tensor in between)
    return ScanProgram(
        axes=axes,
        extents=between[0].shape,
        axis=0,
        values=tuple(tensor[axes] for tensor in between),
        running=running,
        outputs=tuple(ScanOutput(t, contiguous_strides(t.shape), v) for t, v in zip(between, running, strict=True)),
        combiner=program.combiner,
        exclusive=True,
        reverse=False,
    )


class _Kernel:
    """One kernel under construction: `items` along `axes`, each worked on by the threads of `chunks`."""

    def __init__(
        self,
        builder: ProgramBuilder,
        memory: _Memory,
        program: ScanProgram,
        chunks: Chunks,
        is_reversed: bool,
        written: Sequence[Operand],
    ) -> None:
        self.builder, self.program, self.chunks, self.is_reversed = builder, program, chunks, is_reversed
        self.scope = KernelScope()
        self.lowering = Lowering(self.scope, {})
        expressions = (*program.values, *(output.value for output in program.outputs))
        read = [access.operand for value in expressions for access in accesses(value)]
        self.pointers: dict[Operand, Var] = {}
        for operand in dict.fromkeys((*read, *written)):
            self.pointers[operand] = self.scope.pointer(operand.name, operand.dtype)
            if operand in memory.strides:
                self.lowering.buffer(operand, self.pointers[operand], memory.strides[operand])
        self.outer = [memory.pointers[operand] for operand in self.pointers]
        self.length = self.scope.size(program.length, "length")
        self.carry = [Var(f"carry{n}", value.dtype) for n, value in enumerate(program.values)]
        self.member = build.size_var("member")

    def place(self, operand: Operand, indices: Sequence[Expr], strides: Sequence[Dim]) -> Expr:
        """Where an element lies."""
        return build.flatten(indices, [self.scope.size(stride, "stride") for stride in strides])

    def begin(self, k: IRBuilder) -> None:
        """Nothing is scanned yet."""
        for var, start in zip(self.carry, self.program.combiner.identity([v.dtype for v in self.carry]), strict=True):
            k.declare(var, start)

    def walk(self, k: IRBuilder, start: Expr, end: Expr, writes: bool) -> None:
        """Along the row; results are written on the way, or the row is only reduced."""
        ChunkWalk(
            self.chunks,
            self.program.combiner,
            self.carry,
            self.member,
            read=self._read,
            write=self._written() if writes else None,
            exclusive=self.program.exclusive,
            is_reversed=self.is_reversed,
        ).emit(k, start, end)

    def _position(self, step: Expr) -> Expr:
        return self.length - 1 - step if self.program.reverse else step

    def _read(self, k: IRBuilder, step: Expr) -> Sequence[Expr]:
        bindings = {self.program.along: self._position(step)}
        return [self.lowering.resolve(value, bindings) for value in self.program.values]

    def _written(self) -> Callable[[IRBuilder, Expr, Sequence[Expr]], None]:
        program = self.program
        places = [[self.scope.size(stride, "stride") for stride in output.strides] for output in program.outputs]

        def write(k: IRBuilder, step: Expr, scanned: Sequence[Expr]) -> None:
            position = self._position(step)
            bindings: dict[Var, Expr] = {program.along: position}
            for variable, value in zip(program.running, scanned, strict=True):
                bindings[variable] = build.cast(value, variable.dtype)
            indices = [position if axis is program.along else axis for axis in program.axes]
            for output, strides in zip(program.outputs, places, strict=True):
                offset = build.flatten(indices, strides)
                k.store(self.pointers[output.result], offset, self.lowering.resolve(output.value, bindings))

        return write

    def launch(self, axes: Sequence[Var], extents: Sequence[Dim], body: Callable[[IRBuilder], None]) -> Launch:
        """An item for every value of the axes; those of whole blocks have blocks of their own."""
        shared = self.chunks.threads
        threads = max(shared, _SHARED_BLOCK) if shared <= WARP else shared
        teams = threads // shared
        items = dims.product(extents)
        k = IRBuilder()
        thread = k.let("thread", thread_in_block())
        k.declare(self.member, thread % shared)
        item = k.let("item", block_number() * teams + thread // shared)
        # Whole warps leave together where a warp has a row.
        with k.if_(item < self.scope.size(items, "items")) if teams > 1 else nullcontext():
            number = k.let("number", build.cast(item, word_for(items)))
            decode_item(k, number, [self.scope.size(extent, "outer") for extent in extents], axes)
            body(k)
        function = Function(self.builder.name(), self.scope.params, k.body, kind="kernel")
        blocks = (self.builder.size(items) + (teams - 1)) // teams
        return self.builder.launch(function, self.outer, self.scope.arguments, (blocks,), threads)


def _results(program: ScanProgram) -> list[Operand]:
    return [output.result for output in program.outputs]


def _rows(
    builder: ProgramBuilder, memory: _Memory, program: ScanProgram, chunks: Chunks, is_reversed: bool | None = None
) -> Launch:
    """Whole rows. is_reversed: whether steps run against the axis, where the program does not say so itself."""
    is_reversed = program.reverse if is_reversed is None else is_reversed
    kernel = _Kernel(builder, memory, program, chunks, is_reversed, _results(program))

    def body(k: IRBuilder) -> None:
        kernel.begin(k)
        kernel.walk(k, build.index(0), kernel.length, writes=True)

    return kernel.launch(program.outer, program.outer_extents, body)


def _totals(
    builder: ProgramBuilder,
    memory: _Memory,
    program: ScanProgram,
    chunks: Chunks,
    length: int,
    between: Sequence[Operand],
) -> Launch:
    """What each part of a row reduces to."""
    kernel = _Kernel(builder, memory, program, chunks, program.reverse, between)
    part = build.size_var("part")
    indices = (part, *program.outer)

    def body(k: IRBuilder) -> None:
        kernel.begin(k)
        kernel.walk(k, *_ends(kernel, length, part), writes=False)
        with k.if_(build.equal(kernel.member, 0)):
            for tensor, total in zip(between, kernel.carry, strict=True):
                k.store(kernel.pointers[tensor], kernel.place(tensor, indices, memory.strides[tensor]), total)

    return kernel.launch(indices, between[0].shape, body)


def _parts(
    builder: ProgramBuilder,
    memory: _Memory,
    program: ScanProgram,
    chunks: Chunks,
    length: int,
    between: Sequence[Operand],
) -> Launch:
    """Results of the elements of each part of a row."""
    kernel = _Kernel(builder, memory, program, chunks, program.reverse, [*_results(program), *between])
    part = build.size_var("part")
    indices = (part, *program.outer)

    def body(k: IRBuilder) -> None:
        for carry, tensor in zip(kernel.carry, between, strict=True):
            offset = kernel.place(tensor, indices, memory.strides[tensor])
            k.declare(carry, build.load(kernel.pointers[tensor], offset))
        kernel.walk(k, *_ends(kernel, length, part), writes=True)

    return kernel.launch(indices, between[0].shape, body)


def _ends(kernel: _Kernel, length: int, part: Expr) -> tuple[Expr, Expr]:
    """The first step of a part of `length` elements, and the one behind its last."""
    start = part * kernel.scope.size(length, "part")
    return start, build.minimum(start + kernel.scope.size(length, "part"), kernel.length)

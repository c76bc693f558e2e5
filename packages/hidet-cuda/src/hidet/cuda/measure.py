"""Measures what cost models know of a GPU: loops of thread IR, and a product on matrix units.

What is timed are calls of host functions that launch kernels, with a wait for the device behind the last one; the
number of iterations is inside of the kernels where an iteration is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hidet import dims, dtypes
from hidet.compiler.modules import compile_module
from hidet.cuda.devices import properties
from hidet.cuda.schedules.tiling import cycles
from hidet.dtypes import DType
from hidet.fusion.fuse import fuse
from hidet.gpu.schedules.exchange import block_number, thread_in_block
from hidet.gpu.schedules.matmul import extents_of
from hidet.gpu.schedules.tiling import Tiling
from hidet.graph.parser import parse_graph
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch
from hidet.ir.types import PointerType
from hidet.schedule.claims import claims
from hidet.schedule.rule import Program
from hidet.target.constants import DeviceConstants, MemoryLevel
from hidet.target.timing import seconds_of_one

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.cuda.memory import CudaMemory
    from hidet.cuda.target import CudaTarget

THREADS = 512
"""Of a block, of which a multiprocessor holds at least two."""
CHAINS = 8
"""Independent accumulators of a thread."""
STEPS = 16
"""Multiply-adds to the same accumulator in an iteration."""
BLOCKS_OF_ONE = 2
"""Blocks of a multiprocessor."""
MANY_BLOCKS = 1 << 16
READ_BYTES = 16
"""That a thread reads at once."""
SIDE, DEPTH = 4096, 2048
"""Rows and columns of the product that is measured, and half of its depth."""
_TYPES = (dtypes.f32, dtypes.f64)
_LINE = 128


@dataclass(frozen=True, slots=True)
class Timings:
    """What was measured, in seconds.

    fma: by type, of an iteration of the loop, in which each thread of a full device does CHAINS * STEPS multiply-adds.
    chain: of STEPS multiply-adds that wait for each other. chase: of a read that waits for the one before. launch,
    launches: of a launch of one block, and of one of MANY_BLOCKS, that do nothing. reads: by level, how many bytes are
    read, by one block, and by all. product: of SIDE x SIDE products over DEPTH more steps, by matrix units.
    """

    fma: Mapping[str, float]
    chain: float
    chase: float
    launch: float
    launches: float
    reads: Mapping[str, tuple[int, float, float]]
    product: float


def constants_from(
    timings: Timings, device: str, published: DeviceConstants, l2_bytes: int, product: float
) -> DeviceConstants:
    """The constants that timings stand for.

    published: of the architecture. product: seconds in which the cost model expects `Timings.product` of a device with
    published constants. A kernel does not reach what matrix units could do, and the model knows how much of it: what
    is measured is how the device's differ from the published ones.
    """
    threads = BLOCKS_OF_ONE * THREADS
    faster = product / timings.product
    levels = [published.level("shared")]
    for name, (nbytes, alone, together) in timings.reads.items():
        kept = 0 if name == "memory" else l2_bytes
        levels.append(MemoryLevel(name, kept, nbytes / alone, nbytes / together))
    return DeviceConstants(
        device=device,
        cores=published.cores,
        launch=timings.launch,
        item=max(0.0, timings.launches - timings.launch) * published.cores / MANY_BLOCKS,
        fma={name: threads * CHAINS * STEPS / seconds for name, seconds in timings.fma.items()},
        matrix={name: rate * faster for name, rate in published.matrix.items()},
        fma_latency=timings.chain / STEPS,
        memory_latency=timings.chase,
        levels=tuple(levels),
        is_measured=True,
    )


def measure_gpu(target: CudaTarget, ctx: CompileContext) -> DeviceConstants:
    """A device's constants. LaunchError where it is not there."""
    memory, facts = target.memory, properties(target.index)
    compiled = compile_module(loops(), ctx)
    blocks = BLOCKS_OF_ONE * facts.multiprocessors

    def timed(name: str, *arguments: object) -> float:
        def run(count: int) -> None:
            compiled[name](*arguments, count)
            memory.synchronize()

        return seconds_of_one(run)

    out = {dtype.name: memory.place(np.zeros(1, dtype.numpy())) for dtype in _TYPES}
    rates = {dtype.name: timed(f"multiply_add_{dtype.short}", out[dtype.name], blocks, THREADS) for dtype in _TYPES}
    chain = timed("chain", out["float32"], 1, 1)
    order = np.random.default_rng(0).permutation(2 * facts.l2_cache // _LINE)
    chased = np.zeros(order.size * _LINE // 8, np.int64)
    chased[order * (_LINE // 8)] = np.roll(order, -1) * (_LINE // 8)
    chase = timed("chase", memory.place(chased), memory.place(np.zeros(1, np.int64)))
    reads = {}
    for name, nbytes in (("L2", facts.l2_cache // 4), ("memory", 4 * facts.l2_cache)):
        elements = nbytes // 4 // (blocks * THREADS * 4) * (blocks * THREADS * 4)
        given = memory.place(np.ones(elements, np.float32))
        alone, together = (timed("read", given, out["float32"], elements // n, n) for n in (1, blocks))
        reads[name] = (4 * elements, alone, together)
    launch, launches = (timed("launches", out["float32"], count) for count in (1, MANY_BLOCKS))
    published = target.published_constants()
    taken, expected = _product(target, ctx, published)
    timings = Timings(rates, chain, chase, launch, launches, reads, taken)
    return constants_from(timings, facts.name, published, facts.l2_cache, expected)


def _product(target: CudaTarget, ctx: CompileContext, published: DeviceConstants) -> tuple[float, float]:
    """Seconds of DEPTH more steps of a product: taken, and expected by the model with published constants."""
    taken, expected, memory = [], [], target.memory
    some = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float16)
    for depth in (DEPTH, 2 * DEPTH):
        program, counted = product_program(depth, ctx)
        operand = np.resize(some, (SIDE * depth,))
        nbytes = [dims.evaluate(size, {}) for size in program.scratch]
        zeros = [np.zeros(SIDE * SIDE, np.float16), *(np.zeros(size, np.uint8) for size in nbytes)]
        arrays = [memory.place(array) for array in (operand, operand, *zeros)]
        call = partial(compile_module(program.module, ctx)[program.module.entry], *arrays, *program.arguments)
        taken.append(seconds_of_one(partial(_call_and_wait, call, memory)))
        expected.append(counted * published.cycle)
    return max(taken[1] - taken[0], 1e-9), expected[1] - expected[0]


def _call_and_wait(call: Callable[[], object], memory: CudaMemory, count: int) -> None:
    for _ in range(count):
        call()
    memory.synchronize()


def product_program(depth: int, ctx: CompileContext) -> tuple[Program, float]:
    """The program of SIDE x SIDE products over so many steps, and the clock cycles that the model expects."""
    text = (
        f"graph g(%a: f16[{SIDE}, {depth}]@cuda:0, %b: f16[{SIDE}, {depth}]@cuda:0):\n"
        f"  %0: f16[{SIDE}, {SIDE}]@cuda:0 = matmul(%a, %b, trans_b=True)\n  return %0\n"
    )
    (task,) = fuse(parse_graph(text, ctx.registry.operators), ctx).tasks
    claim = next(claims(task, ctx, []))
    params: Tiling = claim.rule.default(claim.match, ctx)
    target: Any = ctx.target
    counted = cycles(extents_of(claim.match.data), params, target, params.is_warp_specialized)
    return claim.rule.build(claim.match, params, ctx), counted


def loops() -> Module:
    """Host functions with their kernels, each with its number of iterations as the last parameter."""
    functions = [
        *(function for dtype in _TYPES for function in _multiply_adds(f"multiply_add_{dtype.short}", dtype, CHAINS)),
        *_multiply_adds("chain", dtypes.f32, 1),
        *_read(),
        *_chase(),
        *_launches(),
    ]
    return Module(tuple(functions), "chase")


def _multiply_adds(name: str, dtype: DType, chains: int) -> tuple[Function, Function]:
    """name(out, blocks, threads, count)"""
    out, count, k = Var("out", PointerType(dtype)), build.size_var("count"), IRBuilder()
    factor = k.let("factor", build.load(out, 0))
    totals = k.let_each("total", (factor + build.const(number, dtype) for number in range(chains)))
    with k.for_range("step", count):
        for _ in range(STEPS):
            k.assign_each(totals, [fma(total, factor, factor) for total in totals])
    with k.if_(sum(totals[1:], start=totals[0]) < 0):  # never, but the compiler does not know
        k.store(out, 0, totals[0])
    kernel = Function(f"{name}_kernel", (out, count), k.body, kind="kernel")
    given, (blocks, threads, turns) = Var("out", out.type), map(build.size_var, ("blocks", "threads", "count"))
    launch = Launch(kernel.name, (blocks,), (given, turns), block=(threads,))
    return kernel, Function(name, (given, blocks, threads, turns), launch, kind="host")


def _read() -> tuple[Function, Function]:
    """read(x, out, elements of a block, blocks, count): all elements, again and again."""
    x, out = Var("x", PointerType(dtypes.f32)), Var("out", PointerType(dtypes.f32))
    elements, blocks, count = (build.size_var(name) for name in ("elements", "blocks", "count"))
    k, lanes = IRBuilder(), READ_BYTES // 4
    zero = build.broadcast(build.const(0, dtypes.f32), lanes)
    total = k.let("total", zero)
    thread = k.let("thread", thread_in_block() * lanes)
    with k.for_range("turn", count) as turn:
        # What another block has read before lies in no cache of this multiprocessor.
        first = k.let("first", (block_number() + turn) % blocks * elements + thread)
        with k.for_range("at", elements, step=THREADS * lanes) as at:
            k.assign(total, total + build.load(x, first + at, lanes=lanes))
    with k.if_(build.extract(total, 0) < 0):
        k.store(out, 0, build.extract(total, 0))
    kernel = Function("read_kernel", (x, out, elements, blocks, count), k.body, kind="kernel")
    given = tuple(Var(var.name, var.type) for var in (x, out))
    sizes = tuple(build.size_var(name) for name in ("elements", "blocks", "count"))
    launch = Launch(kernel.name, (sizes[1],), (*given, *sizes), block=(build.index(THREADS),))
    return kernel, Function("read", (*given, *sizes), launch, kind="host")


def _chase() -> tuple[Function, Function]:
    """chase(chain, last, count): reads of which each one says where the next one goes, from the last one on."""
    chain, last, count = (*(Var(name, PointerType(dtypes.i64)) for name in ("chain", "last")), build.size_var("count"))
    k = IRBuilder()
    place = k.let("place", build.load(last, 0))
    with k.for_range("step", count):
        k.assign(place, build.load(chain, place))
    k.store(last, 0, place)
    kernel = Function("chase_kernel", (chain, last, count), k.body, kind="kernel")
    given = (*(Var(var.name, var.type) for var in (chain, last)), build.size_var("count"))
    launch = Launch(kernel.name, (build.index(1),), given, block=(build.index(1),))
    return kernel, Function("chase", given, launch, kind="host")


def _launches() -> tuple[Function, Function]:
    """launches(out, blocks, count): launches of blocks that do nothing but be there."""
    out, k = Var("out", PointerType(dtypes.f32)), IRBuilder()
    with k.if_(block_number() < 0):
        k.store(out, 0, build.const(0, dtypes.f32))
    kernel = Function("launches_kernel", (out,), k.body, kind="kernel")
    given, blocks, count, k = Var("out", out.type), build.size_var("blocks"), build.size_var("count"), IRBuilder()
    with k.for_range("launch", count):
        k.emit(Launch(kernel.name, (blocks,), (given,), block=(build.index(THREADS),)))
    return kernel, Function("launches", (given, blocks, count), k.body, kind="host")

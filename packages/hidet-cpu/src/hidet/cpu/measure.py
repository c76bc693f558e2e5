"""Measures what cost models know of this CPU: loops of thread IR, compiled as kernels are, each timed for some ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.compiler.modules import compile_module
from hidet.context import CompileContext
from hidet.cpu.arch import CpuArch
from hidet.cpu.constants import last_level_bytes, processor_name
from hidet.cpu.schedules.gemm_tile import multiply_add
from hidet.cpus import available_cpus
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Var
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Launch
from hidet.ir.types import PointerType
from hidet.target.constants import DeviceConstants, MemoryLevel
from hidet.target.timing import seconds_of_one

_TYPES = (dtypes.f32, dtypes.f64, dtypes.i32)
_CHAINS = {32: 24, 16: 12}
"""Independent accumulators by the number of vector registers, as the register tiles of products have them."""
_READ_VECTORS = 8
_MOST_BYTES = 64 << 20
"""What is read of memory, four times the last-level cache, but no more than this."""
_LINE = 64
_MANY_ITEMS = 1 << 16

Array = np.ndarray[Any, Any]


def measure_cpu(cpu: CpuArch, ctx: CompileContext) -> DeviceConstants:
    """This machine's constants. cpu: this machine."""
    loops = _Loops(cpu)
    # Polls for interrupts and the kernel cache are part of neither.
    compiled = compile_module(loops.module(), replace(ctx, options=replace(ctx.options, threads=None)))
    cores, out = available_cpus(), np.zeros(64, np.float64)

    def run(name: str, *arguments: object) -> Callable[[int], object]:
        function = compiled[name]
        return lambda count: function(*arguments, count)

    rates, latency = {}, 0.0
    for dtype in _TYPES:
        lanes, chains = cpu.vector_bits // dtype.bits, _CHAINS[cpu.vector_registers]
        result = np.zeros(lanes, dtype.numpy())
        rates[dtype.name] = lanes * chains / seconds_of_one(run(f"multiply_add_{dtype.short}", result))
        if dtype is dtypes.f32:
            latency = seconds_of_one(run("chain", result))
    sizes = (cpu.l1_bytes, cpu.l2_bytes, last_level_bytes(cpu))
    # The page tables and the copy that a first write makes are not what is measured.
    memory = _aligned_ones(min(_MOST_BYTES, 4 * sizes[-1]) // 4)
    levels = []
    for number, nbytes in enumerate((*sizes, 0), 1):
        span = nbytes // 2 if nbytes else memory.nbytes
        part = memory[: span // 4 // loops.read_elements * loops.read_elements]
        alone = part.nbytes / seconds_of_one(run("read", part, out, part.size))
        together = cores * alone
        if cores > 1 and nbytes in (sizes[-1], 0):
            each = min(memory.size // cores, part.size) // loops.read_elements * loops.read_elements
            together = cores * each * 4 / seconds_of_one(run("read_together", memory, out, each, cores))
        levels.append(MemoryLevel(f"L{number}" if nbytes else "memory", nbytes, alone, max(alone, together)))
    nothing = np.zeros(1, np.int64)
    memory_latency = seconds_of_one(run("chase", _chain_of_lines(memory.nbytes), np.zeros(1, np.int64)))
    launch = seconds_of_one(run("launches", nothing, cores)) if cores > 1 else 0.0
    item = max(0.0, seconds_of_one(run("launches", nothing, _MANY_ITEMS)) - launch) * cores / _MANY_ITEMS
    return DeviceConstants(
        processor_name(), cores, launch, item, rates, {}, latency, memory_latency, tuple(levels), is_measured=True
    )


def _aligned_ones(count: int) -> Array:
    """Elements of f32 from the beginning of a cache line on."""
    memory = np.ones(count + _LINE // 4, np.float32)
    start = -memory.ctypes.data % _LINE // 4
    return memory[start : start + count]


def _chain_of_lines(nbytes: int) -> Array:
    """Numbers of 8 bytes of which one a cache line names the next line's, in an order that no prefetcher guesses."""
    step = _LINE // 8
    lines = nbytes // _LINE
    order = np.random.default_rng(0).permutation(lines)
    chain = np.zeros(lines * step, np.int64)
    chain[order * step] = np.roll(order, -1) * step
    return chain


class _Loops:
    """The functions, each with its number of iterations as the last parameter."""

    def __init__(self, cpu: CpuArch) -> None:
        self._cpu = cpu
        self._lanes = cpu.vector_bits // 32
        self.read_elements = _READ_VECTORS * self._lanes
        """Elements of f32 that an iteration reads."""

    def module(self) -> Module:
        """All of them."""
        chains = _CHAINS[self._cpu.vector_registers]
        functions = (
            *(self._multiply_adds(f"multiply_add_{dtype.short}", dtype, chains) for dtype in _TYPES),
            self._multiply_adds("chain", dtypes.f32, 1),
            *self._reads(),
            _chase(),
            *_launches(),
        )
        return Module(functions, "chase")

    def _multiply_adds(self, name: str, dtype: DType, chains: int) -> Function:
        """Multiply-adds to so many accumulators, each of which waits for the one before to the same."""
        lanes = self._cpu.vector_bits // dtype.bits
        result, count = Var("result", PointerType(dtype)), build.size_var("count")
        k = IRBuilder()
        factor = k.let("factor", build.load(result, 0, lanes=lanes))
        totals = k.let_each("total", (factor + build.broadcast(build.const(n, dtype), lanes) for n in range(chains)))
        with k.for_range("step", count):
            k.assign_each(totals, [multiply_add(total, factor, factor) for total in totals])
        # Every chain reaches the result, or it would be removed.
        k.store(result, 0, sum(totals[1:], start=totals[0]))
        return Function(name, (result, count), k.body, kind="host")

    def _reads(self) -> tuple[Function, ...]:
        """Memory read again and again: by the caller, and by several threads, each its part."""
        x, out = Var("x", PointerType(dtypes.f32)), Var("out", PointerType(dtypes.f64))
        elements, count = build.size_var("elements"), build.size_var("count")
        part = build.size_var("part")
        k = IRBuilder()
        lanes = self._lanes
        zero = build.broadcast(build.const(0, dtypes.f32), lanes)
        totals = k.let_each("total", [zero] * _READ_VECTORS)
        start = k.let("start", part * elements)
        with k.for_range("turn", count), k.for_range("at", elements, step=self.read_elements) as at:
            places = (start + at + n * lanes for n in range(_READ_VECTORS))
            k.assign_each(totals, [t + build.load(x, i, lanes=lanes) for t, i in zip(totals, places, strict=True)])
        total = build.extract(sum(totals[1:], start=totals[0]), 0)
        k.store(out, build.binary("rem", part, build.index(_LINE)), build.cast(total, dtypes.f64))
        kernel = Function("read_part", (x, out, elements, count), k.body, kind="kernel", grid_vars=(part,))
        hosts = []
        for name in ("read", "read_together"):
            pointers = tuple(Var(var.name, var.type) for var in (x, out))
            size, parts, turns = (build.size_var(name) for name in ("elements", "parts", "count"))
            alone = name == "read"
            launch = Launch("read_part", (build.index(1) if alone else parts,), (*pointers, size, turns))
            sizes = (size, turns) if alone else (size, parts, turns)
            hosts.append(Function(name, (*pointers, *sizes), launch, kind="host"))
        return (kernel, *hosts)


def _chase() -> Function:
    """Reads of which each one says where the next one goes."""
    chain, last, count = (*(Var(name, PointerType(dtypes.i64)) for name in ("chain", "last")), build.size_var("count"))
    k = IRBuilder()
    # Where the call before has ended: what it has read is in the caches.
    place = k.let("place", build.load(last, 0))
    with k.for_range("step", count):
        k.assign(place, build.load(chain, place))
    k.store(last, 0, place)
    return Function("chase", (chain, last, count), k.body, kind="host")


def _launches() -> tuple[Function, ...]:
    """Launches of as many items as there are, that do nothing but be there."""
    item = build.size_var("item")
    out = Var("out", PointerType(dtypes.i64))
    k = IRBuilder()
    with k.if_(item < 0):
        k.store(out, 0, item)
    kernel = Function("nothing", (out,), k.body, kind="kernel", grid_vars=(item,))
    given, items, count = Var("out", PointerType(dtypes.i64)), build.size_var("items"), build.size_var("count")
    k = IRBuilder()
    with k.for_range("launch", count):
        k.emit(Launch("nothing", (items,), (given,)))
    return kernel, Function("launches", (given, items, count), k.body, kind="host")

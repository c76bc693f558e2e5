"""The machine's real peak of float32 fused multiply-adds, measured by a loop that does nothing else.

A figure from a data sheet would ignore the clock that this machine reaches with wide vectors, and what other processes
take. Measured before and after a row, it also tells whether the machine was busy meanwhile.
"""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

_CHAINS = 24
"""Independent accumulators: two FMA units of five cycles latency need ten, and 32 vector registers hold 24."""

_CHAINS_16_REGISTERS = 12
"""The same where there are 16 vector registers (AVX2)."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """A compiled loop: `run(iterations)` performs `iterations * flops` float32 operations on the calling thread."""

    run: Callable[[int], float]
    flops: int


def peak_flops(threads: int, seconds: float = 0.05) -> float:
    """Return float32 operations a second (a fused multiply-add counts two) that `threads` threads reach together.

    seconds: about how long each of three trials takes; the fastest one counts.
    """
    loop = _loop()
    iterations = _iterations_for(loop, seconds)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(loop.run, [1000] * threads))  # the threads exist from here on
        return max(_trial(pool, loop, threads, iterations) for _ in range(3))


def _trial(pool: ThreadPoolExecutor, loop: _Loop, threads: int, iterations: int) -> float:
    start = time.perf_counter()
    list(pool.map(loop.run, [iterations] * threads))
    return threads * iterations * loop.flops / (time.perf_counter() - start)


def _iterations_for(loop: _Loop, seconds: float) -> int:
    probe = 20_000
    start = time.perf_counter()
    loop.run(probe)
    return max(probe, int(probe * seconds / (time.perf_counter() - start)))


@cache
def _loop() -> _Loop:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    chains = _CHAINS_16_REGISTERS if lanes == 8 else _CHAINS
    # LLVM halves 512-bit vectors on some processors unless told not to.
    flags = features.flatten() + (",-prefer-256-bit" if lanes == 16 else "")
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=flags, opt=2
    )
    module = llvm.parse_assembly(_program(lanes, chains))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    # A ctypes call releases the interpreter's lock, so the loops of several threads do run at the same time.
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("fma_loop"))

    def run(iterations: int, keep_alive: object = engine) -> float:
        return float(function(iterations))

    return _Loop(run=run, flops=2 * lanes * chains)


def _program(lanes: int, chains: int) -> str:
    """LLVM IR of `float fma_loop(i64 iterations)`: every iteration does one FMA on each of `chains` accumulators."""
    vector = f"<{lanes} x float>"
    names = range(chains)
    # x -> 0.5 x + 0.5 stays at a normal number whatever it starts from, so no slow denormal ever appears.
    half = f"<{', '.join(['float 0.5'] * lanes)}>"
    phis = [
        f"  %x{i} = phi {vector} [ <{', '.join([f'float {i + 2}.0'] * lanes)}>, %entry ], [ %y{i}, %loop ]"
        for i in names
    ]
    steps = [
        f"  %y{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %x{i}, {vector} {half}, {vector} {half})"
        for i in names
    ]
    sums = [
        f"  %s{i} = fadd {vector} {'%y0' if i == 1 else f'%s{i - 1}'}, %y{i}" for i in names if i > 0
    ]  # every chain reaches the result, or it would be removed
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            "define float @fma_loop(i64 %iterations) {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *phis,
            *steps,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %iterations",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            *sums,
            f"  %result = extractelement {vector} %s{chains - 1}, i32 0",
            "  ret float %result",
            "}",
        ]
    )

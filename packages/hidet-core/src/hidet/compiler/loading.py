"""From machine code to a compiled graph that can be called, here or on the machine it was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet.compiler.clock import Clock
from hidet.compiler.lowered import LoweredGraph
from hidet.context import CompileContext
from hidet.errors import CompileError, LaunchError
from hidet.runtime.bake import bake_prepared, needs_baking, with_own_constants
from hidet.runtime.compiled import CodeBundle, CompiledGraph, CompileReport
from hidet.runtime.executor import SegmentFunction
from hidet.runtime.program import segment_symbols
from hidet.runtime.replay import REPLAY_AFTER
from hidet.runtime.signature import Signature
from hidet.runtime.verify import verify_program
from hidet.target import Binary


def bundle_of(
    lowered: LoweredGraph, binaries: Sequence[Binary], signature: Signature | None, ctx: CompileContext
) -> CodeBundle:
    """All that a graph became."""
    return CodeBundle(
        program=lowered.program,
        binaries=tuple(binaries),
        constants=lowered.constants,
        prepare_constants=lowered.prepare_constants,
        target=ctx.target.name,
        arch=ctx.target.arch,
        signature=signature,
    )


def load_graph(bundle: CodeBundle, report: CompileReport, clock: Clock, ctx: CompileContext) -> CompiledGraph:
    """The compiled graph. Code for a machine that a user has named, and that cannot run here, is loaded at the first
    call, which raises LaunchError."""
    given = [*bundle.constants, *bundle.prepare_constants]
    loaded: _Loaded | None = None
    try:
        loaded = _load(bundle, ctx, clock)
    except (CompileError, LaunchError):
        # Code for a machine that a user has named need not run on this one.
        if ctx.machine is None:
            raise
    bundle = with_own_constants(bundle if loaded is None else loaded.bundle, given)
    if ctx.options.verify:
        verify_program(bundle.program, bundle.constants, bundle.prepare_constants)
    replay_after = REPLAY_AFTER[ctx.options.mode]
    if loaded is not None:
        return CompiledGraph(bundle, loaded.functions, report, loaded.code, ctx.target.memory, replay_after)

    def load() -> CompiledGraph:
        try:
            late = _load(bundle, ctx, clock)
        except (CompileError, LaunchError) as error:
            raise LaunchError(
                f"the graph is compiled for {ctx.target.name}:{ctx.machine}, and cannot run here: {error.message}",
                hint="compiled.save(path) writes it to a file, which hidet.load(path) runs on such a machine",
            ) from error
        return CompiledGraph(late.bundle, late.functions, report, late.code, ctx.target.memory, replay_after)

    return CompiledGraph(bundle, {}, report, load=load)


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """Code in memory, by symbol, and the bundle with what it prepared once and for all."""

    bundle: CodeBundle
    functions: Mapping[str, SegmentFunction]
    code: object


def _load(bundle: CodeBundle, ctx: CompileContext, clock: Clock) -> _Loaded:
    """Load code where it runs. CompileError or LaunchError where that is not here."""
    with clock("load"):
        code = ctx.target.load(bundle.binaries, ctx.cache)
        functions = {symbol: code.function(symbol, ctx.options.threads) for symbol in segment_symbols(bundle.program)}
    if needs_baking(bundle.program):
        with clock("prepare"):
            bundle = bake_prepared(bundle, functions, ctx.target.memory)
    return _Loaded(bundle, functions, code)

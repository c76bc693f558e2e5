"""Machine code of modules, from the cache or from the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from hidet.compiler.workers import CompileWorkers, Report
from hidet.context import CompileContext
from hidet.host.code_cache import keep_modules, module_key, read_modules
from hidet.host.units import EFFORT, CompileUnit, kernel_units
from hidet.ir.func import Module
from hidet.passes.dump import dump
from hidet.passes.manager import run_program_passes
from hidet.progress import CompileProgress
from hidet.target import Binary, CompileJob


def compile_modules(
    units: Mapping[str, CompileUnit], ctx: CompileContext, workers: CompileWorkers | None = None, together: bool = True
) -> tuple[list[Binary], int]:
    """Machine code of every module, from the cache where it is there; also how many were. workers: other
    processes that compile. together: keep the modules of a large graph there as one entry, too.

    Modules are lowered when their code is not there, or when somebody wants to see them lowered.
    """
    stored = read_modules(units, ctx)
    is_watched = ctx.options.verify or ctx.options.dump is not None
    lowered = [name for name in units if name not in stored or is_watched]
    with CompileProgress() as progress:

        def compile_here(names: Sequence[str], report: Report | None) -> list[Binary]:
            return ctx.target.compile(_jobs(names, units, stored, ctx), report)

        if workers is None or is_watched or not lowered:
            made = compile_here(lowered, progress.update) if lowered else []
        else:
            made = workers.compile({name: units[name] for name in lowered}, compile_here, progress.update)
    fresh = {binary.name: binary.data for binary in made}
    if fresh:
        keep_modules(units, stored, fresh, ctx, together)
    binaries = [Binary(name, fresh.get(name) or stored[name]) for name in units]
    for binary in binaries:
        program = units[binary.name].module
        ctx.registry.kernel_built(binary.name, ctx.target.name, program, binary.data, binary.name in stored)
    return binaries, len(stored)


def begin_module(symbol: str, module: Module, digest: str, workers: CompileWorkers, ctx: CompileContext) -> None:
    """Have children compile a program's module from now on, before the rest of its graph is built; see `compile_units`.

    symbol, digest: what the module is known by. What the cache has is not compiled.
    """
    for name, unit in kernel_units(symbol, module, digest, EFFORT).items():
        if ctx.cache.get(module_key(name, unit, ctx)) is None:
            workers.begin(name, unit)


def _jobs(
    names: Iterable[str], units: Mapping[str, CompileUnit], stored: Mapping[str, bytes], ctx: CompileContext
) -> Iterator[CompileJob]:
    """What is to be compiled, lowered one by one while the target works on those before."""
    for name in names:
        job = CompileJob(name, run_program_passes(units[name].module, ctx), units[name].effort)
        _dump_listings(job, ctx)
        if name not in stored:
            yield job


def _dump_listings(job: CompileJob, ctx: CompileContext) -> None:
    """Write what the target makes of a module, beside its thread IR; before it is compiled, which may fail."""
    if ctx.options.dump is None:
        return
    for ending, text in ctx.target.listings(job):
        dump(ctx, f"program_{job.module.entry}{ending}", partial(str, text))

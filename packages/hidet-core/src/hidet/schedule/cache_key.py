"""The cache key of one compiled module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.cache import CacheKey, source_hash

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.schedule.units import CompileUnit


def module_key(name: str, unit: CompileUnit, ctx: CompileContext) -> CacheKey:
    """Everything that decides the machine code of a module; weights, sizes passed at run time and paths do not.

    It covers the module as schedules built it, and what turns that into machine code: so nothing has to be lowered to
    find out that it was compiled before.
    """
    return CacheKey.of(
        name=name,
        module=unit.digest,
        effort=unit.effort,
        target=ctx.target.name,
        arch=ctx.target.arch,
        passes=" ".join(_program_passes(ctx)),
        options=_plugin_options(ctx),
        **ctx.target.fingerprint(),
    )


def _plugin_options(ctx: CompileContext) -> str:
    """The values of plug-ins' options that generated code depends on."""
    names = sorted(spec.name for spec in ctx.registry.options.values() if spec.affects_cache)
    return " ".join(f"{name}={ctx.option(name)!r}" for name in names)


def _program_passes(ctx: CompileContext) -> list[str]:
    """The program passes in order, each with the version of the wheel it comes from, or its sources' hash."""
    found = []
    for spec in ctx.registry.passes_for("program", ctx.target.name):
        owner = ctx.registry.owners["passes", spec.name]
        package = spec.load.partition(":")[0].partition(".")[0]
        found.append(f"{spec.name}@{owner.dist}-{owner.version}-{source_hash(package)}")
    return found

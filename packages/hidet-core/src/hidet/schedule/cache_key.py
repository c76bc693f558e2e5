"""The cache key of one compiled module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.cache import CacheKey
from hidet.ir.structural import structural_hash

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.schedule.units import CompileUnit


def kernel_key(unit: CompileUnit, ctx: CompileContext) -> CacheKey:
    """Everything that decides the module's machine code; weights, shapes passed at run time and paths do not."""
    return CacheKey.of(
        module=structural_hash(unit.module),
        entry=unit.module.entry,
        effort=unit.effort,
        target=ctx.target.name,
        arch=ctx.target.arch,
        **ctx.target.fingerprint(),
    )

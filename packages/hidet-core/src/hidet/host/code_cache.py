"""Compiled modules in the kernel cache: each under a key of its own, for all graphs; those of a graph together as well,
where the graph is not kept as a whole (`hidet/compiler/kept_graphs.py`).

So a graph that was compiled before opens one file, and one that shares kernels with others finds theirs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hidet.cache import CacheKey, code_hash

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.host.units import CompileUnit
    from hidet.plugins.isolation import Owner

PACKED_FROM = 4
"""Fewer modules are not worth a second copy."""

_PREFIX = struct.Struct("<I")  # bytes of the header that follows: JSON pairs of a module's name and size


def module_key(name: str, unit: CompileUnit, ctx: CompileContext) -> CacheKey:
    """Everything that decides the machine code of a module; weights, sizes passed at run time and paths do not.

    It covers the module as schedules built it, and what turns that into machine code: so nothing has to be lowered to
    find out that it was compiled before.
    """
    return digest_key(name, unit.digest, unit.effort, ctx)


def digest_key(name: str, digest: str, effort: int, ctx: CompileContext) -> CacheKey:
    """`module_key` of a module that is known by its digest alone."""
    return _key(name, digest, str(effort), ctx)


def pack_key(units: Mapping[str, CompileUnit], ctx: CompileContext) -> CacheKey:
    """The key of all modules of a graph together."""
    from hidet.ir.structural import structural_hash

    digests = tuple((name, unit.digest, unit.effort) for name, unit in units.items())
    return _key("modules of a graph", structural_hash(digests), "each its own", ctx)


def read_modules(units: Mapping[str, CompileUnit], ctx: CompileContext) -> dict[str, bytes]:
    """The machine code of those modules that the cache has."""
    if len(units) >= PACKED_FROM:
        packed = ctx.cache.get(pack_key(units, ctx))
        code = {} if packed is None else unpack(packed)
        if code.keys() == units.keys():
            return code
    found = {name: ctx.cache.get(module_key(name, unit, ctx)) for name, unit in units.items()}
    return {name: data for name, data in found.items() if data is not None}


def keep_modules(
    units: Mapping[str, CompileUnit],
    stored: Mapping[str, bytes],
    fresh: Mapping[str, bytes],
    ctx: CompileContext,
    together: bool = True,
) -> None:
    """Put a graph's `fresh` machine code into the cache, and once more `together` with what was `stored` there."""
    for name, data in fresh.items():
        ctx.cache.put(module_key(name, units[name], ctx), data)
    if together and len(units) >= PACKED_FROM:
        ctx.cache.put(pack_key(units, ctx), pack({name: fresh.get(name) or stored[name] for name in units}))


def pack(code: Mapping[str, bytes]) -> bytes:
    """Several modules as one payload."""
    header = json.dumps([(name, len(data)) for name, data in code.items()]).encode()
    return b"".join([_PREFIX.pack(len(header)), header, *code.values()])


def unpack(payload: bytes) -> dict[str, bytes]:
    """Inverse of `pack`. The payload is whole: the cache has compared its checksum."""
    (size,) = _PREFIX.unpack_from(payload)
    position = _PREFIX.size + size
    code = {}
    for name, length in json.loads(payload[_PREFIX.size : position]):
        code[name] = payload[position : position + length]
        position += length
    return code


def _key(name: str, digest: str, effort: str, ctx: CompileContext) -> CacheKey:
    return CacheKey.of(
        name=name,
        module=digest,
        effort=effort,
        target=target_text(ctx),
        arch=ctx.target.arch,
        passes=" ".join(_program_passes(ctx)),
        options=_plugin_options(ctx),
        **ctx.target.fingerprint(),
    )


def _plugin_options(ctx: CompileContext) -> str:
    """The values of plug-ins' options that code for this target depends on."""
    options = (spec for spec in ctx.registry.options.values() if spec.affects_cache)
    names = sorted(spec.name for spec in options if ctx.target.name in (spec.targets or (ctx.target.name,)))
    return " ".join(f"{name}={ctx.option(name)!r}" for name in names)


def _program_passes(ctx: CompileContext) -> list[str]:
    """The program passes in order, each with the version of the wheel it comes from, or its sources' hash."""
    specs = ctx.registry.passes_for("program", ctx.target.name)
    return [_with_version(spec.name, spec.load, ctx.registry.owners["passes", spec.name]) for spec in specs]


def target_text(ctx: CompileContext) -> str:
    """The target's name, and the version of the wheel that it comes from, or its sources' hash."""
    owner = ctx.registry.owners.get(("targets", ctx.target.name))
    return _with_version(ctx.target.name, type(ctx.target).__module__, owner)


def _with_version(name: str, module: str, owner: Owner | None) -> str:
    wheel = "" if owner is None else f"{owner.dist}-{owner.version}"
    return f"{name}@{wheel}-{code_hash(module.partition(':')[0])}"

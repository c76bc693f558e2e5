"""Compiled modules are found in the kernel cache one by one, or all of a graph's at once."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hidet.cache import CacheKey, KernelCache
from hidet.context import CompileContext, make_context, options_from
from hidet.host.code_cache import PACKED_FROM, keep_modules, module_key, pack, read_modules, unpack
from hidet.host.units import CompileUnit
from hidet.ir.func import Module
from hidet.plugins import OptionSpec


class _CountingCache(KernelCache):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.read: list[CacheKey] = []

    def get(self, key: CacheKey) -> bytes | None:
        self.read.append(key)
        return super().get(key)


@pytest.fixture
def cache(tmp_path: Path) -> _CountingCache:
    return _CountingCache(tmp_path)


@pytest.fixture
def ctx(cache: _CountingCache) -> CompileContext:
    return replace(make_context("cpu", {"cache": False}), cache=cache)


def _units(*names: str) -> dict[str, CompileUnit]:
    return {name: CompileUnit(Module((), name), f"digest of {name}", effort=3) for name in names}


def _code(units: dict[str, CompileUnit]) -> dict[str, bytes]:
    return {name: name.encode() * 3 for name in units}


def test_what_is_packed_is_unpacked() -> None:
    code = {"a": b"\0\1", "b": b"", "c_ü": b"third"}
    assert unpack(pack(code)) == code
    assert list(unpack(pack(code))) == list(code)


def test_a_graph_that_was_compiled_before_reads_one_entry(ctx: CompileContext, cache: _CountingCache) -> None:
    units = _units(*"abcdefgh")
    assert read_modules(units, ctx) == {}
    keep_modules(units, {}, _code(units), ctx)
    cache.read.clear()
    assert read_modules(units, ctx) == _code(units)
    assert len(cache.read) == 1


def test_graphs_share_modules(ctx: CompileContext) -> None:
    first, second = _units("a", "b", "c", "d"), _units("b", "c", "d", "e")
    keep_modules(first, {}, _code(first), ctx)
    shared = _code(_units("b", "c", "d"))
    assert read_modules(second, ctx) == shared
    keep_modules(second, shared, _code(_units("e")), ctx)
    assert read_modules(second, ctx) == _code(second)


def test_modules_of_another_effort_are_others(ctx: CompileContext) -> None:
    units = _units("a", "b", "c", "d")
    keep_modules(units, {}, _code(units), ctx)
    assert read_modules({**units, "a": replace(units["a"], effort=1)}, ctx) == _code(_units("b", "c", "d"))


def test_few_modules_are_kept_once(ctx: CompileContext, cache: _CountingCache) -> None:
    units = _units(*"abc"[: PACKED_FROM - 1])
    keep_modules(units, {}, _code(units), ctx)
    assert cache.status().entries == len(units)
    assert read_modules(units, ctx) == _code(units)


def test_the_name_of_the_targets_wheel_is_part_of_the_key(ctx: CompileContext) -> None:
    owner = ctx.registry.owners["targets", "cpu"]
    (name, unit), *_ = _units("a").items()
    for change in ({"dist": "acme-cpu"}, {"version": "2.0"}):
        other = {**ctx.registry.owners, ("targets", "cpu"): replace(owner, **change)}
        newer = replace(ctx, registry=replace(ctx.registry, owners=other))
        assert module_key(name, unit, newer).digest != module_key(name, unit, ctx).digest


@pytest.mark.parametrize(("targets", "is_part"), [((), True), (("loom", "cpu"), True), (("loom",), False)])
def test_options_that_the_targets_code_depends_on_are_part_of_the_key_and_others_are_not(
    ctx: CompileContext, targets: tuple[str, ...], is_part: bool
) -> None:
    spec = OptionSpec(name="loom.speed", type=int, default=1, affects_cache=True, targets=targets, doc="Speed.")
    (name, unit), *_ = _units("a").items()
    registry = replace(ctx.registry, options={"loom.speed": spec})
    digests = {
        module_key(name, unit, replace(ctx, registry=registry, options=options_from({"loom.speed": speed}))).digest
        for speed in (1, 2)
    }
    assert len(digests) == (2 if is_part else 1)


def test_a_target_of_no_file_is_compiled_anew(ctx: CompileContext, monkeypatch: pytest.MonkeyPatch) -> None:
    class Target(type(ctx.target)):  # type: ignore[misc]  # the class of the target that is there
        __module__ = "my_notebook"

    monkeypatch.setitem(sys.modules, "my_notebook", ModuleType("my_notebook"))
    units = _units("a", "b", "c", "d")
    own = replace(ctx, target=Target())
    keep_modules(units, {}, _code(units), own)
    assert read_modules(units, own) == {}


def test_another_version_of_the_targets_wheel_reads_nothing_of_the_one_before(ctx: CompileContext) -> None:
    """plugin-friction.md bug 10: a target whose `fingerprint` forgets its own version."""
    units = _units("a", "b", "c", "d")
    keep_modules(units, {}, _code(units), ctx)
    owner = ctx.registry.owners["targets", "cpu"]
    newer = {**ctx.registry.owners, ("targets", "cpu"): replace(owner, version="2.0")}
    assert read_modules(units, replace(ctx, registry=replace(ctx.registry, owners=newer))) == {}
    assert read_modules(units, ctx) == _code(units)

"""When modules are lowered, and what a target is given of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from hidet.cache import open_cache
from hidet.compiler import binaries
from hidet.context import CompileContext, make_context
from hidet.host.units import CompileUnit
from hidet.ir.func import Function, Module
from hidet.ir.stmt import Seq
from hidet.target import Binary, CompileJob

NAMES = ("first", "second", "third")
UNITS = {name: CompileUnit(Module((Function(name, (), Seq(())),), name), f"digest of {name}", 1) for name in NAMES}


class RecordingTarget:
    """A target that takes one module after the other, and records it."""

    name, device, arch = "cpu", "cpu", "none"

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def fingerprint(self) -> dict[str, str]:
        return {}

    def compile(self, jobs: Iterable[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        made = []
        for job in jobs:
            self.events.append(f"{job.name} compiled")
            made.append(Binary(job.name, job.name.encode()))
        return made


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order."""
    order: list[str] = []

    def lower(module: Module, ctx: CompileContext) -> Module:
        order.append(f"{module.entry} lowered")
        return module

    monkeypatch.setattr(binaries, "run_program_passes", lower)
    return order


@pytest.fixture
def ctx(events: list[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> CompileContext:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    return replace(make_context("cpu"), target=RecordingTarget(events), cache=open_cache(enabled=True))


def test_modules_are_lowered_one_by_one_while_the_target_compiles_those_before(events, ctx):
    made, cached = binaries.compile_modules(UNITS, ctx)
    assert events == [f"{name} {done}" for name in NAMES for done in ("lowered", "compiled")]
    assert made == [Binary(name, name.encode()) for name in NAMES] and cached == 0


def test_what_the_cache_has_is_neither_lowered_nor_compiled(events, ctx):
    binaries.compile_modules({"second": UNITS["second"]}, ctx)
    events.clear()
    made, cached = binaries.compile_modules(UNITS, ctx)
    assert events == [f"{name} {done}" for name in ("first", "third") for done in ("lowered", "compiled")]
    assert [binary.name for binary in made] == list(NAMES) and cached == 1
    events.clear()
    assert binaries.compile_modules(UNITS, ctx) == (made, 3)
    assert events == []


def test_who_wants_to_see_modules_lowered_sees_those_of_the_cache_too(events, ctx):
    binaries.compile_modules(UNITS, ctx)
    events.clear()
    binaries.compile_modules(UNITS, replace(ctx, options=replace(ctx.options, verify=True)))
    assert events == [f"{name} lowered" for name in NAMES]

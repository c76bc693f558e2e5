"""Constants of devices: kept as JSON beside the kernel cache, read by cost models, never needed by a compilation."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hidet.errors import CacheWarning, OptionError
from hidet.schedule.device_constants import (
    constants_path,
    ensure_constants,
    known_constants,
    measure_constants,
    published_constants,
)
from hidet.target.constants import DeviceConstants, MemoryLevel, constants_from_json, constants_to_json

PUBLISHED = DeviceConstants(
    device="anvil",
    cores=4,
    launch=1e-6,
    item=1e-9,
    fma={"float32": 1e11},
    matrix={"float16": 1e12},
    fma_latency=1e-9,
    memory_latency=1e-7,
    levels=(MemoryLevel("L1", 1 << 15, 2e11, 8e11), MemoryLevel("memory", 0, 1e10, 2e10)),
)


class Anvil:
    """A target whose every measurement is a little slower than the one before."""

    name = "anvil"

    def __init__(self) -> None:
        self.measured = 0

    def device_name(self) -> str:
        return "Anvil (TM) 3/4"

    def published_constants(self) -> DeviceConstants:
        return PUBLISHED

    def measure_constants(self, ctx: Any) -> DeviceConstants:
        self.measured += 1
        return replace(PUBLISHED, launch=self.measured * 1e-6, is_measured=True)


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch) -> Any:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))
    return SimpleNamespace(target=Anvil(), machine=None)


def test_constants_survive_json() -> None:
    assert constants_from_json(json.loads(json.dumps(constants_to_json(PUBLISHED)))) == PUBLISHED


def test_the_level_of_an_array_is_the_nearest_that_keeps_it() -> None:
    assert [PUBLISHED.level_of(nbytes).name for nbytes in (0, 1 << 15, (1 << 15) + 1)] == ["L1", "L1", "memory"]
    assert PUBLISHED.level("L2") is PUBLISHED.memory


def test_until_a_device_is_measured_its_published_constants_are_used_and_nothing_is_written(ctx, tmp_path) -> None:
    assert known_constants(ctx) == published_constants(ctx) == PUBLISHED
    assert ctx.target.measured == 0 and not (tmp_path / "cache").exists()


def test_what_was_measured_is_kept_for_this_user_alone_and_used_from_then_on(ctx, tmp_path) -> None:
    found = measure_constants(ctx)
    path = constants_path(ctx)
    assert path == tmp_path / "cache" / "devices" / "anvil-anvil-tm-3-4.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert known_constants(ctx) == ensure_constants(ctx) == found and found.is_measured
    assert ctx.target.measured == 1


def test_defaults_never_see_what_was_measured(ctx) -> None:
    measure_constants(ctx)
    assert published_constants(ctx) == PUBLISHED


def test_measuring_again_replaces_what_was_known(ctx) -> None:
    ensure_constants(ctx)
    assert ensure_constants(ctx).launch == 1e-6
    measure_constants(ctx)
    os.utime(constants_path(ctx), ns=(1, 1))
    assert known_constants(ctx).launch == 2e-6


def test_code_for_another_machine_takes_published_constants_and_cannot_measure(ctx) -> None:
    measure_constants(ctx)
    ctx.machine = "anvil-2"
    assert known_constants(ctx) == PUBLISHED
    with pytest.raises(OptionError, match="anvil-2 is another machine"):
        measure_constants(ctx)


def test_a_target_without_models_has_no_constants() -> None:
    ctx: Any = SimpleNamespace(target=SimpleNamespace(name="plain"), machine=None)
    assert known_constants(ctx) is published_constants(ctx) is None
    with pytest.raises(OptionError, match="target 'plain' has no cost models"):
        measure_constants(ctx)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 0}, "format 1"),
        ({"launch": "soon"}, "launch: expected a finite number"),
        ({"launch": float("nan")}, "launch: expected a finite number"),
        ({"fma": {"float32": 0}}, "float32: expected a finite number of at least 1"),
        ({"levels": []}, "levels: expected a list of one at least"),
        ({"levels": [{"name": "L1"}]}, "fields of MemoryLevel"),
        ({"cores": True}, "cores: expected a finite number"),
        ({"surprise": 1}, "expected the keys"),
    ],
)
def test_a_file_with_a_wrong_field_is_refused_with_its_name(ctx, change, message) -> None:
    measure_constants(ctx)
    path = constants_path(ctx)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    os.utime(path, ns=(7, 7))
    with pytest.warns(CacheWarning, match=message):
        assert known_constants(ctx) == PUBLISHED


def test_a_damaged_file_and_one_that_others_may_write_are_refused(ctx) -> None:
    measure_constants(ctx)
    path = constants_path(ctx)
    path.write_bytes(b"{")
    os.utime(path, ns=(3, 3))
    with pytest.warns(CacheWarning, match="not used"):
        assert known_constants(ctx) == PUBLISHED
    measure_constants(ctx)
    path.chmod(0o666)
    os.utime(path, ns=(4, 4))
    with pytest.warns(CacheWarning, match="can be written by"):
        assert known_constants(ctx) == PUBLISHED


def test_a_directory_that_cannot_be_made_costs_a_warning(ctx, tmp_path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.warns(CacheWarning, match="cannot write"):
        assert measure_constants(ctx).is_measured

"""What cost models know of a device: rates, bandwidths and delays, published for an architecture or measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.target import Target

FORMAT = 1
"""Of constants as JSON. Files of another format are not read."""

_LATENCY_CYCLES = 4


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """A cache, or the memory behind all of them.

    name: "L1", "L2", "L3", "memory". nbytes: what a core can keep in it; 0 for memory, which keeps everything.
    core_bandwidth: bytes a second that one core reads while the others rest. device_bandwidth: that all read together.
    """

    name: str
    nbytes: int
    core_bandwidth: float
    device_bandwidth: float


@dataclass(frozen=True, slots=True)
class DeviceConstants:
    """Numbers of one device that its schedules' cost models compute times from. Units are seconds and bytes.

    What limits how many blocks a GPU's multiprocessor holds are facts of `hidet.target.GpuTarget`, not of this class.

    device: its name, or the architecture's whose published numbers these are.
    cores: of a CPU, those that the process may use; of a GPU, its multiprocessors.
    launch: from a launch to its end where there is nothing to do.
    item: what each grid index of a CPU, or block of a GPU, adds to that on the core that runs it.
    fma: multiply-adds a second of one core by its vector or scalar units, by the name of the accumulators' type.
    matrix: multiply-adds a second of one core by its matrix units, by the name of the factors' type; empty without.
    fma_latency: from a multiply-add's operands to its result, which the next one may add to.
    memory_latency: of a read that no cache answers.
    levels: from the nearest to memory, which is the last one.
    is_measured: on the device, rather than published for its architecture.
    """

    device: str
    cores: int
    launch: float
    item: float
    fma: Mapping[str, float]
    matrix: Mapping[str, float]
    fma_latency: float
    memory_latency: float
    levels: tuple[MemoryLevel, ...]
    is_measured: bool = False

    @property
    def cycle(self) -> float:
        """Of the clock, in which models count what is the same on all devices of a kind: a multiply-add takes four of
        them on the processors and GPUs that there are models for."""
        return self.fma_latency / _LATENCY_CYCLES

    @property
    def memory(self) -> MemoryLevel:
        """The last level."""
        return self.levels[-1]

    def level(self, name: str) -> MemoryLevel:
        """The level of a name; memory where the device has no such cache."""
        return next((level for level in self.levels if level.name == name), self.memory)

    def level_of(self, nbytes: float) -> MemoryLevel:
        """The nearest level that keeps as many bytes of one core."""
        return next((level for level in self.levels[:-1] if nbytes <= level.nbytes), self.memory)


class MeasurableTarget(Protocol):
    """A target whose schedules have cost models: what `Target` may offer besides."""

    @property
    def name(self) -> str:
        """Of the target."""

    def device_name(self) -> str:
        """What measured constants are kept under: the device as its vendor names it. LaunchError where it is not
        there."""

    def published_constants(self) -> DeviceConstants:
        """Those of a usual device of the architecture, the same on every machine but for `cores`."""

    def measure_constants(self, ctx: CompileContext) -> DeviceConstants:
        """Those of the device, measured in less than two seconds by kernels that `ctx` compiles. LaunchError where it
        is not there."""


def measurable(target: Target) -> MeasurableTarget | None:
    """The target, of which constants are going to be asked; None for one without."""
    return cast(MeasurableTarget, target) if _is_measurable(type(target)) else None


@cache
def _is_measurable(kind: type) -> bool:
    return all(hasattr(kind, name) for name in ("device_name", "published_constants", "measure_constants"))


def constants_to_json(constants: DeviceConstants) -> dict[str, Any]:
    """Plain data, which `constants_from_json` takes."""
    return {"format": FORMAT, **asdict(constants)}


def constants_from_json(given: object) -> DeviceConstants:
    """Constants from plain data that anybody may have written. ValueError says what is wrong with them."""
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise ValueError(f"expected an object of format {FORMAT}")
    names = {field.name for field in fields(DeviceConstants)}
    if given.keys() != names | {"format"}:
        raise ValueError(f"expected the keys {', '.join(sorted(names))}, got {', '.join(sorted(map(str, given)))}")
    levels = given["levels"]
    if not isinstance(levels, list) or not levels:
        raise ValueError("levels: expected a list of one at least")
    return DeviceConstants(
        device=_text(given, "device"),
        cores=int(_number(given, "cores", least=1)),
        launch=_number(given, "launch"),
        item=_number(given, "item"),
        fma=_rates(given, "fma"),
        matrix=_rates(given, "matrix"),
        fma_latency=_number(given, "fma_latency"),
        memory_latency=_number(given, "memory_latency"),
        levels=tuple(map(_level, levels)),
        is_measured=given["is_measured"] is True,
    )


def _level(given: object) -> MemoryLevel:
    if not isinstance(given, dict) or given.keys() != {field.name for field in fields(MemoryLevel)}:
        raise ValueError(f"levels: expected objects with the fields of MemoryLevel, got {given!r}")
    return MemoryLevel(
        _text(given, "name"),
        int(_number(given, "nbytes")),
        _number(given, "core_bandwidth", least=1),
        _number(given, "device_bandwidth", least=1),
    )


def _text(given: Mapping[str, object], key: str) -> str:
    value = given[key]
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected text, got {value!r}")
    return value


def _number(given: Mapping[str, object], key: str, least: float = 0) -> float:
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise ValueError(f"{key}: expected a finite number of at least {least:g}, got {value!r}")
    return float(value)


def _rates(given: Mapping[str, object], key: str) -> dict[str, float]:
    value = given[key]
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object, got {value!r}")
    return {str(name): _number(value, name, least=1) for name in value}

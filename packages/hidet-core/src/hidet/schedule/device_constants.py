"""Which constants of a device cost models use, and where measured ones are kept: JSON files beside the kernel cache.

A compilation measures nothing, and the parameters that rules choose by themselves (`default`) come from published
constants alone: the same code on every machine of an architecture, whoever has measured what. Measured constants act on
`predict`, by which a tuner ranks what it is going to measure anyhow.
"""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from pathlib import Path

from hidet import option
from hidet.cache import cache_directory
from hidet.context import CompileContext
from hidet.errors import CacheWarning, OptionError
from hidet.private_files import distrust_directory, make_private, open_private, publish
from hidet.target.constants import DeviceConstants, constants_from_json, constants_to_json, measurable

_MOST_BYTES = 1 << 20


def published_constants(ctx: CompileContext) -> DeviceConstants | None:
    """Those of the architecture that a compilation is for; None for a target without cost models."""
    target = measurable(ctx.target)
    return None if target is None else target.published_constants()


def known_constants(ctx: CompileContext) -> DeviceConstants | None:
    """Those that were measured on the device that a compilation is for, else the published ones; None for a target
    without cost models. Measures nothing. CacheWarning for a file that cannot be used."""
    target = measurable(ctx.target)
    if target is None:
        return None
    # Code for another machine is not for this device.
    found = None if ctx.machine is not None else read_constants(constants_path(ctx))
    return found or target.published_constants()


def measure_constants(ctx: CompileContext) -> DeviceConstants:
    """Measure the device that a compilation is for, and keep what was found. Takes up to two seconds.

    OptionError for a target without cost models or code for another machine, LaunchError where there is no device; a
    file that cannot be written costs a CacheWarning.
    """
    target = measurable(ctx.target)
    if target is None:
        raise OptionError(f"target {ctx.target.name!r} has no cost models, so there is nothing to measure")
    if ctx.machine is not None:
        raise OptionError(f"{ctx.machine} is another machine, expected this one", hint=f'write "{target.name}" alone')
    constants = target.measure_constants(ctx)
    path = constants_path(ctx)
    try:
        make_private(path.parent)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        publish(temporary, path, json.dumps(constants_to_json(constants), indent=2).encode())
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}"
        warnings.warn(CacheWarning(message, hint="the device is measured again next time"), stacklevel=2)
    return constants


def ensure_constants(ctx: CompileContext) -> DeviceConstants:
    """As `known_constants`, but a device that was never measured is measured now: what a tuner begins with."""
    found = known_constants(ctx)
    return found if found is not None and found.is_measured else measure_constants(ctx)


def constants_path(ctx: CompileContext) -> Path:
    """The file of a device, by the names of target and device."""
    target = measurable(ctx.target)
    assert target is not None
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{target.name} {target.device_name()}").strip("-").lower()
    return cache_directory(option.get_cache_dir()) / "devices" / f"{name}.json"


def read_constants(path: Path) -> DeviceConstants | None:
    """What a file says; None where there is none, or none that can be used, for which a CacheWarning says why."""
    try:
        stamp = os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return None
    return _read(path, stamp)


@functools.lru_cache(maxsize=16)
def _read(path: Path, stamp: int) -> DeviceConstants | None:
    """As `read_constants`; a file that changes has another time."""
    reason = distrust_directory(path.parent.parent, may_be_link=True)
    reason = reason or distrust_directory(path.parent, may_be_link=False)
    if reason is None:
        try:
            descriptor, info = open_private(path)
            with open(descriptor, "rb") as file:
                if info.st_size > _MOST_BYTES:
                    raise ValueError(f"it has {info.st_size} bytes")
                return constants_from_json(json.loads(file.read()))
        except (OSError, ValueError) as error:
            reason = str(error)
    message = f"constants of a device at {path} are not used: {reason}"
    warnings.warn(CacheWarning(message, hint="`hidet measure` writes the file again"), stacklevel=4)
    return None

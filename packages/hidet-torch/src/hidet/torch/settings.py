"""Options of a compilation: what `torch.compile` is given, and the settings of torch that they follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hidet.context import Options, options_from
from hidet.errors import OptionError
from hidet.torch.config import configured


def settings_of_torch() -> Mapping[str, Any]:
    """Options that follow torch, as it is set now."""
    return {
        "threads": torch.get_num_threads(),
        "tf32_products": torch.backends.cuda.matmul.fp32_precision == "tf32",
        # torch makes this module's attribute when it is imported, unseen by mypy.
        "tf32_convolutions": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
    }


def chosen_target(options: object) -> str | None:
    """The target that `options={"target": ...}` names; None leaves it to the device of the tensors."""
    target: object = options.get("target") if isinstance(options, Mapping) else None
    if target is not None and not isinstance(target, str):
        raise OptionError(f"option target takes the name of a target, got {target!r}", hint='"cpu", or "cuda"')
    return target


def torch_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Options as torch.compile passes them, without the target; those that follow `dynamo_config`, or torch, have its
    settings."""
    given = {**configured(), **as_mapping(options)}
    given.pop("target", None)
    if mode is not None:
        given["mode"] = mode
    return options_from(given).following(settings_of_torch())


def as_mapping(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Options as a mapping. OptionError for what is none."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(
            f"options is a {type(options).__name__}: expected a mapping of names to values",
            hint='options={"threads": 4}',
        )
    return options or {}

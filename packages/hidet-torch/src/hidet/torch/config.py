"""`hidet.torch.dynamo_config`: settings for `torch.compile(backend="hidet")` as scripts of earlier versions make them.

They hold from here on, for models that are compiled after them, where `torch.compile` is not given a mode or options
that say the same thing.
"""

from __future__ import annotations

import os
import warnings
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from hidet.errors import HidetWarning, OptionError


@dataclass(frozen=True, slots=True)
class _Settings:
    """None: nothing was said."""

    space: int = 0
    has_graphs: bool | None = None
    tensor_core: bool | None = None
    prints: bool = False
    compares: bool = False
    dump: str | None = None


_SETTINGS: ContextVar[_Settings] = ContextVar("hidet_dynamo_config", default=_Settings())  # noqa: B039  # it is frozen


class DynamoConfig:
    """Each method changes one setting and returns the object, so that calls can be chained."""

    def search_space(self, level: int = 2) -> DynamoConfig:
        """1, 2: what mode "max-autotune" of torch.compile does, where so many parameters of each schedule are measured:
        those that a cost model ranks first, or all."""
        if level not in (0, 1, 2):
            raise OptionError(f"search_space is 0, 1 or 2, got {level!r}")
        return self._set(space=level)

    def use_tensor_core(self, flag: bool = True) -> DynamoConfig:
        """Whether f32 is multiplied by tensor cores as well, with factors rounded to tf32. 16-bit floats always are."""
        return self._set(tensor_core=bool(flag))

    def use_cuda_graph(self, flag: bool = True) -> DynamoConfig:
        """Whether calls become CUDA graphs as soon as they can, or never; without it they do where sizes repeat."""
        return self._set(has_graphs=bool(flag))

    def print_input_graph(self, flag: bool = True) -> DynamoConfig:
        """Print the graph that torch hands over."""
        return self._set(prints=bool(flag))

    def dump_graph_ir(self, output_dir: str | os.PathLike[str]) -> DynamoConfig:
        """Write the graph after every pass to a directory, as option `dump` does."""
        return self._set(dump=os.fspath(output_dir))

    def use_attention(self, flag: bool = True) -> DynamoConfig:
        """Attention is one kernel always. False warns."""
        return self._always("use_attention", flag, True, "attention is recognised whatever it is made of")

    def parallel_k(self, strategy: str = "default") -> DynamoConfig:
        """Long sums are split where a model of the device says so. Another strategy warns."""
        return self._always("parallel_k", strategy, "default", "a model of the device decides what is split")

    def use_fp16(self, flag: bool = True) -> DynamoConfig:
        """True warns: models keep their types."""
        return self._always("use_fp16", flag, False, "convert the model, model.half(), or use torch.autocast")

    def use_fp16_reduction(self, flag: bool = True) -> DynamoConfig:
        """True warns: sums of 16-bit floats are kept in f32."""
        return self._always("use_fp16_reduction", flag, False, "sums of 16-bit floats are kept in f32")

    def steal_weights(self, flag: bool = True) -> DynamoConfig:
        """True warns: the model keeps its weights."""
        return self._always("steal_weights", flag, False, "option freeze=True bakes weights in and releases others")

    def correctness_report(self, flag: bool = True) -> DynamoConfig:
        """Print how far every operator's results are from torch's own, at the first call of each graph."""
        return self._set(compares=bool(flag))

    def reset(self) -> DynamoConfig:
        """Forget all settings."""
        _SETTINGS.set(_Settings())
        return self

    def _set(self, **changed: Any) -> DynamoConfig:
        _SETTINGS.set(replace(_SETTINGS.get(), **changed))
        return self

    def _always(self, name: str, given: object, expected: object, hint: str) -> DynamoConfig:
        if given != expected:
            what = f"dynamo_config.{name}({given!r}) is accepted and changes nothing"
            warnings.warn(HidetWarning(what, hint=hint), stacklevel=3)
        return self


def configured() -> dict[str, Any]:
    """Options of `hidet.context.Options` that the settings here mean."""
    settings = _SETTINGS.get()
    found: dict[str, Any] = {}
    if settings.space:
        found["mode"] = "max-autotune-no-cudagraphs" if settings.has_graphs is False else "max-autotune"
        found["search_space"] = settings.space
    elif settings.has_graphs is not None:
        found["mode"] = "reduce-overhead" if settings.has_graphs else "max-autotune-no-cudagraphs"
        found["search_space"] = 0
    if settings.tensor_core is not None:
        found |= dict.fromkeys(("tf32_products", "tf32_convolutions"), settings.tensor_core)
    if settings.dump is not None:
        found["dump"] = settings.dump
    return found


def prints_graphs() -> bool:
    """Whether graphs that torch hands over are printed."""
    return _SETTINGS.get().prints


def compares_results() -> bool:
    """Whether results are compared with torch's own at the first call."""
    return _SETTINGS.get().compares


dynamo_config = DynamoConfig()

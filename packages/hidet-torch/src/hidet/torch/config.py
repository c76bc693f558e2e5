"""`hidet.torch.dynamo_config`: settings for `torch.compile(backend="hidet")` as scripts of earlier versions make them.

They hold from here on, for models that are compiled after them, where `torch.compile` is not given a mode or options
that say the same thing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from hidet import option
from hidet.context import Options
from hidet.errors import OptionError
from hidet.plugins.host import load_registry


@dataclass(frozen=True, slots=True)
class _Settings:
    """None: nothing was said."""

    space: int = 0
    has_graphs: bool | None = None
    tensor_core: bool | None = None
    prints: bool = False
    compares: bool = False
    dump: str | None = None
    has_attention: bool = True
    splits: str | int = "default"
    is_half: bool = False
    sums_halves: bool = False
    is_frozen: bool = False


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
        """Whether attention is computed by one kernel, whatever it is written as, or by products and a softmax (which
        needs hidet-compat)."""
        return self._set(has_attention=bool(flag))

    def parallel_k(self, strategy: str | int = "default") -> DynamoConfig:
        """Into how many parts long sums of products are split on a GPU (split-k): as a model of the device says
        ("default"), none ("disabled"), as measured ("search"), or so many. OptionError for another strategy."""
        if strategy not in _SPLITS and (not isinstance(strategy, int) or isinstance(strategy, bool) or strategy < 1):
            known = ", ".join(map(repr, _SPLITS))
            raise OptionError(f"parallel_k is {known} or a number of parts, got {strategy!r}")
        return self._set(splits=strategy)

    def use_fp16(self, flag: bool = True) -> DynamoConfig:
        """Whether models of f32 compute in f16 where that is safe; inputs and results keep their types. Gradients are
        computed as without. Needs hidet-compat."""
        return self._set(is_half=bool(flag))

    def use_fp16_reduction(self, flag: bool = True) -> DynamoConfig:
        """Whether products of f16 are summed in f16 by matrix units, which loses digits, or in f32."""
        return self._set(sums_halves=bool(flag))

    def steal_weights(self, flag: bool = True) -> DynamoConfig:
        """Whether weights are baked in, and those released that only the model has: option `freeze`."""
        return self._set(is_frozen=bool(flag))

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
    if settings.is_frozen:
        found["freeze"] = True
    if settings.splits == "search":
        found.setdefault("search_space", 1)
    return found | _options_of_wheels(settings)


_SPLITS = {"default": 0, "search": 0, "disabled": 1}
"""Option `gpu.split_k` by the names of strategies."""


def _options_of_wheels(settings: _Settings) -> dict[str, Any]:
    """Those that settings ask for beyond the defaults; those of targets that are not installed have nothing to say.
    OptionError where hidet-compat is missing."""
    splits = settings.splits
    wishes: dict[str, Any] = {
        "compat.precision": "float16" if settings.is_half else None,
        "compat.attention": None if settings.has_attention else False,
        "cuda.fp16_accumulation": settings.sums_halves or None,
        "gpu.split_k": (_SPLITS[splits] if isinstance(splits, str) else splits) or None,
    }
    found = {name: value for name, value in wishes.items() if value is not None}
    known = load_registry().options if found else {}
    missing = [name for name in found if name.startswith("compat.") and name not in known]
    if missing:
        raise OptionError(f"dynamo_config asks for option {missing[0]}", hint="pip install hidet-compat")
    return {name: value for name, value in found.items() if name in known}


@contextmanager
def settings_by_name(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Options of torch.compile without those that are named as settings of `dynamo_config` or `hidet.option`, which
    hold in the block, as hidet 0.6 had it."""
    own = {*(f.name for f in fields(Options)), *load_registry().options, "target"}
    kept: dict[str, Any] = {}
    token = _SETTINGS.set(_SETTINGS.get())
    try:
        with option.context():
            for name, value in given.items():
                if name in own:
                    kept[name] = value
                elif name in _BY_NAME:
                    getattr(dynamo_config, name)(value)
                elif option.is_option_exist(str(name)):
                    option.set_option(name, value)
                else:
                    kept[name] = value
            yield kept
    finally:
        _SETTINGS.reset(token)


_BY_NAME = frozenset(
    (
        *("use_tensor_core", "use_cuda_graph", "print_input_graph", "dump_graph_ir", "correctness_report"),
        *("use_attention", "parallel_k", "use_fp16", "use_fp16_reduction", "steal_weights"),
    )
)
"""Settings of `dynamo_config` that options may name."""


def prints_graphs() -> bool:
    """Whether graphs that torch hands over are printed."""
    return _SETTINGS.get().prints


def compares_results() -> bool:
    """Whether results are compared with torch's own at the first call."""
    return _SETTINGS.get().compares


dynamo_config = DynamoConfig()

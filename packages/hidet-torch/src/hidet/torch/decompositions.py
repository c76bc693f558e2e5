"""Which aten operators are taken apart before import: all that torch or `composed` can, but for those that core has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hidet.torch import compat
from hidet.torch.composed import composed, corrected
from hidet.torch.foreach import foreach
from hidet.torch.mapping import table

# Would turn attention into products, a softmax and the masks of its safe variant, which nothing puts together again.
_KEPT_WHOLE = (
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten.scaled_dot_product_attention.default",
)

# Taken apart by torch in ways that are not among its core decompositions.
_FURTHER = (
    "aten.batch_norm_backward.default",
    "aten.dist.default",
    "aten.cauchy.default",
    "aten.log_normal.default",
    "aten.native_batch_norm.default",
    "aten.tril_indices.default",
    "aten.triu_indices.default",
)


@cache
def decompositions(mapped: frozenset[str] = frozenset()) -> Mapping[Any, Callable[..., Any]]:
    """Operator -> its decomposition. mapped: operators that plug-ins map, which are kept whole."""
    handled = {*table(), *_KEPT_WHOLE, *mapped}
    rules = {**compat.core_decompositions(), **compat.decompositions_of(_FURTHER), **composed(), **foreach()}
    return {**corrected(), **{target: rule for target, rule in rules.items() if str(target) not in handled}}

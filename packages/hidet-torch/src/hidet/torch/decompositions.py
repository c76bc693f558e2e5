"""Which aten operators are taken apart before import: all that torch can, but for those that core has itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hidet.torch import compat
from hidet.torch.mapping import table

# Would turn attention into products, a softmax and the masks of its safe variant, which nothing puts together again.
_KEPT_WHOLE = (
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten.scaled_dot_product_attention.default",
)


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Operator -> its decomposition."""
    handled = {*table(), *_KEPT_WHOLE}
    return {target: rule for target, rule in compat.core_decompositions().items() if str(target) not in handled}

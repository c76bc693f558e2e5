"""Custom calls that are known, tokens, tuples, and what only orders or places execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.errors import ImportFailed
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter
from hidet.stablehlo.items import Item

# Calls that say where something is to be, or how it may be compiled.
_HINTS = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "after_all": lambda e, *tokens, **_: None,
        "create_token": lambda e, **_: None,
        "custom_call shape_assertion": _assert_shape,
        "get_tuple_element": _element,
        "optimization_barrier": lambda e, *items, **_: items,
        "tuple": lambda e, *items, **_: (items,),
        **{f"custom_call {name}": lambda e, x, **_: x for name in _HINTS},
    }


def _assert_shape(e: Emitter, holds: Value, *_: Value, **attributes: Any) -> tuple[()]:
    """What jax.export asserts of sizes: refused where it is known not to hold. A size of another call is checked by
    what the graph takes for granted of its shapes."""
    found = e.contents(holds)
    if found is not None and found.size == 1 and found.reshape(-1)[0] in (False, 0):
        raise ImportFailed(str(attributes.get("error_message", "an assertion of shapes does not hold")))
    return ()


def _element(e: Emitter, items: Item, index: Any, **_: Any) -> Item:
    if not isinstance(items, tuple) or not 0 <= int(index) < len(items):
        raise ImportFailed(f"{e.operator} {index} of what has no such element")
    found = items[int(index)]
    return (found,) if isinstance(found, tuple) else found

"""The rules that users have registered for graphs of this process. Every compilation asks for them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

REWRITE_RULES: dict[str, Any] = {}
"""`hidet.graph.transforms.SubgraphRewriteRule`s by name."""
RESOLVE_RULES: dict[Hashable, Any] = {}
"""`hidet.graph.transforms.ResolveRule`s by the class of their operators."""
QUANTIZE_RULES: list[tuple[Any, ...]] = []
"""Rules that contexts have asked for; option `compat.quantize` of a compilation is the number of its own."""

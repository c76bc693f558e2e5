"""What is told of nodes, and of graphs, that run in torch: why, and how often."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from hidet.errors import FallbackWarning, ImportFailed, UnsupportedOp
from hidet.loc import Loc


@dataclass(frozen=True, slots=True)
class EagerNode:
    """One node that runs in torch: its operator, why core does not run it, and its place in the model."""

    name: str
    reason: str
    loc: Loc | None


class NeedsTorch(ImportFailed):
    """A graph that only torch runs as eager mode does, whole: a node of it asks how tensors lie in their storages."""

    def nodes(self) -> list[EagerNode]:
        """The graph, as what runs in torch."""
        return [EagerNode("the whole graph", self.message, self.loc)]


def refused_by_torch(error: Exception) -> NeedsTorch | None:
    """What to raise where AOTAutograd refuses to trace a graph; None where hidet has failed."""
    frames = traceback.extract_tb(error.__traceback__)
    is_of_torch = Path(torch.__file__).parent in Path(frames[-1].filename).parents
    # Classes below these are hidet's errors, and dynamo's ways to begin again.
    if type(error) not in (AssertionError, RuntimeError) or not is_of_torch:
        return None
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return NeedsTorch(f"torch's AOTAutograd cannot trace it: {reason}")


def describe(nodes: Sequence[EagerNode]) -> str:
    """One line an operator: how often, the first place, why."""
    counts = Counter(node.name for node in nodes)
    first = {node.name: node for node in reversed(nodes)}
    return "\n".join(
        f"  {name} ({count}x) at {first[name].loc or 'unknown place'}: {first[name].reason}"
        for name, count in sorted(counts.items())
    )


def _count(nodes: Sequence[EagerNode]) -> str:
    return "1 node of the graph runs" if len(nodes) == 1 else f"{len(nodes)} nodes of the graph run"


def fallback_warning(nodes: Sequence[EagerNode]) -> FallbackWarning:
    """The one warning of a compilation with eager nodes."""
    return FallbackWarning(
        f"{_count(nodes)} in torch instead of compiled code:\n{describe(nodes)}",
        hint='options={"strict": True} makes this an error',
    )


def refusal(nodes: Sequence[EagerNode]) -> UnsupportedOp:
    """The error of a strict compilation with eager nodes; it names all of them."""
    return UnsupportedOp(
        f"{_count(nodes)} in torch only, which option strict forbids:\n{describe(nodes)}",
        hint="drop option strict to run them in torch",
    )

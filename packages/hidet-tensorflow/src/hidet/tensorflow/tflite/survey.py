"""Which operators of a TFLite model cannot be imported, all at once."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.errors import UnsupportedOp
from hidet.frontend import Handler
from hidet.tensorflow.tflite.loader import LiteModel


def unknown_operators(model: LiteModel, graph: int, handlers: Mapping[str, Handler]) -> dict[str, tuple[str, ...]]:
    """Operators without a handler in a sub-graph and in those that its nodes name, with names of their results."""
    missing: dict[str, list[str]] = {}
    seen, waiting = {graph}, [graph]
    while waiting:
        here = model.graphs[waiting.pop()]
        for node in here.nodes:
            if node.operator not in handlers:
                name = here.tensors[node.outputs[0]].name if node.outputs else f"node {node.number}"
                missing.setdefault(node.operator, []).append(name)
            for name, number in node.options.items():
                if name.endswith("_subgraph") and 0 <= number < len(model.graphs) and number not in seen:
                    seen.add(number)
                    waiting.append(number)
    return {operator: tuple(names) for operator, names in sorted(missing.items())}


def require_supported(model: LiteModel, graph: int, handlers: Mapping[str, Handler]) -> None:
    """UnsupportedOp with the whole list of operators that are not known."""
    missing = unknown_operators(model, graph, handlers)
    if missing:
        lines = "\n".join(f"  {operator}: {', '.join(map(repr, names[:5]))}" for operator, names in missing.items())
        raise UnsupportedOp(
            f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of {model.name} cannot be imported:\n{lines}",
            hint="operators of TensorFlow inside of the file (Flex…) need the model as it was before: a SavedModel",
        )

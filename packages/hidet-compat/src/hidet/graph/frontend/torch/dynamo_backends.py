"""`torch.compile(model, backend="hidet")` by its place in hidet 0.6."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def hidet_backend(graph_module: Any, example_inputs: Any, **kwargs: Any) -> Any:
    """What torch.compile calls: a function of the signature of the graph."""
    return import_module("hidet.torch.backend").compile_fx(graph_module, example_inputs, **kwargs)


def register_dynamo_backends() -> None:
    """Nothing to do: torch finds hidet-torch where it is installed."""

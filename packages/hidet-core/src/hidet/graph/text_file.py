"""Graphs in files, in the text form that hidet prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hidet.errors import ImportFailed
from hidet.graph.graph import Graph
from hidet.graph.parser import parse_graph

if TYPE_CHECKING:
    from hidet.context import CompileContext


def import_text(model: str | os.PathLike[str], example_inputs: object, ctx: CompileContext) -> Graph:
    """The graph in a file. ImportFailed when there is none, or for example inputs: the text says all types itself."""
    if example_inputs is not None:
        raise ImportFailed(f"{model} says the types of its inputs itself: example inputs are not read")
    try:
        text = Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{model} cannot be read: {error}") from error
    return parse_graph(text, ctx.registry.operators)

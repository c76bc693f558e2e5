"""What importers do around handlers: errors of a foreign node, inputs that are given as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hidet.errors import HidetError, ImportFailed
from hidet.frontend.loops import NotRows
from hidet.graph import Graph, Value
from hidet.graph.graph import Constant
from hidet.loc import Loc


@contextmanager
def translating(
    loc: Loc, operator: str, parts: str = "operands or attributes", hint: str | None = None
) -> Iterator[None]:
    """Errors of what writes a node say where in the model that is; what is no HidetError becomes ImportFailed.

    Handlers rely on what formats promise of types and attributes, which nobody has checked. parts: what a node of the
    format has, as the error names it. NotRows goes through.
    """
    try:
        yield
    except HidetError as error:
        error.loc = error.loc or loc
        raise
    except NotRows:
        raise
    except RecursionError as error:
        raise ImportFailed(f"{operator} is nested too deeply", loc=loc) from error
    except Exception as error:
        raise ImportFailed(
            f"{operator} has {parts} that it cannot have: {type(error).__name__}: {error}", loc=loc, hint=hint
        ) from error


def require_names(names: Sequence[str], *, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """ImportFailed where a shape or a value is given for what is none of a model's inputs."""
    for what, given in (("value", values), ("shape", shapes)):
        for name in given:
            if name not in names:
                raise ImportFailed(f"a {what} is given for {name!r}, which is no input: {', '.join(names)}")


def with_constants(graph: Graph, arrays: Mapping[Value, Any]) -> Graph:
    """The graph with those inputs as constants that arrays are given for."""
    constants = {value: Constant(arrays[value]) for value in graph.inputs if value in arrays}
    inputs = tuple(value for value in graph.inputs if value not in arrays)
    return replace(graph, inputs=inputs, constants={**graph.constants, **constants})

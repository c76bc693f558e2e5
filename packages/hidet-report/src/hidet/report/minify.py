"""The smallest part of a model that shows the same fault: a compilation that fails, or a wrong result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hidet.compiler.graphs import ImportedModel, compile_graph, import_model
from hidet.errors import HidetError, OptionError
from hidet.graph.graph import Graph, Node
from hidet.report.checking import check_accuracy
from hidet.report.reference import Reference, Unknown
from hidet.report.repro import write_failure, write_wrong
from hidet.report.table import Array

Fails = Callable[[Graph], bool]
"""Whether a graph shows the fault."""


@dataclass(frozen=True, slots=True, eq=False)
class Minified:
    """A part of a model. graph: it; what: the fault, in words. script: what was written."""

    graph: Graph
    what: str
    script: str


def minify_model(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None,
    script: str | Path,
    *,
    target: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Minified:
    """Find the smallest part of a model whose compilation fails as the whole's does, or that computes wrong results,
    and write a script that shows it.

    model, example_inputs, target, options: as `hidet.compile` takes them; a model that a front-end cannot import is
    none of the compiler's faults, and raises as it does there. HidetError where the model has no fault.
    """
    imported = import_model(model, example_inputs, target=target, options=options)
    return minify_imported(imported, _arrays(example_inputs), Path(script))


def minify_imported(imported: ImportedModel, inputs: Sequence[Array], script: Path) -> Minified:
    """As `minify_model`, of a graph and arrays for its inputs."""
    ctx = replace(imported.ctx, options=replace(imported.ctx.options, tune=None, dump=None))
    failure = _failure(imported.graph, ctx)
    if failure is not None:
        kind, message = type(failure), _first_line(failure)
        small = minify(imported.graph, lambda graph: type(_failure(graph, ctx)) is kind)
        what = f"{kind.__name__}: {message}"
        write_failure(script, small, what, ctx)
        return Minified(small, what, str(script))
    compiled = compile_graph(imported.graph, ctx, imported.signature)
    given = dict(zip(imported.graph.inputs, inputs, strict=True))
    found = check_accuracy(compiled, *inputs)
    if found.is_right:
        raise HidetError(f"the model has no fault to find: {found.verdict}")
    reference = Reference(imported.graph, {}, is_wide=False)
    for value, array in given.items():
        reference.give(value, array)
    for value, constant in imported.graph.constants.items():
        reference.give(value, constant.numpy())

    def values_for(graph: Graph) -> list[Array]:
        return [reference.value(value) for value in graph.inputs]

    def is_wrong(graph: Graph) -> bool:
        try:
            return not check_accuracy(compile_graph(graph, ctx), *values_for(graph)).is_right
        except (HidetError, Unknown):
            return False

    small = minify(imported.graph, is_wrong)
    wrong = check_accuracy(compile_graph(small, ctx), *values_for(small)).first_wrong
    assert wrong is not None
    write_wrong(script, small, values_for(small), ctx, f"{wrong.kernel}: {wrong.problem}")
    return Minified(small, wrong.problem, str(script))


def minify(graph: Graph, fails: Fails) -> Graph:
    """A small part of a graph that still fails; what it reads of the rest are its inputs.

    Looks for a short beginning by halving, then for a late start, then leaves out node by node. A step is kept where
    what is left fails. The graph itself where no part that ends with one of its nodes does; OptionError where the graph
    does not fail.
    """
    if not fails(graph):
        raise OptionError("the graph that is to be made smaller does not fail")
    nodes = list(graph.nodes)
    end = _least(1, len(nodes), lambda end: fails(_part(graph, nodes[:end])))
    ends = [end, *range(len(nodes), 0, -1)]
    found = next((end for end in ends if fails(_part(graph, nodes[:end]))), None)
    if found is None:
        return graph
    nodes = _needed(nodes[:found])
    length = _least(1, len(nodes), lambda length: fails(_part(graph, nodes[-length:])))
    if fails(_part(graph, nodes[-length:])):
        nodes = _needed(nodes[-length:])
    for node in nodes[:-1]:
        fewer = [each for each in nodes if each is not node]
        if node in nodes and fails(_part(graph, fewer)):
            nodes = _needed(fewer)
    return _part(graph, nodes)


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """A number at which something holds, and not at the one before, as far as halving finds it; `high`, where it holds
    at none that was tried."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _needed(nodes: Sequence[Node]) -> list[Node]:
    wanted = set(nodes[-1].outputs)
    kept: list[Node] = []
    for node in reversed(nodes):
        if node is nodes[-1] or not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.values)
    return kept[::-1]


def _part(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """The graph of what the last of some nodes needs of them; values that others make are inputs."""
    kept = _needed(nodes)
    made = {value for node in kept for value in node.outputs}
    read = dict.fromkeys(value for node in kept for value in node.values if value not in made)
    constants = {value: graph.constants[value] for value in read if value in graph.constants}
    inputs = tuple(value for value in read if value not in constants)
    return Graph(graph.name, inputs, tuple(kept), kept[-1].outputs, constants)


def _failure(graph: Graph, ctx: Any) -> Exception | None:
    try:
        compile_graph(graph, ctx)
    except Exception as error:  # noqa: BLE001  # any failure of the compiler is one to look for
        return error
    return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _arrays(example_inputs: Sequence[Any] | Mapping[str, Any] | None) -> list[Array]:
    given = [] if example_inputs is None else example_inputs
    values = given.values() if isinstance(given, Mapping) else given
    return [np.asarray(value) for value in values]

"""A script that runs one kernel alone, with the inputs that it had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hidet import dtypes
from hidet.context import CompileContext
from hidet.errors import OptionError
from hidet.graph.graph import Graph, Value
from hidet.graph.printer import constant_table, print_graph
from hidet.graph.types import TensorType
from hidet.report.accuracy import AccuracyRow
from hidet.report.table import Array
from hidet.schedule.task import Task

_BEGINNING = '''"""{what}

Written by hidet-report.
The plug-ins of the compilation have to be active: {plugins}.
"""

from pathlib import Path

import hidet
from hidet.graph.parser import parse_graph
from hidet.plugins.host import load_registry
from hidet.report.checking import check_accuracy
from hidet.report.repro import read_inputs

GRAPH = """\\
{graph}"""

*inputs, constants = read_inputs(Path(__file__).with_name({data!r}))
graph = parse_graph(GRAPH, load_registry().operators, constants)
compiled = hidet.compile(graph, target={target!r}, options={options!r})
'''

_WRONG = """found = check_accuracy(compiled, *inputs)
print(found)
# 1 while a kernel is wrong.
raise SystemExit(not found.is_right)
"""

_FAILURE = """print("it compiles")
"""


def write_repro(path: Path, task: Task, inputs: Sequence[Array], ctx: CompileContext, wrong: AccuracyRow) -> None:
    """Write a script that runs a task alone, and a file with its inputs beside it. OptionError where that fails."""
    write_wrong(path, graph_of(task), inputs, ctx, f"{wrong.kernel}: {wrong.problem}")


def write_wrong(path: Path, graph: Graph, inputs: Sequence[Array], ctx: CompileContext, what: str) -> None:
    """Write a script that compiles a graph, calls it with these inputs, and ends with 1 while results are wrong."""
    _write(path, graph, inputs, ctx, what, _WRONG)


def write_failure(path: Path, graph: Graph, what: str, ctx: CompileContext) -> None:
    """Write a script that compiles a graph, which fails."""
    _write(path, graph, (), ctx, what, _FAILURE)


def _write(path: Path, graph: Graph, inputs: Sequence[Array], ctx: CompileContext, what: str, end: str) -> None:
    data = path.with_suffix(".npz")
    plugins = [f"{r.owner.dist or r.owner.plugin} ({r.module})" for r in ctx.registry.plugins if r.status == "active"]
    text = _BEGINNING.format(
        what=what.replace("\\", "\\\\").replace('"""', "'''"),
        data=data.name,
        plugins=", ".join(plugins),
        graph=print_graph(graph).replace("\\", "\\\\").replace('"""', '\\"\\"\\"'),
        target=ctx.target.name,
        options=_options(ctx),
    )
    try:
        path.write_text(text + end, encoding="utf-8")
        write_inputs(data, inputs, constant_table(graph))
    except OSError as error:
        raise OptionError(f"the script cannot be written to {path}: {error.strerror or error}") from error


def graph_of(task: Task) -> Graph:
    """A task as a graph of its own, with what it reads as inputs."""
    types: dict[Value, TensorType] = {tensor.value: tensor.type for tensor in task.inputs}
    renamed = {value: Value(value.name, type_) for value, type_ in types.items()}
    nodes = []
    for node in task.nodes:
        values = tuple(None if value is None else renamed.get(value, value) for value in node.inputs)
        nodes.append(type(node)(node.op, values, node.attrs, node.outputs, node.loc, node.definition))
    outputs = tuple(tensor.value for tensor in task.outputs)
    return Graph(task.name, tuple(renamed.values()), tuple(nodes), outputs)


def _options(ctx: CompileContext) -> dict[str, Any]:
    threads = ctx.options.threads
    plain = {name: value for name, value in ctx.options.plugin_options.items() if isinstance(value, bool | int | str)}
    return {**({} if threads is None else {"threads": threads}), **plain}


def write_inputs(path: Path, inputs: Sequence[Array], constants: Mapping[str, Array]) -> None:
    """Write arrays to a file, whatever their types. constants: those that the text of a graph names by digest."""
    every = [*inputs, *constants.values()]
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in every]
    parts: dict[str, Array] = {f"array{n}": array for n, array in enumerate(flat)}
    parts |= {f"shape{n}": np.asarray(array.shape, np.int64) for n, array in enumerate(every)}
    parts["types"] = np.asarray([dtypes.from_numpy(array.dtype).name for array in every], np.str_)
    parts["names"] = np.asarray(["" for _ in inputs] + list(constants), np.str_)
    with path.open("wb") as file:
        np.savez_compressed(file, **parts)  # type: ignore[arg-type]  # arrays by name alone


def read_inputs(path: Path) -> list[Any]:
    """The inputs that `write_inputs` wrote, and behind them the constants by digest."""
    with np.load(path, allow_pickle=False) as found:
        kinds = [dtypes.dtype(str(name)).numpy() for name in found["types"]]
        arrays = [found[f"array{n}"].view(kind).reshape(found[f"shape{n}"]) for n, kind in enumerate(kinds)]
        names = [str(name) for name in found["names"]]
    inputs = [array for name, array in zip(names, arrays, strict=True) if not name]
    return [*inputs, {name: array for name, array in zip(names, arrays, strict=True) if name}]

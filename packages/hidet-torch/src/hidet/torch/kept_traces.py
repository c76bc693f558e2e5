"""What AOTAutograd and the importer made of a dynamo graph before, in the kernel cache: a warm start traces nothing.

An entry is an `ImportedGraph` as text. Its key is the text of dynamo's graph, with all that is known of its arguments
and the places of its nodes, the settings of torch, and all that a compilation depends on besides. That is for
inference, graphs of fixed sizes and functions of torch alone, whose results share no memory with arguments and which
overwrite none: around what the compiler returns for these AOTAutograd does nothing at run time, so that dynamo may
call it directly. Whatever a key cannot tell is traced each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import torch
from hidet.cache import CacheKey
from hidet.compiler.kept_graphs import compilation_fields, graph_digest
from hidet.context import CompileContext
from hidet.errors import HidetError
from hidet.graph.parser import parse_graph
from hidet.graph.printer import constant_table, print_graph
from hidet.torch import compat, compat_state
from hidet.torch.assemble import ImportedGraph
from hidet.torch.fx_nodes import location
from hidet.torch.outputs import OutputPlan, Region
from torch import fx

_FORMAT = 1


class _Untold(Exception):
    """A graph has a part that its text does not tell."""


def trace_key(
    gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext, is_checked: bool
) -> CacheKey | None:
    """What a trace of dynamo's graph for inference is kept under; None where it is to be traced.

    is_checked: whether what is imported has to stand a check; one without has not stood it.
    """
    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    if not tensors or len(tensors) < len(example_inputs) or not compat_state.are_apart(tensors):
        return None
    if any(value.requires_grad for value in tensors) and torch.is_grad_enabled():
        return None
    state = compat_state.trace_state(tensors[0].device)
    compilation = None if state is None else compilation_fields(ctx)
    if state is None or compilation is None:
        return None
    try:
        text = "\n".join(_lines(gm, example_inputs))
    except _Untold:
        return None
    digest = blake2b(text.encode(), digest_size=32).hexdigest()
    fields = {"name": "trace", "format": str(_FORMAT), "trace": digest, "torch": state, "checked": repr(is_checked)}
    return CacheKey.of(**fields, **compilation)


def read_trace(key: CacheKey, ctx: CompileContext) -> ImportedGraph | None:
    """What was imported before; None where nothing is kept."""
    payload = ctx.cache.get(key)
    if payload is None:
        return None
    data = json.loads(payload)
    return ImportedGraph(
        graph=parse_graph(data["graph"], ctx.registry.operators),
        inputs=tuple(data["inputs"]),
        arguments=data["arguments"],
        symbols=(),
        random_inputs=data["random_inputs"],
        outputs=tuple(_decode_plan(plan) for plan in data["outputs"]),
        eager=(),
        device=torch.device(data["device"]),
        numbers=tuple(data["numbers"]),
    )


def keep_trace(key: CacheKey, imported: ImportedGraph, ctx: CompileContext) -> None:
    """Keep what was imported; nothing where its text is not all that there is to it."""
    rest = (imported.symbols, imported.eager, imported.data_symbols, imported.computed)
    if any((*rest, imported.complex_inputs, imported.complex_results, constant_table(imported.graph))):
        return
    text = print_graph(imported.graph)
    try:
        outputs = [_encode_plan(plan) for plan in imported.outputs]
        if graph_digest(parse_graph(text, ctx.registry.operators)) != graph_digest(imported.graph):
            return
    except (HidetError, _Untold):
        return
    data = {
        "graph": text,
        "inputs": imported.inputs,
        "arguments": imported.arguments,
        "random_inputs": imported.random_inputs,
        "outputs": outputs,
        "device": str(imported.device),
        "numbers": imported.numbers,
    }
    ctx.cache.put(key, json.dumps(data).encode())


def _encode_plan(plan: OutputPlan) -> Any:
    if plan.source == "argument" or type(plan.fixed) not in (int, bool, str, type(None)):
        raise _Untold
    region = plan.region
    if region is None:
        return [plan.source, plan.number, None, plan.fixed]
    numbers = (*region.shape, *region.strides, region.offset)
    if not all(type(number) is int for number in numbers):
        raise _Untold
    return [plan.source, plan.number, [region.shape, region.strides, region.offset], plan.fixed]


def _decode_plan(data: Any) -> OutputPlan:
    source, number, region, fixed = data
    made = None if region is None else Region(tuple(region[0]), tuple(region[1]), region[2])
    return OutputPlan(source, number, made, fixed)


def _lines(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> list[str]:
    """A line for each node of dynamo's graph. _Untold where it has what a line cannot tell."""
    numbers: dict[fx.Node, int] = {}
    lines: list[str] = []
    inputs = iter(example_inputs)
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            told = compat_state.argument_text(next(inputs), compat.is_static_placeholder(node))
        elif node.op == "call_function":
            told = compat_state.function_text(node.target)
        else:
            told = str(node.target) if node.op in ("call_method", "output") else None
        if told is None or compat_state.has_symbols(node):
            raise _Untold
        given = (_text(node.args, numbers), _text(node.kwargs, numbers)) if node.op != "placeholder" else ()
        lines.append(f"{node.op} {node.name} {told} {' '.join(given)} # {location(node)}")
    return lines


def _text(value: Any, numbers: Mapping[fx.Node, int]) -> str:
    write = _WRITERS.get(type(value))
    if write is None or (isinstance(value, float | complex) and value != value):
        raise _Untold
    return write(value, numbers)


def _items(value: Any, numbers: Mapping[fx.Node, int]) -> str:
    return f"{type(value).__name__}({', '.join([_text(item, numbers) for item in value])})"


def _entries(value: Any, numbers: Mapping[fx.Node, int]) -> str:
    pairs = [f"{_text(key, numbers)}: {_text(item, numbers)}" for key, item in value.items()]
    return f"{{{', '.join(pairs)}}}"


def _slice(value: Any, numbers: Mapping[fx.Node, int]) -> str:
    return f"slice{_items((value.start, value.stop, value.step), numbers)}"


_WRITERS: dict[type, Callable[[Any, Mapping[fx.Node, int]], str]] = {
    fx.Node: lambda value, numbers: f"%{numbers[value]}",
    slice: _slice,
    **dict.fromkeys((tuple, list, torch.Size, fx.immutable_collections.immutable_list), _items),
    **dict.fromkeys((dict, fx.immutable_collections.immutable_dict), _entries),
    **dict.fromkeys(
        (int, float, complex, bool, str, type(None), type(...)),
        lambda value, numbers: f"{type(value).__name__} {value!r}",
    ),
    **dict.fromkeys((torch.dtype, torch.device, torch.layout, torch.memory_format), lambda value, numbers: repr(value)),
}

"""What AOTAutograd and the importer made of a dynamo graph before, in the kernel cache: a warm start traces nothing.

An entry is an `ImportedGraph` as text, and the digest that its graph is found by in the cache, compiled. Its key is the
text of dynamo's graph, with all that is known of its arguments and the places of its nodes, the settings of torch, and
all that a compilation depends on besides. That is for inference, graphs of fixed sizes and functions of torch alone,
whose results share no memory with arguments and which overwrite none: around what the compiler returns for these
AOTAutograd does nothing at run time, so that dynamo may call it directly. Whatever a key cannot tell is traced each
time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from hidet.cache import CacheKey
from hidet.compiler.kept_graphs import compilation_fields, graph_digest, is_told_by_its_text, key_of_text
from hidet.context import CompileContext
from hidet.errors import HidetError
from hidet.graph.graph import Graph
from hidet.graph.printer import constant_table, print_graph
from hidet.torch import compat, compat_state
from hidet.torch.fx_nodes import location
from hidet.torch.imported import ImportedGraph, LateImported, OutputPlan, Region
from torch import fx

_FORMAT = 2


@dataclass(frozen=True, slots=True, eq=False)
class TraceKey:
    """What a trace is kept under. compilation: the part of it that the compiled graph is kept under as well."""

    key: CacheKey
    compilation: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class KeptTrace:
    """What was imported before. key: what its graph is kept under when it is compiled. data: the entry."""

    imported: ImportedGraph
    key: CacheKey
    data: Mapping[str, Any]


class _Untold(Exception):
    """A graph has a part that its text does not tell."""


def trace_key(
    gm: fx.GraphModule, example_inputs: Sequence[Any], ctx: CompileContext, is_checked: bool
) -> TraceKey | None:
    """What a trace of dynamo's graph for inference is kept under; None where it is to be traced, as all graphs of
    arguments on several devices are.

    is_checked: whether what is imported has to stand a check; one without has not stood it.
    """
    state = state_of(example_inputs) if all(isinstance(value, torch.Tensor) for value in example_inputs) else None
    compilation = None if state is None else compilation_fields(ctx)
    if state is None or compilation is None:
        return None
    try:
        text = "\n".join(_lines(gm, example_inputs))
    except _Untold:
        return None
    digest = blake2b(text.encode(), digest_size=32).hexdigest()
    named = {"name": "trace", "format": str(_FORMAT), "trace": digest, "torch": state, "checked": repr(is_checked)}
    return TraceKey(CacheKey.of(**named, **compilation), compilation)


def state_of(example_inputs: Sequence[Any]) -> str | None:
    """The settings that a trace for inference depends on, as text; None where more than the compiled graph may be to be
    run: arguments share memory, lie on several devices or none, or have their gradients recorded."""
    tensors = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    if not tensors or not compat_state.are_apart(tensors) or len({value.device for value in tensors}) > 1:
        return None
    if any(value.requires_grad for value in tensors) and torch.is_grad_enabled():
        return None
    return compat_state.trace_state(tensors[0].device)


def read_trace(key: TraceKey, ctx: CompileContext) -> KeptTrace | None:
    """What was imported before; None where nothing is kept."""
    payload = ctx.cache.get(key.key)
    return None if payload is None else decode_trace(json.loads(payload), key.compilation, ctx)


def decode_trace(data: Mapping[str, Any], compilation: Mapping[str, str], ctx: CompileContext) -> KeptTrace:
    """The trace of an entry, whose graph is compiled as `compilation` says."""
    return KeptTrace(_decode(data, ctx), key_of_text(data["digest"], compilation), data)


def keep_trace(key: TraceKey, imported: ImportedGraph, ctx: CompileContext) -> KeptTrace | None:
    """Keep what was imported. None, and nothing is kept, where its text is not all that there is to it."""
    try:
        data = _encode(imported, ctx)
        kept = decode_trace(data, key.compilation, ctx)
        if _encode(kept.imported, ctx) != data:
            return None
    except (HidetError, _Untold):
        return None
    ctx.cache.put(key.key, json.dumps(data).encode())
    return kept


def _encode(imported: ImportedGraph, ctx: CompileContext) -> dict[str, Any]:
    """The fields that have a text; all others are empty, as those of the text `_decode` makes are."""
    graph = imported.graph
    if constant_table(graph) or not is_told_by_its_text(graph, ctx):
        raise _Untold
    data = {
        "graph": print_graph(graph),
        "digest": graph_digest(graph),
        "inputs": list(imported.inputs),
        "arguments": imported.arguments,
        "random_inputs": imported.random_inputs,
        "outputs": [_encode_plan(plan) for plan in imported.outputs],
        "device": str(imported.device),
        "numbers": list(imported.numbers),
    }
    if any(getattr(imported, field.name) for field in fields(ImportedGraph) if field.name not in data):
        raise _Untold
    return data


def _decode(data: Mapping[str, Any], ctx: CompileContext) -> ImportedGraph:
    return LateImported(
        partial(_read_graph, data["graph"], ctx),
        inputs=tuple(data["inputs"]),
        arguments=data["arguments"],
        symbols=(),
        random_inputs=data["random_inputs"],
        outputs=tuple(_decode_plan(plan) for plan in data["outputs"]),
        eager=(),
        device=torch.device(data["device"]),
        numbers=tuple(data["numbers"]),
    )


def _read_graph(text: str, ctx: CompileContext) -> Graph:
    from hidet.graph.parser import parse_graph

    return parse_graph(text, ctx.registry.operators)


def _encode_plan(plan: OutputPlan) -> dict[str, Any]:
    if plan.source == "argument" or type(plan.fixed) not in (int, bool, str, type(None)):
        raise _Untold
    named = {field.name: getattr(plan, field.name) for field in fields(OutputPlan)}
    region = None if plan.region is None else _encode_region(plan.region)
    return {**named, "region": region, "through": [_encode_region(part) for part in plan.through]}


def _decode_plan(data: Mapping[str, Any]) -> OutputPlan:
    region = None if data["region"] is None else _decode_region(data["region"])
    return OutputPlan(**{**data, "region": region, "through": tuple(map(_decode_region, data["through"]))})


def _encode_region(region: Region) -> list[Any]:
    if not all(type(number) is int for number in (*region.shape, *region.strides, region.offset)):
        raise _Untold
    return [list(region.shape), list(region.strides), region.offset]


def _decode_region(data: Sequence[Any]) -> Region:
    shape, strides, offset = data
    return Region(tuple(shape), tuple(strides), offset)


def _lines(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> list[str]:
    """A line for each node of dynamo's graph. _Untold where it has what a line cannot tell."""
    numbers: dict[fx.Node, int] = {}
    lines: list[str] = []
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given = dict(zip(placeholders, example_inputs, strict=True))
    for node in gm.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "placeholder":
            told = compat_state.argument_text(given[node], compat.is_static_placeholder(node))
        elif node.op == "call_function":
            told = compat_state.function_text(node.target)
        elif node.op == "call_method":
            told = compat_state.method_text(node.target)
        else:
            told = "" if node.op == "output" else None
        if told is None or compat_state.has_symbols(node):
            raise _Untold
        parts = () if node in given else (_text(node.args, numbers), _text(node.kwargs, numbers))
        lines.append(f"{node.op} {node.name} {told} {' '.join(parts)} # {str(location(node))!r}")
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

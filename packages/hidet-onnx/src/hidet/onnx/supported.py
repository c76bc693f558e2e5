"""`check`: which operators of a model cannot be imported, all at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hidet.errors import UnsupportedOp
from hidet.frontend import Rows
from hidet.onnx.functions import has_function_body
from hidet.onnx.loader import LoadedModel, canonical_domain, load_model
from hidet.onnx.mapping import find_handler, handlers_of, qualified_name
from hidet.plugins.host import load_registry

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator that is not known.

    operator: its name, with the domain before it where that is not ONNX's own. opset: the version of the domain that
    the model asks for; 0 when it names none. nodes: names of the nodes, or of their first outputs.
    """

    operator: str
    opset: int
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(repr(name) for name in self.nodes[:5])
        more = f" and {len(self.nodes) - 5} more" if len(self.nodes) > 5 else ""
        return f"{self.operator} (opset {self.opset}): {shown}{more}"


def check(model: str | os.PathLike[str] | bytes | ModelProto) -> tuple[Unsupported, ...]:
    """The operators of a model that cannot be imported, with the nodes that use them; none when all are known.

    Looks into sub-graphs and the model's functions. ImportFailed for a file that is damaged.
    """
    return survey(load_model(model), handlers_of(load_registry())).unsupported


@dataclass(frozen=True, slots=True)
class Survey:
    """The operators of a model. counts: nodes of each, by name, those in sub-graphs and functions counted once."""

    counts: Mapping[str, int]
    unsupported: tuple[Unsupported, ...]


def survey(model: LoadedModel, handlers: Mapping[str, Rows]) -> Survey:
    """All operators of a model. handlers: of `mapping.handlers_of`."""
    counts: Counter[str] = Counter()
    found: dict[tuple[str, int], list[str]] = {}
    parts: list[tuple[Iterable[NodeProto], Mapping[str, int]]] = [(model.proto.graph.node, model.opsets)]
    for function in model.functions.values():
        own = {canonical_domain(entry.domain): entry.version for entry in function.opset_import}
        parts.append((function.node, {**model.opsets, **own}))
    for nodes, opsets in parts:
        for node in every_node(nodes):
            domain = canonical_domain(node.domain)
            opset = opsets.get(domain, 0)
            counts[qualified_name(domain, node.op_type)] += 1
            if not _is_known(model, handlers, domain, node, opset):
                name = node.name or next((output for output in node.output if output), "")
                found.setdefault((qualified_name(domain, node.op_type), opset), []).append(name)
    missing = (Unsupported(operator, opset, tuple(names)) for (operator, opset), names in sorted(found.items()))
    return Survey(counts, tuple(missing))


def require_supported(model: LoadedModel, handlers: Mapping[str, Rows]) -> None:
    """UnsupportedOp with the whole list, when there is one."""
    missing = survey(model, handlers).unsupported
    if missing:
        lines = "\n".join(f"  {entry}" for entry in missing)
        raise UnsupportedOp(
            f"{len(missing)} operator{'s' if len(missing) > 1 else ''} of the model cannot be imported:\n{lines}",
            hint="`hidet.onnx.check(model)` lists them",
        )


def _is_known(model: LoadedModel, handlers: Mapping[str, Rows], domain: str, node: NodeProto, opset: int) -> bool:
    return (
        (domain, node.op_type, node.overload) in model.functions
        or find_handler(handlers, domain, node.op_type, opset) is not None
        or has_function_body(domain, node.op_type, opset)
    )


def every_node(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """These nodes and those of their sub-graphs."""
    waiting = [iter(nodes)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        yield node
        waiting += [iter(body.node) for body in sub_graphs(node)]


def sub_graphs(node: NodeProto) -> list[GraphProto]:
    """The sub-graphs among a node's attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found.append(attribute.g)
        found += attribute.graphs
    return found

"""Nodes of a graph and tasks as a line of text, without what stands in other lines."""

from __future__ import annotations

from hidet.graph.graph import Graph, Node
from hidet.graph.printer import attribute_text
from hidet.report.places import model_line, node_name
from hidet.schedule.task import Task


def node_text(node: Node) -> str:
    """`%4: f32[8] = add(%2, %3)  # model.py:41 (fc1)`; sub-graphs are left out."""
    subgraphs: list[Graph] = []
    defaults = {attribute.name: attribute.default for attribute in node.op.attributes}
    given = [
        f"{name}={attribute_text(value, subgraphs)}"
        for name, value in node.attrs.items()
        if name not in defaults or repr(value) != repr(defaults[name])
    ]
    inputs = ["none" if value is None else f"%{value.name}" for value in node.inputs]
    made = ", ".join(f"%{value.name}: {value.type}" for value in node.outputs)
    line, name = model_line(node.loc), node_name(node.loc)
    place = f"{line} ({name})" if line and name else line or name
    text = f"{made}{' = ' if made else ''}{node.op.name}({', '.join([*inputs, *given])})"
    return f"{text}  # {place}" if place else text


def task_title(task: Task) -> str:
    """What a task computes, in a few words: `matmul + 2`."""
    name = task.op_name if task.anchor is not None else task.nodes[-1].op.name
    return f"{name} + {len(task.nodes) - 1}" if len(task.nodes) > 1 else name

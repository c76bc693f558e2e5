"""A node of a graph as a line of text, without what stands in other lines."""

from __future__ import annotations

from hidet.graph.graph import Graph, Node
from hidet.graph.printer import attribute_text
from hidet.report.places import model_line, node_name


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
    place = f"  # {line}" + (f" ({name})" if name and name != line else "") if line else ""
    return f"{made}{' = ' if made else ''}{node.op.name}({', '.join([*inputs, *given])}){place}"

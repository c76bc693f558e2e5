"""The table of operators against TensorFlow's own descriptions of them."""

from __future__ import annotations

import inspect

import pytest

from hidet.tensorflow.attributes import attributes_of
from hidet.tensorflow.mapping import table

pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

from hidet.tensorflow.compat import op_def


@pytest.mark.parametrize("operator", sorted(table()))
def test_a_handler_takes_every_operand_and_attribute(operator) -> None:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    definition = op_def(operator)
    assert definition is not None, f"TensorFlow has no operator {operator}"
    node = NodeDef(name="n", op=operator)
    passed = {*attributes_of(node, lambda name: None)}
    told = {
        getattr(entry, kind)
        for entry in definition.input_arg
        for kind in ("type_attr", "number_attr", "type_list_attr")
    }
    passed |= {entry.name for entry in definition.attr if entry.name not in told}
    parameters = list(inspect.signature(table()[operator]).parameters.values())[1:]
    takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    assert takes_any_name or passed <= named, f"{operator}: {sorted(passed - named)}"
    takes_any_number = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    operands = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    operands = [p for p in operands if p.name not in passed]
    assert takes_any_number or len(operands) >= len(definition.input_arg)

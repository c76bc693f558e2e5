"""The table of operators against ONNX's own descriptions of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from onnx import defs

from hidet.onnx.loader import canonical_domain
from hidet.onnx.mapping import NEWEST_OPSET, find_handler, qualified_name, table


def _rows() -> Iterator[tuple[str, Any, Callable[..., Any]]]:
    for schema in defs.get_all_schemas_with_history():
        domain = canonical_domain(schema.domain)
        if not schema.deprecated:
            found = find_handler(table(), domain, schema.name, schema.since_version)
            if found is not None:
                yield f"{qualified_name(domain, schema.name)}-{schema.since_version}", schema, found


ROWS = list(_rows())


def test_the_table_was_written_for_the_installed_onnx() -> None:
    assert defs.onnx_opset_version() <= NEWEST_OPSET


def test_every_operator_of_the_table_exists() -> None:
    known = {qualified_name(canonical_domain(s.domain), s.name) for s in defs.get_all_schemas_with_history()}
    # ONNX Runtime's optimiser writes this one into ONNX's own domain.
    foreign = {"SimplifiedLayerNormalization"}
    assert {name for name in table() if not name.startswith("com.microsoft.")} - foreign <= known


@pytest.mark.parametrize(("schema", "handler"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_handler_takes_every_input_and_attribute_of_its_versions(schema: Any, handler: Callable[..., Any]) -> None:
    parameters = inspect.signature(handler).parameters.values()
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    assert takes_any or set(schema.attributes) - {"consumed_inputs"} <= named
    is_variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    assert is_variadic or len(schema.inputs) < len(positional) + 1
    optional = sum(1 for given in schema.inputs if given.option == defs.OpSchema.FormalParameterOption.Optional)
    required = [p for p in positional[1:] if p.default is p.empty and p.name not in schema.attributes]
    assert len(required) <= len(schema.inputs) - optional

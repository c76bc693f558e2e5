"""Which tasks are programs of rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hidet import dtypes
from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.fusion.fuse import fuse
from hidet.graph import GraphBuilder, TensorType
from hidet.plugins.host import load_registry
from hidet.schedule.rows import row_program


@pytest.mark.parametrize(
    ("operator", "attributes", "is_row"),
    [
        ("softmax", {"axis": -1}, True),
        ("sum", {"axes": (1,)}, True),
        ("var_mean", {"axes": (1,)}, True),
        ("std_mean", {"axes": (1,), "keepdim": True}, True),
        ("moments", {"axes": (0,)}, True),
        ("cumsum", {"axis": 1}, False),
    ],
)
def test_what_follows_the_statistics_is_a_value_of_each_element_or_row(
    operator: str, attributes: dict, is_row: bool
) -> None:
    registry = load_registry()
    target = SimpleNamespace(name="none", prefers_channels_last=False, vector_bits=0, work_item="rows")
    ctx = CompileContext(target=target, registry=registry, options=Options(), cache=open_cache(enabled=False))
    builder = GraphBuilder(registry.operators)
    x = builder.input(TensorType(dtypes.f32, (4, 6)), "x")
    (task,) = fuse(builder.build(builder.emit_all(operator, [x], attributes)), ctx).tasks
    assert (row_program(task) is not None) == is_row

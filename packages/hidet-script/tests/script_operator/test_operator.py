"""A node that calls a script means what the interpreter of thread IR makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import dtypes
from hidet.dims import symbol
from hidet.errors import UnsupportedOp
from hidet.graph import Graph, GraphBuilder, TensorType
from hidet.ir.structural import structural_hash
from hidet.lang import f32
from hidet.lang.module import module_of
from hidet.plugins.host import load_registry
from hidet.script_operator.operator import ScriptCall, script_operator
from hidet.testing.interpret import interpret

N = symbol("n")


@hidet.script
def scale(x: f32[N], factor: f32, y: f32[N]):
    for i in range(N):
        y[i] = x[i] * factor


def graph_of(size: object) -> Graph:
    module = module_of([scale])
    places = (("input", 0), ("value", 0), ("output", 0), ("value", 1))
    builder = GraphBuilder(load_registry().operators)
    type_ = TensorType(dtypes.f32, (size,))
    call = ScriptCall("test::scale", structural_hash(module), places, module)
    x = builder.input(type_, "x")
    (y,) = builder.emit_all(script_operator([type_]), [x], {"call": call, "values": (2.5, size)})
    return builder.build([y])


def test_the_interpreter_runs_it() -> None:
    x = np.arange(4, dtype=np.float32)
    (y,) = interpret(graph_of(4), [x])
    assert np.array_equal(y, x * np.float32(2.5))


def test_symbolic_results_are_not_interpreted() -> None:
    with pytest.raises(UnsupportedOp, match="test::scale is not interpreted"):
        interpret(graph_of(N), [np.zeros(4, np.float32)])

"""Random graphs of core operators, for property tests: passes keep their result, targets compute it.

A seed decides everything. Graphs have parameters, constants, views, duplicates, dead nodes, updates of slices, outputs
that share memory and mutated inputs, because these are what passes get wrong. Values stay small, so results of two
orders of evaluation can be compared.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.graph import Graph, GraphBuilder, OperatorSpec
from hidet.testing.random_maker import GraphMaker, concrete_shape
from hidet.testing.random_steps import STEPS

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


def random_graph(
    seed: int,
    operators: Mapping[str, OperatorSpec],
    *,
    size: int = 16,
    dtype: DType = dtypes.f64,
    symbolic: bool = False,
    mutating: bool = True,
) -> Graph:
    """A valid graph of about `size` nodes on values of `dtype`.

    symbolic: the leading axis of some inputs has symbolic extent s (2 to 64). mutating: an input may be overwritten.
    """
    maker = GraphMaker(random.Random(seed), GraphBuilder(operators, f"random{seed}"), dtype, symbolic)
    for _ in range(size):
        (step,) = maker.rng.choices(list(STEPS), list(STEPS.values()))
        maker.add(step(maker))
    return maker.finish(mutating)


def random_inputs(graph: Graph, seed: int, bindings: Mapping[str, int] | None = None) -> list[Array]:
    """Arrays for the inputs of `graph`: floats between -1 and 1, variances and other parameters named `positive`
    between 0.5 and 1.5. bindings: values of symbols; 3 for those not given."""
    import numpy

    generator = numpy.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        shape = concrete_shape(value.tensor.shape, bindings or {})
        low, high = (0.5, 1.5) if value.name.startswith("positive") else (-1.0, 1.0)
        arrays.append(generator.uniform(low, high, shape).astype(value.tensor.dtype.numpy()))
    return arrays

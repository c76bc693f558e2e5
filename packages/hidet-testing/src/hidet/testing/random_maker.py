"""A random graph under construction: its values, and the choices among them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from hidet import dims
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.graph import Graph, GraphBuilder, TensorType, Value

EXTENTS = (1, 2, 3, 4, 5)


def concrete_shape(shape: Sequence[Dim], bindings: Mapping[str, int]) -> tuple[int, ...]:
    """`shape` with symbols replaced by `bindings`, 3 where there is none."""
    known = {symbol.name: 3 for extent in shape if not isinstance(extent, int) for symbol in dims.symbols(extent)}
    return tuple(dims.evaluate(extent, {**known, **bindings}) for extent in shape)


class GraphMaker:
    """A graph under construction and the random choices that make it."""

    def __init__(self, rng: random.Random, builder: GraphBuilder, dtype: DType, symbolic: bool) -> None:
        self.rng = rng
        self.builder = builder
        self.dtype = dtype
        self.symbol: Dim | None = dims.symbol("s", 2, 64, hint=3) if symbolic else None
        self.inputs: list[Value] = []
        self.bounded: list[Value] = []
        self.values: list[Value] = []
        for _ in range(rng.randint(1, 3)):
            self.input(self.shape(rng.randint(1, 4), may_be_symbolic=True))
        for _ in range(rng.randint(1, 2)):
            self.parameter(self.shape(rng.randint(1, 3)))
        self.constant(self.shape(rng.randint(0, 2)))

    def shape(self, rank: int, may_be_symbolic: bool = False) -> tuple[Dim, ...]:
        """Random extents."""
        extents: list[Dim] = [self.rng.choice(EXTENTS) for _ in range(rank)]
        if may_be_symbolic and self.symbol is not None and extents and self.rng.random() < 0.7:
            extents[0] = self.symbol
        return tuple(extents)

    def input(self, shape: Sequence[Dim]) -> Value:
        """An input that is no parameter."""
        value = self.builder.input(TensorType(self.dtype, tuple(shape)), f"x{len(self.inputs)}")
        self.inputs.append(value)
        self.bounded.append(value)
        self.values.append(value)
        return value

    def parameter(self, shape: Sequence[Dim], name: str = "w") -> Value:
        """A parameter."""
        type_ = TensorType(self.dtype, tuple(shape))
        value = self.builder.input(type_, f"{name}{len(self.bounded)}", is_parameter=True)
        self.bounded.append(value)
        self.values.append(value)
        return value

    def constant(self, shape: Sequence[Dim], low: float = -1.0) -> Value:
        """Constant data between `low` and 1."""
        import numpy

        generator = numpy.random.default_rng(self.rng.randrange(1 << 30))
        data = generator.uniform(low, 1, concrete_shape(shape, {}))
        value = self.builder.constant(numpy.round(data, 2).astype(self.dtype.numpy()), self.dtype)
        self.bounded.append(value)
        self.values.append(value)
        return value

    def steady(self, shape: Sequence[Dim]) -> Value:
        """A parameter, rarely a constant."""
        return self.constant(shape) if self.rng.random() < 0.2 else self.parameter(shape)

    def pick(self, least: int = 0, most: int = 5) -> Value | None:
        """A value with a number of axes in the range; later ones are likelier."""
        fitting = [v for v in self.values if least <= v.tensor.rank <= most]
        if not fitting:
            return None
        return fitting[max(self.rng.randrange(len(fitting)), self.rng.randrange(len(fitting)))]

    def partner(self, value: Value, among: Sequence[Value]) -> Value | None:
        """A value that broadcasts with `value`, sizes being equal or 1."""
        fitting = [v for v in among if broadcasts(v.tensor.shape, value.tensor.shape)]
        return self.rng.choice(fitting) if fitting else None

    def emit(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Apply an operator with one result."""
        return self.builder.emit(op, *inputs, **attrs)

    def add(self, made: Value | None) -> None:
        """Offer what a step has made to later ones, unless it is large."""
        if made is not None and is_small(made.tensor.shape):
            self.values.append(made)

    def finish(self, mutating: bool) -> Graph:
        """The graph, with some of the last values as outputs."""
        rng = self.rng
        last = self.values[-6:]
        outputs = [last[-1], *rng.sample(last, min(len(last), rng.randint(0, 2)))]
        if rng.random() < 0.2:
            outputs.append(rng.choice(self.values))
        mutates: list[tuple[int, int]] = []
        graph = self.builder.build(outputs)
        if mutating and rng.random() < 0.5:
            computed = {value for node in graph.nodes for value in node.outputs}
            pairs = [
                (number, value)
                for number, source in enumerate(graph.inputs)
                for value in self.values
                if value in computed and source not in graph.parameters and value.tensor.shape == source.tensor.shape
            ]
            if pairs:
                number, value = rng.choice(pairs)
                mutates.append((number, len(outputs)))
                outputs.append(value)
        return self.builder.build(outputs, mutates)


def broadcasts(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes broadcast, sizes being equal or 1."""
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b), strict=False))


def is_small(shape: Sequence[Dim]) -> bool:
    """Whether a value of this shape is worth computing with."""
    count = dims.product(concrete_shape(shape, {"s": 64}))
    return isinstance(count, int) and count <= 1 << 15

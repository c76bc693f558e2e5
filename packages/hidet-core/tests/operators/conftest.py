"""Running one operator on torch tensors through its definition, and comparing with torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hidet.compute.evaluate import evaluate
from hidet.dtypes import DType, dtype
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.operator import OperatorSpec, define_node
from hidet.operators import all_operators

torch = pytest.importorskip("torch")


@pytest.fixture(scope="session")
def operators() -> dict[str, OperatorSpec]:
    """Every operator of core by name."""
    return {spec.name: spec for spec in all_operators()}


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    """A torch tensor's data; bf16 as ml_dtypes has it."""
    is_bfloat = tensor.dtype == torch.bfloat16
    array: np.ndarray[Any, Any] = (tensor.contiguous().view(torch.int16) if is_bfloat else tensor).numpy()
    return array.view(dtype("bf16").numpy()) if is_bfloat else array


def to_torch(array: np.ndarray[Any, Any]) -> Any:
    """The inverse of `to_numpy`."""
    array = np.array(array, order="C")
    if array.dtype == dtype("bf16").numpy():
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def dtype_of(tensor: Any) -> DType:
    """The element type of a torch tensor."""
    return dtype(str(tensor.dtype).removeprefix("torch."))


@pytest.fixture(scope="session")
def apply_all(operators: dict[str, OperatorSpec]) -> Callable[..., list[Any]]:
    """`apply_all(name, *tensors, **attrs)`: all outputs, by evaluating the definition; None is an absent input."""

    def run(name: str, *tensors: Any, **attrs: Any) -> list[Any]:
        builder = GraphBuilder(operators)
        types = [None if t is None else TensorType(dtype_of(t), tuple(t.shape)) for t in tensors]
        values = [None if t is None else builder.input(t) for t in types]
        outputs = builder.emit_all(name, values, attrs)
        definition = define_node(operators[name], types, operators[name].attrs(attrs))
        assert definition is not None
        assert [operand.dtype for operand in definition.outputs] == [value.tensor.dtype for value in outputs]
        arrays = evaluate(definition, [to_numpy(t) for t in tensors if t is not None])
        for array, value in zip(arrays, outputs, strict=True):
            assert array.shape == value.tensor.shape
            assert array.dtype == value.tensor.dtype.numpy()
        return [to_torch(array) for array in arrays]

    return run


@pytest.fixture(scope="session")
def apply(apply_all: Callable[..., list[Any]]) -> Callable[..., Any]:
    """`apply(name, *tensors, **attrs)`: the only output."""

    def run(name: str, *tensors: Any, **attrs: Any) -> Any:
        (result,) = apply_all(name, *tensors, **attrs)
        return result

    return run


@pytest.fixture(scope="session")
def decomposed(operators: dict[str, OperatorSpec]) -> Callable[..., list[Any]]:
    """`decomposed(name, *tensors, **attrs)`: all outputs, by evaluating the nodes that the operator decomposes into."""

    def run(name: str, *tensors: Any, **attrs: Any) -> list[Any]:
        spec = operators[name]
        assert spec.decompose is not None
        builder = GraphBuilder(operators)
        values = [None if t is None else builder.input(TensorType(dtype_of(t), tuple(t.shape))) for t in tensors]
        outputs = spec.decompose(builder, values, spec.attrs(attrs))
        graph = builder.build(outputs)
        known = {v: to_numpy(t) for v, t in zip(values, tensors, strict=True) if v is not None}
        known |= {value: constant.numpy() for value, constant in graph.constants.items()}
        for node in graph.nodes:
            assert node.op.name != name
            assert node.definition is not None
            arrays = evaluate(node.definition, [known[value] for value in node.values])
            known |= dict(zip(node.outputs, arrays, strict=True))
        return [to_torch(known[value]) for value in outputs]

    return run


# Units in the last place that two right answers may differ by: one rounding each, and torch's own error in f32.
_TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-6, "float64": 1e-12}


@pytest.fixture(scope="session")
def assert_matches() -> Callable[..., None]:
    """`assert_matches(ours, theirs, scale=1)`: equal shape and dtype, equal integers, floats within rounding.

    `scale` widens the bound for sums of many terms. NaN and infinities must be in the same places.
    """

    def check(ours: Any, theirs: Any, scale: float = 1.0) -> None:
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if not theirs.dtype.is_floating_point:
            assert torch.equal(ours, theirs)
            return
        bound = _TOLERANCE[str(theirs.dtype).removeprefix("torch.")] * scale
        torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound, equal_nan=True)

    return check


@pytest.fixture(scope="session")
def make() -> Callable[..., Any]:
    """`make(shape, dtype, low, high, seed)`: seeded values of any dtype, evenly spread over [low, high)."""

    def tensor(
        shape: Sequence[int], dtype_name: str = "float32", low: float = -3.0, high: float = 3.0, seed: int = 0
    ) -> Any:
        generator = torch.Generator().manual_seed(seed + sum(shape))
        values = torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * (high - low) + low
        target = getattr(torch, dtype_name)
        if target == torch.bool:
            return values > (low + high) / 2
        return (values.floor() if not target.is_floating_point else values).to(target)

    return tensor

"""Models written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from hidet.onnx.runner import OnnxRunner

Shape = Sequence[int | str] | None


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Shape]],
    outputs: Sequence[str],
    initializers: Mapping[str, Any] | None = None,
    opset: int = 21,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; inputs are given as (numpy dtype, shape)."""
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in inputs.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "main",
        declared,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (initializers or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


@pytest.fixture(autouse=True, scope="session")
def _own_kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIDET_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture
def make_model() -> Callable[..., onnx.ModelProto]:
    """Puts nodes together: `make_model(nodes, inputs, outputs, ...)`."""
    return _model


@pytest.fixture
def run() -> Callable[..., Any]:
    """The outputs of a model for arrays by name; a single one bare."""

    def call(model: onnx.ModelProto, **arrays: Any) -> Any:
        results = OnnxRunner(model)(arrays)
        return results[0] if len(results) == 1 else tuple(results)

    return call

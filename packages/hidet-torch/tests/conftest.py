"""Two ways to compare with eager mode: a graph run by the numpy reference, and a function compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from functorch.compile import aot_function
from torch import fx

from hidet.context import make_context
from hidet.graph.verify import verify_graph
from hidet.testing.interpret import interpret
from hidet.torch.composites import KeepWhole
from hidet.torch.decompositions import decompositions
from hidet.torch.imported import ImportedGraph
from hidet.torch.importer import import_fx
from hidet.torch.tensors import as_numpy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Which operators a target has schedules for is tested with the target."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:no schedule of target"))


@pytest.fixture(autouse=True, scope="session")
def _own_kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIDET_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        # Modes that ask for tuning are compiled as others are: what they tune is tested in hidet-tune.
        patch.setenv("HIDET_TUNE_STORE", "off")
        yield


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def aten_graph(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The functional aten graph of a function, as the backend's importer gets it."""
    graphs: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> fx.GraphModule:
        graphs.append(gm)
        return gm

    traced = aot_function(
        function, fw_compiler=keep, decompositions=dict(decompositions()), keep_inference_input_mutations=True
    )
    with torch.no_grad(), KeepWhole():
        traced(*[value.clone() for value in inputs])
    return graphs[0]


@pytest.fixture(scope="session")
def import_function() -> Callable[..., ImportedGraph]:
    """`import_function(f, *inputs, **options)`: the imported graph of `f`."""

    def run(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> ImportedGraph:
        imported = import_fx(aten_graph(function, *inputs), make_context("cpu", options))
        verify_graph(imported.graph)
        return imported

    return run


@pytest.fixture(scope="session")
def check_import(import_function: Callable[..., ImportedGraph]) -> Callable[..., ImportedGraph]:
    """`check_import(f, *inputs)`: the imported graph gives the same numbers as eager mode, with no eager node."""

    def run(
        function: Callable[..., Any], *inputs: torch.Tensor, rtol: float = 2e-4, atol: float = 2e-5
    ) -> ImportedGraph:
        imported = import_function(function, *inputs)
        assert not imported.eager, imported.eager
        arrays = interpret(imported.graph, [as_numpy(inputs[number]) for number in imported.inputs])
        expected = function(*inputs)
        results = expected if isinstance(expected, tuple | list) else [expected]
        assert len(imported.outputs) == len(results)
        for plan, want in zip(imported.outputs, results, strict=True):
            got = inputs[plan.number] if plan.source == "argument" else _tensor(arrays[plan.number])
            if plan.region is not None:
                got = got.as_strided(plan.region.shape, plan.region.strides, plan.region.offset)
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
        return imported

    return run


def _tensor(array: Any) -> torch.Tensor:
    copied = np.array(array, order="C")
    if copied.dtype.name == "bfloat16":
        return torch.from_numpy(copied.reshape(-1).view(np.int16)).view(torch.bfloat16).reshape(copied.shape)
    return torch.from_numpy(copied)


@pytest.fixture
def check_compiled() -> Callable[..., Callable[..., Any]]:
    """`check_compiled(f, *inputs)`: the compiled function does to results, strides, aliases and inputs what `f` does.

    It is called twice on each of `inputs` and `more`, lists of further inputs, and returned.
    """

    def run(
        function: Callable[..., Any],
        *inputs: Any,
        more: Sequence[Sequence[Any]] = (),
        dynamic: bool | None = False,
        tolerance: float = 1e-5,
        **options: Any,
    ) -> Callable[..., Any]:
        compiled: Callable[..., Any] = torch.compile(
            function, backend="hidet", dynamic=dynamic, fullgraph=True, options=options
        )
        for given in (inputs, inputs, *more):
            ours, theirs = _copies(given), _copies(given)
            assert_same(compiled(*ours), function(*theirs), ours, theirs, tolerance)
        return compiled

    return run


def _copies(values: Sequence[Any]) -> list[Any]:
    """Tensors with the same strides and memory of their own."""
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]


def assert_same(
    ours: Any, theirs: Any, our_inputs: Sequence[Any], their_inputs: Sequence[Any], tolerance: float
) -> None:
    """Equal values, dtypes, strides, sharing of memory, and effect on inputs."""
    ours, theirs = (list(r) if isinstance(r, tuple | list) else [r] for r in (ours, theirs))
    assert len(ours) == len(theirs)
    for got, want in zip([*ours, *our_inputs], [*theirs, *their_inputs], strict=True):
        if not isinstance(want, torch.Tensor):
            assert got == want
            continue
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert got.stride() == want.stride()
    assert _sharing([*ours, *our_inputs]) == _sharing([*theirs, *their_inputs])


def _sharing(values: Sequence[Any]) -> list[int]:
    """For each tensor with elements, the number of the first one in the same memory."""
    places = [v.untyped_storage().data_ptr() for v in values if isinstance(v, torch.Tensor) and v.numel()]
    return [places.index(place) for place in places]

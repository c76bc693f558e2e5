"""Operators on tensors of a device: launched there one by one, and as one graph."""

from __future__ import annotations

import pytest

import hidet
from hidet.api.flow.operation import _program
from hidet.cuda.testing.fake_driver import CONTEXT, FakeDriver
from hidet.errors import LaunchError


@pytest.fixture(autouse=True)
def programs_of_this_driver() -> None:
    """Programs are kept for the process, and would belong to the driver of another test."""
    _program.cache_clear()


def test_operators_run_on_the_device_of_their_tensors(fake: FakeDriver) -> None:
    contexts: list[int] = []
    fake.on_launch = lambda launch: contexts.append(fake.context)
    for number in (0, 1, 0):
        x = hidet.ones([4, 8], device=f"cuda:{number}")
        y = hidet.ops.relu(x @ hidet.ones([8, 2], device=f"cuda:{number}") + 1.0)
        assert (y.shape, y.device) == ((4, 2), f"cuda:{number}")
    assert contexts == [*[CONTEXT] * 3, *[CONTEXT + 1] * 3, *[CONTEXT] * 3]


def test_tensors_of_several_devices_have_no_operator(fake: FakeDriver) -> None:
    with pytest.raises(LaunchError, match="an operator got tensors on cuda:0 and cpu"):
        hidet.ones([2], device="cuda") + hidet.ones([2])


def test_a_graph_is_launched_as_one(fake: FakeDriver) -> None:
    x = hidet.symbol([4, 8], device="cuda")
    y, weight = x, hidet.ones([8, 8], device="cuda")
    for _ in range(8):  # so many kernels that one launch saves more than it costs
        y = hidet.ops.softmax(y @ weight)
    graph = hidet.trace_from(y.sum(1))
    assert graph.device == "cuda:0"
    recorded = graph.cuda_graph()
    given = hidet.zeros([4, 8], device="cuda")
    (result,) = [recorded.run([given]) for _ in range(3)][-1]
    assert (result.shape, result.device) == ((4,), "cuda:0")
    replays = [entry for entry in fake.log if entry[0] == "replays"]
    assert replays, "the second call is a launch of what was captured"


def test_sizes_of_a_cuda_graph_are_known(fake: FakeDriver) -> None:
    x = hidet.symbol(["n", 8], device="cuda")
    with pytest.raises(hidet.errors.ShapeError, match="is not known"):
        hidet.trace_from(x * 2.0).cuda_graph()

"""Models that would take time or memory without end are refused, or can be interrupted. red-team.md findings 9, 15."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hidet
from hidet.errors import ImportFailed, OutOfMemory
from hidet.onnx import OnnxRunner, from_onnx, importer
from hidet.runtime import memory

Make = Callable[..., onnx.ModelProto]
F32 = np.float32
FOUR = np.ones(4, F32)


def functions_that_call_twice(make_model: Make, depth: int) -> onnx.ModelProto:
    """2**depth calls of Relu."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]

    def call(number: int, value: str, result: str) -> onnx.NodeProto:
        return helper.make_node(f"f{number}", [value], [result], domain="own")

    functions = [
        helper.make_function("own", f"f{n}", ["a"], ["c"], [call(n + 1, "a", "b"), call(n + 1, "b", "c")], opsets)
        for n in range(depth)
    ]
    last = helper.make_function("own", f"f{depth}", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)
    call_first = call(0, "x", "y")
    return make_model([call_first], {"x": (F32, [4])}, ["y"], functions=[*functions, last], domains={"own": 1})


def test_functions_that_multiply_are_refused(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """red-team.md finding 9."""
    monkeypatch.setattr(importer, "MAX_WRITTEN", 500)
    with pytest.raises(ImportFailed, match="the model has 82 nodes, which become more than 1812"):
        from_onnx(functions_that_call_twice(make_model, 40))
    assert len(from_onnx(functions_that_call_twice(make_model, 5)).nodes) == 32


def loop(
    make_model: Make,
    body: Sequence[onnx.NodeProto],
    outputs: str,
    trips: int | None = None,
    shape: Sequence[Any] = (4,),
) -> onnx.ModelProto:
    """A loop that carries `state` from x and goes on as long as `more` says."""
    kinds = {"i": (TensorProto.INT64, []), "go": (TensorProto.BOOL, []), "state": (TensorProto.FLOAT, shape)}
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in ("more", *outputs.split())]
    nodes = [helper.make_node("Identity", ["go"], ["more"]), *body]
    graph = helper.make_graph(nodes, "body", inputs, results)
    names = ["y", "rows"][: len(outputs.split())]
    node = helper.make_node("Loop", ["" if trips is None else "trips", "true", "x"], names, body=graph)
    held = {"true": np.array(True)} | ({} if trips is None else {"trips": np.array(trips)})
    return make_model([node], {"x": (F32, shape)}, names, held)


def tanh() -> list[onnx.NodeProto]:
    return [helper.make_node("Tanh", ["state"], ["next"])]


@pytest.mark.parametrize("trips", (None, 2**62))
def test_control_c_ends_a_loop_without_end(make_model: Make, trips: int | None) -> None:
    """red-team.md finding 9."""
    compiled = hidet.compile(loop(make_model, tanh(), "next", trips))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiled(FOUR)
    assert time.monotonic() - start < 10, "a second, on a machine that does nothing else"
    timer.join()


def test_another_thread_can_end_a_loop_without_end(make_model: Make) -> None:
    """red-team.md finding 9; as docs/optimize-onnx-model.md shows it."""
    compiled = hidet.compile(loop(make_model, tanh(), "next"))
    ends: list[type[BaseException]] = []

    def call() -> None:
        try:
            compiled(FOUR)
        except KeyboardInterrupt as error:
            ends.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert thread.ident is not None
    time.sleep(0.1)
    assert thread.is_alive()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
    thread.join(10)
    assert ends == [KeyboardInterrupt]


def test_a_loop_that_was_interrupted_runs_again(make_model: Make) -> None:
    inputs = {"x": (F32, [4]), "trips": (np.int64, [])}
    model = loop(make_model, tanh(), "next", 1)
    del model.graph.initializer[1]
    model.graph.input.append(helper.make_tensor_value_info("trips", TensorProto.INT64, inputs["trips"][1]))
    compiled = hidet.compile(model)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(FOUR, np.array(2**62))
    timer.join()
    np.testing.assert_allclose(compiled(FOUR, np.array(2)), np.tanh(np.tanh(FOUR)), rtol=1e-6)


def test_more_stacked_results_than_memory_are_an_error_of_hidet(make_model: Make) -> None:
    """red-team.md finding 15."""
    body = [*tanh(), helper.make_node("Identity", ["next"], ["row"])]
    with pytest.raises(OutOfMemory, match=r"1048576\.0 GiB"):
        OnnxRunner(loop(make_model, body, "next row", 2**46))({"x": FOUR})
    assert issubclass(OutOfMemory, hidet.HidetError) and issubclass(OutOfMemory, MemoryError)


def test_stacked_results_of_a_loop_of_unknown_length_are_counted(
    make_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """red-team.md finding 15."""
    monkeypatch.setattr(memory, "SURELY_THERE", 0)
    monkeypatch.setattr(memory, "_physical_memory", lambda: 1 << 16)
    body = [*tanh(), helper.make_node("Identity", ["next"], ["row"])]
    with pytest.raises(OutOfMemory, match="bytes"):
        hidet.compile(loop(make_model, body, "next row"))(FOUR)


def test_a_state_that_doubles_fifty_times_is_an_error_of_hidet(make_model: Make) -> None:
    """red-team.md findings 9 and 15."""
    body = [helper.make_node("Concat", ["state", "state"], ["next"], axis=0)]
    with pytest.raises(OutOfMemory, match="GiB"):
        OnnxRunner(loop(make_model, body, "next", 50, ["n"]))({"x": FOUR})


def test_a_result_larger_than_memory_is_an_error_of_hidet(make_model: Make) -> None:
    """red-team.md finding 15."""
    model = make_model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])], {"x": (F32, [1]), "shape": (np.int64, [2])}, ["y"]
    )
    with pytest.raises(OutOfMemory, match=r"256\.0 GiB"):
        hidet.compile(model)(np.ones(1, F32), np.array([2**18, 2**18]))


CHAINS: dict[str, Callable[[str, str], list[onnx.NodeProto]]] = {
    "relu": lambda a, b: [helper.make_node("Relu", [a], [b])],
    "tanh": lambda a, b: [helper.make_node("Tanh", [a], [b])],
    "residual": lambda a, b: [
        helper.make_node("Tanh", [a], [f"{b}_t"]),
        helper.make_node("Add", [a, f"{b}_t"], [b]),
    ],
    "shapes": lambda a, b: [
        helper.make_node("Shape", [a], [f"{b}_s"]),
        helper.make_node("Reshape", [a, f"{b}_s"], [b]),
    ],
    "reductions": lambda a, b: [
        helper.make_node("ReduceSum", [a], [f"{b}_t"], keepdims=1),
        helper.make_node("Add", [a, f"{b}_t"], [b]),
    ],
    "doubled": lambda a, b: [
        helper.make_node("Concat", [a, a], [f"{b}_t"], axis=0),
        helper.make_node("Slice", [f"{b}_t", "zero", "four"], [b]),
    ],
    "flags": lambda a, b: [
        helper.make_node("Equal", [a, a], [f"{b}_t"]),
        helper.make_node("Cast", [f"{b}_t"], [b], to=TensorProto.FLOAT),
    ],
}


def calls_of_python(make_model: Make, chain: str, length: int) -> int:
    """What importing, compiling and one call take."""
    nodes = [node for n in range(length) for node in CHAINS[chain](f"v{n}", f"v{n + 1}")]
    held = {"zero": np.array([0]), "four": np.array([4])}
    model = make_model(nodes, {"v0": (F32, [4])}, [f"v{length}"], held)
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        compiled = hidet.compile(from_onnx(model), options={"cache": False, "threads": 1})
        compiled(FOUR)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.thorough(every=3)
def test_the_work_on_a_chain_grows_with_its_length(make_model: Make, chain: str) -> None:
    """red-team.md finding 9."""
    calls_of_python(make_model, chain, 100)
    first, second, third = (calls_of_python(make_model, chain, length) for length in (200, 400, 800))
    assert third - second <= 2.2 * (second - first)

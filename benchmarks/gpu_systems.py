"""hidet and its peers on a GPU behind one interface: a model and inputs in, a function that runs it out."""

from __future__ import annotations

import atexit
import copy
import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from benchmarks.results import AUTOTUNED_SYSTEM, FROZEN_SYSTEM, OUR_SYSTEM, STORED_SYSTEM, TUNE_BUDGET, TUNED_SYSTEM
from benchmarks.systems import Run, Unavailable
from tests.models.entry import Inputs


@dataclass(frozen=True, slots=True)
class _Replay:
    """A captured run: the graph, what holds the tensors that it reads, and the one that it writes."""

    graph: torch.cuda.CUDAGraph
    run: Callable[[], Any]
    result: Any

    def __call__(self) -> Any:
        self.graph.replay()
        return self.result


PrepareGpu = Callable[[nn.Module, Inputs, bool], Run]
"""Takes a model, its inputs, and whether these are images. Raises Unavailable for a row that it does not take."""

_WARM_CALLS = 3


def _eager(model: nn.Module, inputs: Inputs, has_images: bool) -> Run:
    return lambda: model(**inputs)


def _eager_graph(model: nn.Module, inputs: Inputs, has_images: bool) -> Run:
    return captured(lambda: model(**inputs))


def _eager_graph_channels_last(model: nn.Module, inputs: Inputs, has_images: bool) -> Run:
    if not has_images:
        raise Unavailable("no images")
    # torch's stub knows no module with a memory format.
    moved: Any = copy.deepcopy(model)
    moved = moved.to(memory_format=torch.channels_last)
    images = {name: value.to(memory_format=torch.channels_last) for name, value in inputs.items()}
    return captured(lambda: moved(**images))


def _compiled(mode: str, backend: str) -> PrepareGpu:
    def prepare(model: nn.Module, inputs: Inputs, has_images: bool) -> Run:
        compiled = torch.compile(model, backend=backend, mode=mode, dynamic=False)
        return lambda: compiled(**inputs)

    return prepare


def _hidet_frozen(model: nn.Module, inputs: Inputs, has_images: bool) -> Run:
    options = {"mode": "reduce-overhead", "freeze": True}
    compiled = torch.compile(model, backend="hidet", dynamic=False, options=options)
    return lambda: compiled(**inputs)


@functools.cache
def tuned_store() -> Path:
    """The file of choices that this process tunes into, empty at first, deleted at its end."""
    folder = tempfile.TemporaryDirectory(prefix="hidet-benchmark-")
    atexit.register(folder.cleanup)
    return Path(folder.name) / "choices.sqlite"


def _hidet_tuned(model: nn.Module, inputs: Inputs, has_images: bool) -> Run:
    options = {"mode": "reduce-overhead", "tune": TUNE_BUDGET, "tune.store": str(tuned_store())}
    compiled = torch.compile(model, backend="hidet", dynamic=False, options=options)
    return lambda: compiled(**inputs)


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """`run` as one launch of a CUDA graph; its result is overwritten by the next call.

    What `run` reads lives as long as what is returned: a graph holds addresses, not tensors.
    """
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_CALLS):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()

    return _Replay(graph, run, result)


GPU_SYSTEMS: Mapping[str, PrepareGpu] = MappingProxyType(
    {
        "eager": _eager,
        "eager-graph": _eager_graph,
        "eager-graph-channels-last": _eager_graph_channels_last,
        "inductor": _compiled("reduce-overhead", "inductor"),
        AUTOTUNED_SYSTEM: _compiled("max-autotune", "inductor"),
        FROZEN_SYSTEM: _hidet_frozen,
        TUNED_SYSTEM: _hidet_tuned,
        STORED_SYSTEM: _hidet_tuned,
        OUR_SYSTEM: _compiled("reduce-overhead", "hidet"),
    }
)
"""Every system that can be measured; Inductor and hidet with CUDA graphs."""

DEFAULT_PEERS = tuple(system for system in GPU_SYSTEMS if system not in (OUR_SYSTEM, TUNED_SYSTEM, STORED_SYSTEM))
"""Those that ours is measured beside unless the user says otherwise."""

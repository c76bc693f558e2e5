"""CUDA graphs of compiled graphs: a call as one launch, for models whose kernels are shorter than their launches.

The first call with given shapes runs as always, the second one is captured, later ones are replayed. Inputs are copied
to where they were when the graph was captured, apart from parameters and tensors that are overwritten, which are used
where they lie; results are copied out of the graph's memory, so that they stay valid after the next call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hidet.torch import compat

Run = Callable[[list[Any]], list[Any]]

MAX_INSTANCES = 8
"""Captured graphs that are kept; beyond that the one used longest ago is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A captured call: the graph, the tensors it reads (None for those that are overwritten), and its results."""

    graph: Any
    inputs: list[Any]
    results: list[Any]


class Replays:
    """Runs `run` through CUDA graphs, one for each stream and kind of inputs.

    parameters: numbers of inputs that are used where they lie and held, since results of a prepare program belong to
    them; when one is replaced or updated, the call is captured anew. overwritten: numbers of those the call writes.
    version: of a parameter, another one after an update.
    """

    def __init__(
        self,
        run: Run,
        device: torch.device,
        parameters: Sequence[int],
        overwritten: Sequence[int],
        version: Callable[[torch.Tensor], object],
    ) -> None:
        self._run = run
        self._device = device
        self._parameters = frozenset(parameters)
        self._overwritten = frozenset(overwritten)
        self._version = version
        self._instances: dict[tuple[object, ...], Instance | None] = {}
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The results of a call."""
        if torch.cuda.is_current_stream_capturing():
            return self._run(inputs)
        key = (compat.current_stream(self._device.index), *map(self._kind, range(len(inputs)), inputs))
        # The tensors of an instance are shared by its calls, which one stream keeps in order on the device.
        with self._lock:
            if key not in self._instances:
                self._keep(key, None)
                return self._run(inputs)
            instance = self._instances[key]
            if instance is None:
                instance = self._capture(inputs)
                if instance is None:
                    return self._run(inputs)
            self._keep(key, instance)
            for given, own in zip(inputs, instance.inputs, strict=True):
                if given is not own and isinstance(own, torch.Tensor):
                    _elements(own).copy_(_elements(given))
            instance.graph.replay()
            return [result.clone() if isinstance(result, torch.Tensor) else result for result in instance.results]

    def _kind(self, number: int, value: Any) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        if number in self._parameters:
            return value.data_ptr(), self._version(value)
        if number in self._overwritten:
            return value.data_ptr(), value.shape, value.stride()
        return value.dtype, value.shape, value.stride()

    def _keep(self, key: tuple[object, ...], instance: Instance | None) -> None:
        """Note an instance as the one used last."""
        self._instances.pop(key, None)
        while len(self._instances) >= MAX_INSTANCES:
            del self._instances[next(iter(self._instances))]
        self._instances[key] = instance

    def _capture(self, inputs: list[Any]) -> Instance | None:
        """The call as a graph, which has not run yet.

        None when results are no plain tensors, or elements of an input share memory otherwise than by a stride of 0.
        """
        fixed = self._parameters | self._overwritten
        copied = (value for number, value in enumerate(inputs) if number not in fixed)
        if not all(_is_apart(_elements(value)) for value in copied if isinstance(value, torch.Tensor)):
            return None
        own = [
            value if number in fixed or not isinstance(value, torch.Tensor) else _copy(value)
            for number, value in enumerate(inputs)
        ]
        graph = torch.cuda.CUDAGraph()
        stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch's own
        with torch.cuda.device(self._device), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            results = self._run(list(own))
        is_plain = all(_owns_memory(result) for result in results if isinstance(result, torch.Tensor))
        kept = [None if number in self._overwritten else value for number, value in enumerate(own)]
        return Instance(graph, kept, results) if is_plain else None


def _copy(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout, with memory of its own."""
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    _elements(made).copy_(_elements(value))
    return made


def _elements(value: torch.Tensor) -> torch.Tensor:
    """A tensor without the repetitions of axes with a stride of 0."""
    for axis, (stride, extent) in enumerate(zip(value.stride(), value.shape, strict=True)):
        if stride == 0 and extent > 1:
            value = value.narrow(axis, 0, 1)
    return value


def _is_apart(value: torch.Tensor) -> bool:
    """Whether each element surely has memory of its own: axes lie inside of each other."""
    reach = 1
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True)):
        if extent > 1 and stride < reach:
            return False
        reach += (extent - 1) * stride
    return True


def _owns_memory(value: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory, so that a copy of it has the same strides and nothing shares it."""
    reach = 1
    for stride, extent in sorted(zip(value.stride(), value.shape, strict=True)):
        if extent > 1 and stride != reach:
            return False
        reach *= extent
    return value.untyped_storage().nbytes() == value.numel() * value.element_size()

"""hidet and its peers behind one interface: a model and inputs in, a function that runs it out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType

import torch
from torch import nn

from benchmarks.results import FROZEN_SYSTEM, OUR_SYSTEM, WHOLE_SYSTEM
from tests.models.entry import Inputs
from tests.models.onnx_export import exported_model

Run = Callable[[], torch.Tensor]
"""One call of a prepared model on the inputs it was prepared with."""


class Unavailable(Exception):
    """A system cannot run here; the message says why and stands in the table."""


def prepare(system: str, key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    """Make `model` ready in the system of that name and return the function that runs it.

    key: name of the model, for caches of exported files. threads: how many may be used; torch's own number has to be
    set to it before. Nothing is compiled until the first call. Raises Unavailable when the system cannot run here.
    """
    return SYSTEMS[system](key, model, inputs, threads)


def _eager(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    return lambda: model(**inputs)


def _inductor(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    return _compiled(torch.compile(model, dynamic=False), inputs)


def _inductor_freezing(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    return _compiled(torch.compile(model, dynamic=False, options={"freezing": True}), inputs)


def _hidet(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    if importlib.util.find_spec("hidet") is None or "hidet" not in torch.compiler.list_backends():
        raise Unavailable("torch knows no backend hidet; pip install hidet-torch")
    return _compiled(torch.compile(model, backend="hidet", dynamic=False), inputs)


def _hidet_frozen(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    return _compiled(torch.compile(model, backend="hidet", dynamic=False, options={"freeze": True}), inputs)


def _hidet_whole(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    try:
        import hidet.torch
    except ImportError as error:
        raise Unavailable("hidet-torch is not installed") from error
    names = list(signature(model.forward).parameters)[: len(inputs)]
    if set(names) != set(inputs):
        raise Unavailable(f"hidet.compile takes inputs by place, and forward begins with {', '.join(names)}")
    given = tuple(inputs[name] for name in names)
    compiled = hidet.compile(model, given, options={"threads": threads})
    return lambda: compiled(*given)


def _compiled(compiled: Callable[..., torch.Tensor], inputs: Inputs) -> Run:
    return lambda: compiled(**inputs)


def _onnxruntime(key: str, model: nn.Module, inputs: Inputs, threads: int) -> Run:
    try:
        import onnxruntime
    except ImportError as error:
        raise Unavailable("onnxruntime is not installed") from error
    path = exported_model(key, model, inputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {name: value.numpy() for name, value in inputs.items()}
    return lambda: torch.from_numpy(session.run(None, feeds)[0])


SYSTEMS: Mapping[str, Callable[[str, nn.Module, Inputs, int], Run]] = MappingProxyType(
    {
        "eager": _eager,
        "inductor": _inductor,
        "inductor-freezing": _inductor_freezing,
        "onnxruntime": _onnxruntime,
        FROZEN_SYSTEM: _hidet_frozen,
        OUR_SYSTEM: _hidet,
        WHOLE_SYSTEM: _hidet_whole,
    }
)
"""Every system that can be measured."""

DEFAULT_SYSTEMS = ("eager", "inductor", "onnxruntime", "hidet")
"""Those measured unless the user says otherwise."""

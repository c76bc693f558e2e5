"""Models that torch.compile has compiled with hidet: the graphs of each, and the time that tuning them may take.

dynamo hands over one graph after the other, each by a call of its own; what it calls is one object a model, which
carries the record of the model.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hidet.budget import Budget
from hidet.compiler.graphs import CompiledPart, ImportedModel
from hidet.context import CompileContext, Options
from hidet.errors import OptionError
from hidet.torch import compat
from hidet.torch.runner import Runner

_RECORD = "_hidet_record"


@dataclass(slots=True, eq=False)
class ModelRecord:
    """What hidet has made of a model. budget: of its graphs together, None before one was tuned."""

    budget: Budget | None = None
    _runners: list[tuple[weakref.ref[Runner], CompileContext]] = field(default_factory=list)

    def with_budget(self, options: Options) -> Options:
        """Options of the next graph, which is charged to the model's budget where they ask for tuning."""
        wanted = options.with_budget()
        if wanted.tune is None:
            return options
        if self.budget is None:
            self.budget = cast(Budget, wanted.tune)
        return replace(wanted, tune=self.budget)

    def add(self, runner: Runner, ctx: CompileContext) -> None:
        """Note a graph that was compiled."""
        self._runners = [(each, context) for each, context in self._runners if each() is not None]
        self._runners.append((weakref.ref(runner), ctx))

    def parts(self) -> list[CompiledPart]:
        """The graphs that are still used, those that compute nothing left out."""
        alive = [(runner(), ctx) for runner, ctx in self._runners]
        return [
            CompiledPart(ImportedModel(runner.imported.graph, ctx), runner.compiled, runner.replace)
            for runner, ctx in alive
            if runner is not None and runner.compiled is not None
        ]


_RECORDING: ContextVar[ModelRecord | None] = ContextVar("hidet_torch_model", default=None)


@contextmanager
def recording() -> Iterator[ModelRecord]:
    """The record of the model whose graph torch.compile hands over now; a new one where somebody else calls."""
    owner = compat.calling_wrapper()
    record = None if owner is None else getattr(owner, _RECORD, None)
    if record is None:
        record = ModelRecord()
        if owner is not None:
            setattr(owner, _RECORD, record)
    with _recording_in(record):
        yield record


@contextmanager
def _recording_in(record: ModelRecord) -> Iterator[None]:
    token = _RECORDING.set(record)
    try:
        yield
    finally:
        _RECORDING.reset(token)


def in_same_record(compile_later: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose graphs are of the model that is recorded now, whenever it is called: backward passes are
    compiled when they first run."""
    record = current_record()

    def recorded(*arguments: Any) -> Any:
        with _recording_in(record):
            return compile_later(*arguments)

    return recorded


def current_record() -> ModelRecord:
    """That of the innermost `recording`; one that nobody keeps outside of it."""
    return _RECORDING.get() or ModelRecord()


def parts_of(model: object, example_inputs: Sequence[Any] | Mapping[str, Any] | None) -> list[CompiledPart] | None:
    """The graphs of what `torch.compile(module, backend="hidet")` returned; None for anything else.

    example_inputs: what the model is called with where it was not called before. OptionError where there are none then,
    and for a model that another backend has compiled.
    """
    wrapper = compat.wrapper_of(model)
    if wrapper is None:
        return None
    if getattr(wrapper, _RECORD, None) is None and example_inputs is not None:
        call: Any = model
        if isinstance(example_inputs, Mapping):
            call(**example_inputs)
        else:
            call(*example_inputs)
    record: ModelRecord | None = getattr(wrapper, _RECORD, None)
    parts = [] if record is None else record.parts()
    if not parts:
        raise OptionError(
            "hidet has compiled no graph of this model",
            hint="torch.compile(model, backend='hidet') compiles at the first call: call it, or give example inputs",
        )
    return parts
